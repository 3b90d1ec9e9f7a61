"""What Azure Kubernetes Service demands of clusters and pools. Pure.

Sources: AKS documentation ("Supported Kubernetes versions", "Use system node pools", "Spot node
pools", "Azure CNI Overlay", "Azure CNI powered by Cilium", "workload identity", "NAT gateway",
"managed identities"), the AKS REST API's errors, and the issues named at a rule. Read 2026-11.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twin.clouds.azure.common import ZONAL, location_of, parent_of
from twin.clouds.azure.identity import (
    CONTRIBUTOR,
    IDENTITY,
    IDENTITY_OPERATOR,
    NETWORK_CONTRIBUTOR,
    OWNER,
    granted,
)
from twin.clouds.azure.network import SUBNET
from twin.clouds.model import Inputs, Making
from twin.clouds.rules import at, known
from twin.clouds.wire.check import Mistake
from twin.clouds.world import Resource, World, values_at

CLUSTER = "azure-native:containerservice:ManagedCluster"
POOL = "azure-native:containerservice:AgentPool"
CLUSTER_PATH = "Microsoft.ContainerService/managedClusters/{resourceName}"
POOL_PATH = f"{CLUSTER_PATH}/agentPools/{{agentPoolName}}"
DOCS = "AKS documentation"
BAD = "BadRequest"
IN_USE = "InUseSubnetCannotBeDeleted"
VERSIONS = ("1.34", "1.35", "1.36", "1.37")  # AKS, supported Kubernetes versions, 2026-11
CLUSTER_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
CALENDARS = ("aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule", "default")


def minor(version: object) -> str:
    """Return `1.36` of `1.36.2`."""
    return ".".join(str(version).split(".")[:2])


def version_known(name: str) -> Callable[[Inputs], Iterable[Mistake]]:
    """Return a rule: the version at a property is offered."""

    def broken(inputs: Inputs) -> Iterable[Mistake]:
        version = inputs.get(name)
        if isinstance(version, str) and minor(version) not in VERSIONS:
            yield at(name, f"{version!r} is not offered: {', '.join(VERSIONS)}")

    return broken


# -- pools, inline or apart: the same properties


# -- clusters


def cluster_name(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse names of a cluster, and of its machines' group, that Azure does not take."""
    name, group = inputs.get("resourceName"), inputs.get("nodeResourceGroup")
    if isinstance(name, str) and not CLUSTER_NAME.fullmatch(name):
        yield at("resourceName", f"{name!r}: 1 to 63 letters, digits, - and _, ends without mark")
    if isinstance(group, str) and len(group) > 80:
        yield at("nodeResourceGroup", f"{group!r} has {len(group)} characters, 80 are allowed")


def system_pool(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse a cluster without a System pool, or with two pools of one name."""
    pools = inputs.get("agentPoolProfiles")
    if not isinstance(pools, list):
        yield at("agentPoolProfiles", "a cluster begins with one System pool: it is missing")
        return
    if not any(pool.get("mode") == "System" for pool in pools):
        yield at("agentPoolProfiles", "at least one pool must have mode System")
    names = [pool.get("name") for pool in pools]
    if len(set(map(str, names))) < len(names):
        yield at("agentPoolProfiles", "two pools bear one name")


def _blocks(network: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name in ("podCidr", "serviceCidr"):
        try:
            if isinstance(network.get(name), str):
                yield name, ipaddress.ip_network(str(network[name]))
        except ValueError:
            continue


def network(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse a network whose parts do not fit each other."""
    said = inputs.get("networkProfile")
    if not isinstance(said, Mapping):
        return
    here = "networkProfile"
    given = dict(_blocks(said))
    for name in ("podCidr", "serviceCidr"):
        if isinstance(said.get(name), str) and name not in given:
            yield at(f"{here}.{name}", f"{said[name]!r} is no CIDR block")
    if len(given) == 2 and given["podCidr"].overlaps(given["serviceCidr"]):
        yield at(f"{here}.serviceCidr", f"{given['serviceCidr']} overlaps with the pods' block")
    dns = said.get("dnsServiceIP")
    if isinstance(dns, str) and "serviceCidr" in given:
        block = given["serviceCidr"]
        if ipaddress.ip_address(dns) not in block or ipaddress.ip_address(dns) == block[1]:
            yield at(f"{here}.dnsServiceIP", f"{dns} is not in {block}, or is its first address")
    if said.get("networkPolicy") == "cilium" and said.get("networkDataplane") != "cilium":
        yield at(f"{here}.networkDataplane", "the policy cilium needs the data plane cilium")
    if said.get("networkDataplane") == "cilium" and said.get("networkPlugin") != "azure":
        yield at(f"{here}.networkPlugin", "the data plane cilium needs the plug-in azure")


def door(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse a private API with ranges, and ranges that are none."""
    access = inputs.get("apiServerAccessProfile")
    if not isinstance(access, Mapping):
        return
    ranges = access.get("authorizedIPRanges")
    path = "apiServerAccessProfile.authorizedIPRanges"
    if access.get("enablePrivateCluster") and ranges:
        yield at(path, "a private cluster has no authorized ranges")
    for position, each in enumerate(ranges if isinstance(ranges, list) else []):
        if isinstance(each, str):
            try:
                ipaddress.ip_network(each)
            except ValueError as error:
                yield at(f"{path}[{position}]", f"{each!r}: {error}")


def identities(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse identities that do not go together."""
    security = inputs.get("securityProfile") or {}
    workload = (security.get("workloadIdentity") or {}).get("enabled")
    if workload and not (inputs.get("oidcIssuerProfile") or {}).get("enabled"):
        yield at("oidcIssuerProfile.enabled", "workload identity needs the OIDC issuer")
    entra = (inputs.get("aadProfile") or {}).get("managed")
    if inputs.get("disableLocalAccounts") and not entra:
        yield at(
            "disableLocalAccounts", "without local accounts only Entra's are left: set aadProfile"
        )
    kind = (inputs.get("identity") or {}).get("type")
    if (inputs.get("identityProfile") or {}).get("kubeletidentity") and kind != "UserAssigned":
        yield at("identity.type", "an own kubelet identity needs a UserAssigned control plane")
    if inputs.get("identity") is None and inputs.get("servicePrincipalProfile") is None:
        yield at("identity", "a cluster has an identity: SystemAssigned or UserAssigned")


def tier(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse long-term support and cost analysis in a tier without them."""
    level = (inputs.get("sku") or {}).get("tier", "Free")
    if inputs.get("supportPlan") == "AKSLongTermSupport" and level != "Premium":
        yield at("supportPlan", f"AKSLongTermSupport needs the tier Premium, not {level}")
    analysis = ((inputs.get("metricsProfile") or {}).get("costAnalysis") or {}).get("enabled")
    if analysis and level == "Free":
        yield at("metricsProfile.costAnalysis", "cost analysis needs the tier Standard or Premium")


def autoscaler(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse times and shares that the autoscaler cannot read: all of them are text."""
    given = inputs.get("autoScalerProfile")
    for name, value in given.items() if isinstance(given, Mapping) else ():
        timed = "Time" in name or "Delay" in name or "Interval" in name
        if timed and isinstance(value, str) and not re.fullmatch(r"\d+[smh]", value):
            yield at(f"autoScalerProfile.{name}", f"{value!r} is no time such as 10m")


def calendar(inputs: Inputs) -> Iterable[Mistake]:
    """Refuse a window that is too short or has a name that nothing reads."""
    name = inputs.get("configName")
    if known(name) and name not in CALENDARS:
        yield at("configName", f"{name!r} is none of {', '.join(CALENDARS)}")
    window = inputs.get("maintenanceWindow")
    hours = window.get("durationHours") if isinstance(window, Mapping) else None
    if isinstance(hours, int) and not 4 <= hours <= 24:
        yield at("maintenanceWindow.durationHours", f"{hours} hours: 4 to 24")
    start = window.get("startTime") if isinstance(window, Mapping) else None
    if isinstance(start, str) and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", start):
        yield at("maintenanceWindow.startTime", f"{start!r} is no time of day such as 02:00")


# -- the account too


def subnets(inputs: Inputs) -> list[str]:
    """List the subnets of a cluster's inline pools or of a pool."""
    paths = ("agentPoolProfiles.*.vnetSubnetID", "vnetSubnetID")
    return [str(each) for path in paths for each in values_at(path, inputs)]


def nat_gateway(making: Making) -> Iterable[str]:
    """Demand the NAT gateway that the outbound type speaks of."""
    kind = (making.inputs.get("networkProfile") or {}).get("outboundType")
    for each in subnets(making.inputs) if kind == "userAssignedNATGateway" else ():
        subnet = making.world.find((SUBNET,), each)
        if subnet and not (subnet.inputs.get("natGateway") or {}).get("id"):
            yield f"outbound type userAssignedNATGateway, but the subnet {subnet.name} has no NAT gateway"


def _control_plane(making: Making) -> str | None:
    names = (making.inputs.get("identity") or {}).get("userAssignedIdentities") or ()
    found = making.world.find((IDENTITY,), str(next(iter(names), "")))
    return str(found.outputs["principalId"]) if found else None


def joins_subnet(making: Making) -> Iterable[str]:
    """Demand that the control plane may put machines into the subnet."""
    principal = _control_plane(making)
    able = {NETWORK_CONTRIBUTOR, CONTRIBUTOR, OWNER}
    for each in subnets(making.inputs) if principal else ():
        if not able & set(granted(making.world, str(principal), each)):
            yield (
                f"the control plane's identity may not join {each}: it lacks the role Network "
                "Contributor; let the cluster wait for the role assignment"
            )


def gives_identity(making: Making) -> Iterable[str]:
    """Demand that the control plane may give the nodes their identity."""
    principal = _control_plane(making)
    kubelet = ((making.inputs.get("identityProfile") or {}).get("kubeletidentity") or {}).get(
        "resourceId"
    )
    if principal and kubelet:
        roles = set(granted(making.world, principal, str(kubelet)))
        if not {IDENTITY_OPERATOR, OWNER} & roles:
            yield (
                "the control plane's identity lacks the role Managed Identity Operator on "
                f"{kubelet}; let the cluster wait for the role assignment"
            )


def kubelet_whole(making: Making) -> Iterable[str]:
    """Demand that the three names of the nodes' identity are of one identity."""
    said = (making.inputs.get("identityProfile") or {}).get("kubeletidentity") or {}
    found = making.world.find((IDENTITY,), str(said.get("resourceId") or ""))
    if not found:
        return
    for name, output in (("clientId", "clientId"), ("objectId", "principalId")):
        if said.get(name) and said[name] != found.outputs[output]:
            yield f"kubeletidentity.{name} is not that of {found.name}"


def one_step(making: Making) -> Iterable[str]:
    """Demand that a cluster goes up by one minor version, and never down."""
    before, now = making.before, making.inputs.get("kubernetesVersion")
    if before is None or now is None:
        return
    old, new = (
        int(minor(each).split(".")[1]) for each in (before.outputs["currentKubernetesVersion"], now)
    )
    if new not in (old, old + 1):
        yield f"Upgrades from 1.{old} to 1.{new} are not supported: one minor version at a time"


def inline_kept(making: Making) -> Iterable[str]:
    """Demand that what is fixed in an inline pool stays, and that no pool comes or goes there."""
    if making.before is None:
        return
    old = {each["name"]: each for each in making.before.inputs.get("agentPoolProfiles") or ()}
    new = {each["name"]: each for each in making.inputs.get("agentPoolProfiles") or ()}
    for name in set(new) - set(old):
        yield f"A new agent pool was introduced: {name}; declare it as an AgentPool"
    for name in set(new) & set(old):
        for field in ("vmSize", "osDiskSizeGB", "osDiskType", "vnetSubnetID", "availabilityZones"):
            if old[name].get(field) != new[name].get(field):
                yield f"Changing property 'properties.{field}' of the pool {name} is not allowed"


def cluster_of(making: Making) -> Resource | None:
    """Return the cluster that a pool is in."""
    return making.world.find((CLUSTER,), parent_of(making.id))


def pool_version(making: Making) -> Iterable[str]:
    """Demand a pool not newer than its control plane, nor more than three versions older."""
    cluster, wanted = cluster_of(making), making.inputs.get("orchestratorVersion")
    if cluster is None or wanted is None:
        return
    control = int(minor(cluster.outputs["currentKubernetesVersion"]).split(".")[1])
    nodes = int(minor(wanted).split(".")[1])
    if not control - 3 <= nodes <= control:
        yield f"Node pool version {wanted} and control plane version 1.{control} are incompatible"


def pool_apart(making: Making) -> Iterable[str]:
    """Demand that a pool does not bear the name of an inline one."""
    cluster, name = cluster_of(making), making.inputs.get("agentPoolName")
    for each in (cluster.inputs.get("agentPoolProfiles") or ()) if cluster else ():
        if each.get("name") == name:
            yield f"the cluster has an inline pool {name!r} already"


def pool_in_network(making: Making) -> Iterable[str]:
    """Demand that all pools of a cluster are in one virtual network."""
    cluster = cluster_of(making)
    there = {parent_of(each).lower() for each in subnets(cluster.inputs)} if cluster else set()
    for each in subnets(making.inputs):
        if there and parent_of(each).lower() not in there:
            yield f"{each} is not in the virtual network of the cluster"


def zones_there(making: Making) -> Iterable[str]:
    """Demand a location with zones where zones are named."""
    cluster = cluster_of(making)
    where = making.inputs.get("location") or (cluster.inputs.get("location") if cluster else "")
    zones = [
        *values_at("availabilityZones.*", making.inputs),
        *values_at("agentPoolProfiles.*.availabilityZones.*", making.inputs),
    ]
    if zones and location_of(str(where)) not in ZONAL:
        yield f"the location {where} has no availability zones"


def last_system_pool(gone: Resource, world: World) -> Iterable[str]:
    """Refuse to delete the last System pool (pulumi-azure-native #1575)."""
    cluster = world.find((CLUSTER,), parent_of(gone.id))
    if gone.inputs.get("mode") != "System" or cluster is None:
        return
    inline_ones = cluster.inputs.get("agentPoolProfiles") or ()
    others = [
        each
        for each in world.all(POOL)
        if each.id != gone.id and parent_of(each.id).lower() == cluster.id.lower()
    ]
    system = [each for each in inline_ones if each.get("mode") == "System"]
    if not system and not any(each.inputs.get("mode") == "System" for each in others):
        yield "There has to be at least one system agent pool"
