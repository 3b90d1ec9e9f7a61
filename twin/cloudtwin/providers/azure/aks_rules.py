"""Rules of Azure Kubernetes Service for clusters and pools. Pure.

Sources: AKS documentation ("Supported Kubernetes versions", "Use system node pools", "Azure CNI
Overlay", "Azure CNI powered by Cilium", "workload identity", "NAT gateway", "managed identities"),
errors of the AKS REST API, and the issues that the rules name. Read 2026-11.
"""

import base64
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from cloudfacts.kubernetes import AKS_VERSIONS

from cloudtwin.providers.azure.common import ZONAL, is_child_of, location_of, parent_of
from cloudtwin.providers.azure.identity import (
    CLUSTER,
    CONTRIBUTOR,
    IDENTITY,
    IDENTITY_OPERATOR,
    NETWORK_CONTRIBUTOR,
    OWNER,
    PRIVATE_DNS_ZONE_CONTRIBUTOR,
    granted_roles,
)
from cloudtwin.providers.azure.network import ROUTE_TABLE, SUBNET
from cloudtwin.providers.conditions import (
    block_error,
    block_of,
    failure_at,
    matches,
    objects_at,
    section,
)
from cloudtwin.providers.inventory import Inventory, Resource, values_at
from cloudtwin.providers.model import Inputs, ResourceRequest
from cloudtwin.providers.schema.check import CheckFailure

Profile: TypeAlias = Mapping[str, Any]
"""The inputs of an inline pool."""
POOL = "azure-native:containerservice:AgentPool"
SNAPSHOT = "azure-native:containerservice:Snapshot"
CLUSTER_PATH = "Microsoft.ContainerService/managedClusters/{resourceName}"
POOL_PATH = f"{CLUSTER_PATH}/agentPools/{{agentPoolName}}"
DOCS = "AKS documentation"
BAD_REQUEST, IN_USE = "BadRequest", "InUseSubnetCannotBeDeleted"
INVALID_PARAMETER = "InvalidParameter"
MAINTENANCE_NAMES = ("aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule", "default")
EGRESS_HOPS = ("VirtualAppliance", "VirtualNetworkGateway")  # terraform-provider-azurerm #8609
RESERVED_BLOCKS = tuple(
    map(
        ipaddress.IPv4Network,
        ("169.254.0.0/16", "172.30.0.0/16", "172.31.0.0/16", "192.0.2.0/24"),
    )
)
"""Blocks that AKS allows neither for pods nor for Services nor in the network of the nodes."""
MAX_SKEW = 3  # minor versions between control plane and nodes
FIXED_FIELDS = ("vmSize", "osDiskSizeGB", "osDiskType", "vnetSubnetID", "availabilityZones")
POOL_FIXED_FIELDS = (
    "scaleSetPriority", "scaleSetEvictionPolicy", "spotMaxPrice", "type", "osType", "osDiskType", "osDiskSizeGB",
    "vnetSubnetID", "podSubnetID", "availabilityZones", "gpuProfile", "enableNodePublicIP", "maxPods",
    "kubeletDiskType", "enableFIPS", "enableUltraSSD", "proximityPlacementGroupID",
)  # fmt: skip
"""Inputs of a pool that AKS does not change. It does not change the taints of a Spot pool either."""
DNS_PREFIX = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,52}[A-Za-z0-9])?")
DURATION = matches(r"\d+[smh]", "is not a duration such as 10m")


def minor(version: object) -> str:
    """Return the version without its patch, such as `1.36` for `1.36.2`."""
    return ".".join(str(version).split(".")[:2])


def _minor_number(version: object) -> int:
    return int(minor(version).split(".")[1])


def version_error(version: object) -> str | None:
    """Return the reason why AKS does not offer a version; None if AKS offers it."""
    return (
        None
        if minor(version) in AKS_VERSIONS
        else f"{version!r} is not offered; AKS offers {', '.join(AKS_VERSIONS)}"
    )


# -- input rules


def system_pool(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for a cluster without a System pool, or with two pools of the same name."""
    if not isinstance(inputs.get("agentPoolProfiles"), list):
        yield failure_at("agentPoolProfiles", "a cluster needs a System pool: it is missing")
        return
    pools = [pool for _, pool in objects_at("agentPoolProfiles", inputs)]
    if not any(pool.get("mode") == "System" for pool in pools):
        yield failure_at("agentPoolProfiles", "at least one pool must have mode System")
    names = [pool.get("name") for pool in pools]
    if len(set(map(str, names))) < len(names):
        yield failure_at("agentPoolProfiles", "two pools have the same name")


def network(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for invalid or inconsistent addresses of a cluster's network."""
    profile, path = section(inputs, "networkProfile"), "networkProfile"
    for name in ("podCidr", "serviceCidr"):
        if isinstance(profile.get(name), str) and (reason := block_error(profile[name])):
            yield failure_at(f"{path}.{name}", reason)
        block = block_of(profile.get(name))
        if block and any(block.version == 4 and block.overlaps(other) for other in RESERVED_BLOCKS):
            yield failure_at(f"{path}.{name}", f"{block} overlaps a block that AKS reserves")
    pods, services = block_of(profile.get("podCidr")), block_of(profile.get("serviceCidr"))
    if pods and services and pods.version == services.version and pods.overlaps(services):
        yield failure_at(f"{path}.serviceCidr", f"{services} overlaps with the pods' block")
    dns = profile.get("dnsServiceIP")
    if isinstance(dns, str) and services and not _is_in_block(dns, services):
        reason = f"{dns} is not an address in {services}, or is its first address"
        yield failure_at(f"{path}.dnsServiceIP", reason)


def _is_in_block(address: str, block: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    return ip in block and ip != block[1]


def data_plane(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for an inconsistent network policy, data plane and plugin."""
    profile, path = section(inputs, "networkProfile"), "networkProfile"
    if profile.get("networkPolicy") == "cilium" and profile.get("networkDataplane") != "cilium":
        yield failure_at(
            f"{path}.networkDataplane", "the policy cilium needs the data plane cilium"
        )
    if profile.get("networkDataplane") == "cilium" and profile.get("networkPlugin") != "azure":
        yield failure_at(f"{path}.networkPlugin", "the data plane cilium needs the plugin azure")


def dns_prefix(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for an invalid DNS prefix, and for a missing one unless the cluster has a subdomain instead."""
    prefix = inputs.get("dnsPrefix")
    if prefix is None and inputs.get("fqdnSubdomain"):
        return
    if not DNS_PREFIX.fullmatch(str(prefix or "")):
        yield failure_at(
            "dnsPrefix",
            f"DNS prefix {str(prefix or '')!r} is invalid: it must have 1 to 54 letters, digits and hyphens, with a "
            "letter or digit at both ends",
        )


def api_access(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for authorized ranges that are invalid, or set on a private cluster."""
    access = section(inputs, "apiServerAccessProfile")
    path, ranges = "apiServerAccessProfile.authorizedIPRanges", access.get("authorizedIPRanges")
    if access.get("enablePrivateCluster") and ranges:
        yield failure_at(path, "a private cluster has no authorized ranges")
    for position, address_range in enumerate(ranges if isinstance(ranges, list) else []):
        if isinstance(address_range, str) and (reason := block_error(address_range)):
            yield failure_at(f"{path}[{position}]", reason)


def dns_zone(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for a private DNS zone that AKS does not accept."""
    access, path = (
        section(inputs, "apiServerAccessProfile"),
        "apiServerAccessProfile.privateDNSZone",
    )
    zone = access.get("privateDNSZone")
    if not isinstance(zone, str):
        return
    if not access.get("enablePrivateCluster"):
        yield failure_at(path, "only a private cluster has a private DNS zone")
    if zone == "none" and access.get("enablePrivateClusterPublicFQDN") is False:
        yield failure_at(path, "without a private zone, the cluster needs its public FQDN")
    if zone in {"system", "none"}:
        return
    parent = f"privatelink.{location_of(inputs.get('location'))}.azmk8s.io"
    name = zone.rpartition("/")[2]
    if not re.fullmatch(rf"([A-Za-z0-9-]{{1,32}}\.)?{re.escape(parent)}", name):
        yield failure_at(path, f"{name!r} is neither {parent} nor SUBZONE.{parent}")
    if section(inputs, "identity").get("type") != "UserAssigned":
        yield failure_at(
            path, "a custom private DNS zone needs a UserAssigned control plane identity"
        )


def proxy(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for a proxy that AKS does not support."""
    profile, path = section(inputs, "httpProxyConfig"), "httpProxyConfig"
    for name, schemes in (("httpProxy", ("http",)), ("httpsProxy", ("http", "https"))):
        url = profile.get(name)
        if not isinstance(url, str):
            continue
        parts = urlsplit(url)
        if parts.scheme not in schemes or not parts.hostname:
            yield failure_at(
                f"{path}.{name}", f"is not a URL with the scheme {' or '.join(schemes)}"
            )
        if parts.username is not None:
            yield failure_at(f"{path}.{name}", "user and password authentication is not supported")
    for position, name in enumerate(profile.get("noProxy") or ()):
        if isinstance(name, str) and "*" in name:
            yield failure_at(
                f"{path}.noProxy[{position}]", f"{name!r}: wildcards are not supported"
            )
    ca = profile.get("trustedCa")
    if isinstance(ca, str) and not _is_encoded_pem(ca):
        yield failure_at(f"{path}.trustedCa", "is not a base64-encoded PEM certificate")


def _is_encoded_pem(text: str) -> bool:
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return content.startswith(b"-----BEGIN CERTIFICATE-----")


def identities(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for missing or inconsistent identities of a cluster."""
    workload = section(inputs, "securityProfile", "workloadIdentity").get("enabled")
    if workload and not section(inputs, "oidcIssuerProfile").get("enabled"):
        yield failure_at("oidcIssuerProfile.enabled", "workload identity needs the OIDC issuer")
    if inputs.get("disableLocalAccounts") and not section(inputs, "aadProfile").get("managed"):
        reason = "without local accounts only Entra accounts remain: set aadProfile"
        yield failure_at("disableLocalAccounts", reason)
    kind = section(inputs, "identity").get("type")
    if section(inputs, "identityProfile").get("kubeletidentity") and kind != "UserAssigned":
        yield failure_at(
            "identity.type", "a kubelet identity needs a UserAssigned control plane identity"
        )
    if inputs.get("identity") is None and inputs.get("servicePrincipalProfile") is None:
        yield failure_at("identity", "a cluster needs an identity: SystemAssigned or UserAssigned")


def tier(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for features that the tier of a cluster does not have."""
    level = section(inputs, "sku").get("tier", "Free")
    if inputs.get("supportPlan") == "AKSLongTermSupport" and level != "Premium":
        yield failure_at("supportPlan", f"AKSLongTermSupport needs the tier Premium, not {level}")
    if section(inputs, "metricsProfile", "costAnalysis").get("enabled") and level == "Free":
        yield failure_at(
            "metricsProfile.costAnalysis", "cost analysis needs the tier Standard or Premium"
        )


def autoscaler(inputs: Inputs) -> Iterable[CheckFailure]:
    """Yield an error for each duration of the autoscaler that is not a number with the unit s, m or h."""
    for name, value in section(inputs, "autoScalerProfile").items():
        is_duration = any(mark in name for mark in ("Time", "Delay", "Interval"))
        if is_duration and (reason := DURATION(value)):
            yield failure_at(f"autoScalerProfile.{name}", reason)


# -- preconditions and deletion guards


def subnets(inputs: Inputs) -> list[str]:
    """Return the subnets of a cluster's inline pools or of a pool."""
    paths = ("agentPoolProfiles.*.vnetSubnetID", "vnetSubnetID")
    return [str(subnet) for path in paths for subnet in values_at(path, inputs)]


def nat_gateway(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for subnets without the NAT gateway that the outbound type requires."""
    kind = section(request.inputs, "networkProfile").get("outboundType")
    for subnet_id in subnets(request.inputs) if kind == "userAssignedNATGateway" else ():
        subnet = request.account.find((SUBNET,), subnet_id)
        if subnet and not section(subnet.inputs, "natGateway").get("id"):
            yield f"outbound type userAssignedNATGateway, but the subnet {subnet.name} has no NAT gateway"


def route_table(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for subnets without the route table that userDefinedRouting requires."""
    for subnet in _routed_subnets(request):
        if not section(subnet.inputs, "routeTable").get("id"):
            yield f"outbound type userDefinedRouting, but the subnet {subnet.name} has no route table"


def default_route(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for route tables without a default route."""
    for table in _route_tables(request):
        if _default_hop(table) is None:
            yield f"Default route 0.0.0.0/0 missing from route table {table.id}"


def default_hop(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for default routes that do not lead to an appliance or a gateway."""
    for table in _route_tables(request):
        hop = _default_hop(table)
        if hop is not None and hop not in EGRESS_HOPS:
            yield (
                f"Default route 0.0.0.0/0 has a next hop of {hop} but only next hops of "
                f"{' or '.join(EGRESS_HOPS)} are allowed"
            )


def _routed_subnets(request: ResourceRequest) -> list[Resource]:
    """Return the subnets of a cluster with userDefinedRouting."""
    if section(request.inputs, "networkProfile").get("outboundType") != "userDefinedRouting":
        return []
    ids = subnets(request.inputs)
    return [subnet for id_ in ids if (subnet := request.account.find((SUBNET,), id_))]


def _route_tables(request: ResourceRequest) -> list[Resource]:
    ids = (section(subnet.inputs, "routeTable").get("id") for subnet in _routed_subnets(request))
    return [table for id_ in ids if (table := request.account.find((ROUTE_TABLE,), id_ or ""))]


def _default_hop(table: Resource) -> str | None:
    """Return the type of the next hop of the default route; None without one."""
    routes = table.inputs.get("routes") or ()
    hops = (
        route.get("nextHopType") for route in routes if route.get("addressPrefix") == "0.0.0.0/0"
    )
    return next(iter(hops), None)


def _control_plane_principal(request: ResourceRequest) -> str | None:
    names = section(request.inputs, "identity").get("userAssignedIdentities") or ()
    resource = request.account.find((IDENTITY,), next(iter(names), ""))
    return str(resource.outputs["principalId"]) if resource else None


def joins_subnet(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for subnets that the control plane may not join."""
    principal = _control_plane_principal(request)
    sufficient_roles = {NETWORK_CONTRIBUTOR, CONTRIBUTOR, OWNER}
    for subnet in subnets(request.inputs) if principal else ():
        if not sufficient_roles & set(granted_roles(request.account, str(principal), subnet)):
            yield (
                f"the control plane's identity may not join {subnet}: it lacks the role Network "
                "Contributor; let the cluster depend on the role assignment"
            )


def writes_dns_zone(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for a custom DNS zone that the control plane may not write or link to its network."""
    zone = section(request.inputs, "apiServerAccessProfile").get("privateDNSZone")
    principal = _control_plane_principal(request)
    if principal is None or not isinstance(zone, str) or "/" not in zone:
        return
    if not {PRIVATE_DNS_ZONE_CONTRIBUTOR, CONTRIBUTOR, OWNER} & set(
        granted_roles(request.account, principal, zone)
    ):
        yield f"the control plane's identity lacks the role Private DNS Zone Contributor on {zone}"
    for network in {parent_of(subnet) for subnet in subnets(request.inputs)}:
        roles = set(granted_roles(request.account, principal, network))
        if not {NETWORK_CONTRIBUTOR, CONTRIBUTOR, OWNER} & roles:
            yield f"the control plane's identity lacks the role Network Contributor on {network}"


def _kubelet_identity(inputs: Inputs) -> Mapping[str, object]:
    return section(inputs, "identityProfile", "kubeletidentity")


def assigns_identity(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for a kubelet identity that the control plane may not assign."""
    principal, kubelet = (
        _control_plane_principal(request),
        _kubelet_identity(request.inputs).get("resourceId"),
    )
    if principal and kubelet:
        roles = set(granted_roles(request.account, principal, str(kubelet)))
        if not {IDENTITY_OPERATOR, OWNER} & roles:
            yield (
                "the control plane's identity lacks the role Managed Identity Operator on "
                f"{kubelet}; let the cluster depend on the role assignment"
            )


def kubelet_consistent(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for ids of the kubelet identity that belong to another identity."""
    kubelet = _kubelet_identity(request.inputs)
    resource = request.account.find((IDENTITY,), kubelet.get("resourceId") or "")
    for name, output in (("clientId", "clientId"), ("objectId", "principalId")):
        if resource and kubelet.get(name) and kubelet[name] != resource.outputs[output]:
            yield f"kubeletidentity.{name} does not belong to {resource.name}"


def next_minor_version(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for an update to an older minor version, or by more than one minor version."""
    previous, requested = request.previous, request.inputs.get("kubernetesVersion")
    if previous is None or requested is None:
        return
    current_minor, target_minor = (
        _minor_number(previous.outputs["currentKubernetesVersion"]),
        _minor_number(requested),
    )
    if target_minor not in (current_minor, current_minor + 1):
        yield f"Upgrades from 1.{current_minor} to 1.{target_minor} are not supported: one minor version at a time"


def inline_versions(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for versions of inline pools that a request for the cluster cannot set."""
    pools = request.inputs.get("agentPoolProfiles") or ()
    versions = {pool["name"]: pool.get("orchestratorVersion") for pool in pools}
    previous_pools = (
        (request.previous.inputs.get("agentPoolProfiles") or ()) if request.previous else ()
    )
    previous_versions = {pool["name"]: pool.get("orchestratorVersion") for pool in previous_pools}
    cluster_version = request.inputs.get("kubernetesVersion")
    declared_versions = {name: version for name, version in versions.items() if version is not None}
    accepted_names = {
        n
        for n, v in declared_versions.items()
        if v == previous_versions.get(n) or minor(v) == minor(cluster_version)
    }
    if (
        cluster_version
        and declared_versions
        and (len(declared_versions) < len(versions) or accepted_names != set(declared_versions))
    ):
        yield (
            "Using managed cluster api, all Agent pools' OrchestratorVersion must be all specified or all "
            "unspecified. If all specified, they must be stay unchanged or the same with control plane: "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
        )


def inline_profiles(cluster: Resource) -> Sequence[Profile]:
    """Return the inline pools that a cluster has, including pools that its inputs no longer declare."""
    return _with_kept_pools(cluster.inputs, cluster.outputs.get("agentPoolProfiles") or ())


def profiles_after(request: ResourceRequest) -> Sequence[Profile]:
    """Return the inline pools that a cluster has after a creation or update."""
    return _with_kept_pools(
        request.inputs, inline_profiles(request.previous) if request.previous else ()
    )


def _with_kept_pools(inputs: Inputs, old_pools: Sequence[Profile]) -> Sequence[Profile]:
    """Return the declared pools and the other old pools, which AKS keeps (pulumi-azure-native #1686, #579)."""
    declared_pools = inputs.get("agentPoolProfiles") or ()
    names = {pool["name"] for pool in declared_pools}
    return [*declared_pools, *(pool for pool in old_pools if pool["name"] not in names)]


def inline_unchanged(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for changes of inline pools that AKS refuses."""
    if request.previous is None:
        return
    old_pools = {pool["name"]: pool for pool in inline_profiles(request.previous)}
    new_pools = {pool["name"]: pool for pool in request.inputs.get("agentPoolProfiles") or ()}
    for name in sorted(set(new_pools) - set(old_pools)):
        yield f"A new agent pool was introduced: {name}; declare it as an AgentPool"
    for name in sorted(set(new_pools) & set(old_pools)):
        for field in FIXED_FIELDS:
            if old_pools[name].get(field) != new_pools[name].get(field):
                yield f"Changing property 'properties.{field}' of the pool {name} is not allowed"


def new_pool_size(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for a new pool whose number of nodes is outside the autoscaler's bounds.

    An update may have bounds that exclude the number of nodes (AKS #1758, terraform-provider-azurerm #26417).
    """
    if request.previous is None:
        yield from _size_outside_bounds(request.inputs)


def new_inline_pool_sizes(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each inline pool of a new cluster with a number of nodes outside the autoscaler's bounds."""
    if request.previous is None:
        for pool in request.inputs.get("agentPoolProfiles") or ():
            yield from _size_outside_bounds(pool)


def _size_outside_bounds(pool: Inputs) -> Iterable[str]:
    low, count, high = (pool.get(key) for key in ("minCount", "count", "maxCount"))
    if low is None or count is None or high is None:
        return
    if not low <= count <= high:
        yield f"minCount {low} <= count {count} <= maxCount {high} must hold for a new pool"


def pool_unchanged(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for changes of a pool that AKS refuses."""
    if request.previous is None:
        return
    old, new = request.previous.inputs, request.inputs
    is_spot = old.get("scaleSetPriority") == "Spot"
    for field in (*POOL_FIXED_FIELDS, *(["nodeTaints"] if is_spot else [])):
        if old.get(field) != new.get(field):
            yield f"Changing property 'properties.{field}' is not allowed"


def cluster_of(request: ResourceRequest) -> Resource | None:
    """Return the cluster of a pool, or None."""
    return request.account.find((CLUSTER,), parent_of(request.id))


def pool_version(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for a pool newer than its control plane, or too old for it."""
    cluster, requested = cluster_of(request), request.inputs.get("orchestratorVersion")
    if cluster is None or requested is None:
        return
    cluster_minor = _minor_number(cluster.outputs["currentKubernetesVersion"])
    if not cluster_minor - MAX_SKEW <= _minor_number(requested) <= cluster_minor:
        yield f"Node pool version {requested} and control plane version 1.{cluster_minor} are incompatible"


def pool_downgrade(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for an update of a pool to an older minor version."""
    desired_version = request.inputs.get("orchestratorVersion")
    current_version = (
        request.previous.outputs.get("currentOrchestratorVersion") if request.previous else None
    )
    if (
        desired_version
        and current_version
        and _minor_number(desired_version) < _minor_number(current_version)
    ):
        yield f"a node pool cannot go back from Kubernetes {current_version} to {desired_version}"


def pools_in_skew(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for an update of a control plane that leaves a pool too far behind."""
    previous, requested = request.previous, request.inputs.get("kubernetesVersion")
    if previous is None or requested is None:
        return
    for pool in filter(is_child_of(previous.id), request.account.all(POOL)):
        version = pool.outputs.get("currentOrchestratorVersion")
        if version and _minor_number(requested) - _minor_number(version) > MAX_SKEW:
            yield (
                f"the pool {pool.name} has Kubernetes {version}, more than {MAX_SKEW} minor versions behind "
                f"{requested}: upgrade it first"
            )


def pool_name_free(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for a pool with the name of an inline pool."""
    cluster, name = cluster_of(request), request.inputs.get("agentPoolName")
    for pool in inline_profiles(cluster) if cluster else ():
        if pool.get("name") == name:
            yield f"the cluster already has an inline pool {name!r}"


def pool_in_network(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for subnets outside the virtual network of the cluster."""
    cluster = cluster_of(request)
    networks = (
        {parent_of(subnet).lower() for subnet in subnets(cluster.inputs)} if cluster else set()
    )
    for subnet in subnets(request.inputs):
        if networks and parent_of(subnet).lower() not in networks:
            yield f"{subnet} is not in the virtual network of the cluster"


def zonal_location(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for zones in a location without zones."""
    cluster = cluster_of(request)
    location = request.inputs.get("location") or (cluster.inputs.get("location") if cluster else "")
    paths = ("availabilityZones.*", "agentPoolProfiles.*.availabilityZones.*")
    zones = [zone for path in paths for zone in values_at(path, request.inputs)]
    if zones and location_of(location) not in ZONAL:
        yield f"the location {location} has no availability zones"


def snapshot_fits(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for a pool whose snapshot is from another location or VM series."""
    cluster = cluster_of(request)
    owner = cluster.inputs if cluster else request.inputs
    for pool in request.inputs.get("agentPoolProfiles") or [request.inputs]:
        source = section(pool, "creationData").get("sourceResourceId")
        snapshot = request.account.find((SNAPSHOT,), source) if source else None
        if snapshot is None:
            continue
        if location_of(snapshot.inputs.get("location")) != location_of(owner.get("location")):
            yield (
                f"the snapshot {snapshot.name} is in {snapshot.inputs.get('location')}, not in {owner.get('location')}"
            )
        size = str(snapshot.outputs.get("vmSize"))
        if _series(size) != _series(str(pool.get("vmSize"))):
            yield f"the snapshot {snapshot.name} is of {size}, which is of another series than {pool.get('vmSize')}"


def _series(size: str) -> str:
    """Return the first letter of a VM size's family, such as N for `Standard_NC4as_T4_v3`."""
    return size.removeprefix("Standard_")[:1]


def last_system_pool(pool: Resource, subscription: Inventory) -> Iterable[str]:
    """Yield an error for the last System pool (pulumi-azure-native #1575)."""
    cluster = subscription.find((CLUSTER,), parent_of(pool.id))
    if pool.inputs.get("mode") != "System" or cluster is None:
        return
    separate_pools = filter(is_child_of(cluster.id), subscription.all(POOL))
    other_pools = [other.inputs for other in separate_pools if other.id != pool.id]
    inline_pools = inline_profiles(cluster)
    if not any(other.get("mode") == "System" for other in (*inline_pools, *other_pools)):
        yield "There has to be at least one system agent pool"
