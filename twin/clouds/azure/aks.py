"""Azure Kubernetes Service: the records; the rules are in aks_rules. Pure."""

# ruff: noqa: S106  (a token is the name of a type here, and no password)

from collections.abc import Sequence
from typing import Any

from twin.clouds.acting import Endpoint
from twin.clouds.azure import aks_rules as rules
from twin.clouds.azure.aks_pool_rules import POOL_CHECKS, inline
from twin.clouds.azure.aks_pools import DEFAULT_VERSION, PATCHES, inline_pools, live_cluster
from twin.clouds.azure.aks_rules import (
    BAD,
    CLUSTER,
    CLUSTER_PATH,
    DOCS,
    IN_USE,
)
from twin.clouds.azure.common import TENANT, arm, guid, location_of, named, parent_of
from twin.clouds.azure.identity import IDENTITY
from twin.clouds.azure.network import SUBNET
from twin.clouds.model import Demand, Inputs, Making, Naming, Reference, ResourceType, Rule
from twin.clouds.world import Resource

CALENDAR_PATH = f"{CLUSTER_PATH}/maintenanceConfigurations/{{configName}}"
BLOB_DRIVER = "blob.csi.azure.com"


def _describe_cluster(making: Making) -> dict[str, Any]:
    given, place = making.inputs, location_of(making.region)
    version = str(given.get("kubernetesVersion") or DEFAULT_VERSION)
    prefix = given.get("dnsPrefix") or given["resourceName"]
    mark = making.digits("dns", 8)
    private = (given.get("apiServerAccessProfile") or {}).get("enablePrivateCluster")
    host = f"{prefix}-{mark}.hcp.{place}.azmk8s.io"
    hidden = f"{prefix}-{mark}.{making.digits('zone', 12)}.privatelink.{place}.azmk8s.io"
    group = (
        given.get("nodeResourceGroup")
        or f"MC_{given['resourceGroupName']}_{given['resourceName']}_{place}"
    )
    return {
        "currentKubernetesVersion": PATCHES.get(version, version),
        "fqdn": "" if private else host,
        "azurePortalFQDN": f"{prefix}-{mark}.portal.hcp.{place}.azmk8s.io",
        **({"privateFQDN": hidden} if private else {}),
        "nodeResourceGroup": group,
        "maxAgentPools": 100,
        "powerState": {"code": "Running"},
        "resourceUID": making.digits("uid", 24),
        "oidcIssuerProfile": _issuer(making),
        "identity": _identity(making),
        "identityProfile": _kubelet(making),
    }


def _issuer(making: Making) -> dict[str, Any]:
    said = making.inputs.get("oidcIssuerProfile") or {}
    place = location_of(making.region)
    url = f"https://{place}.oic.prod-aks.azure.com/{TENANT}/{guid(making.id, 'issuer')}/"
    return {**said, **({"issuerURL": url} if said.get("enabled") else {})}


def _identity(making: Making) -> dict[str, Any]:
    """Answer the identities as a map, although they went in as a list."""
    said = dict(making.inputs.get("identity") or {})
    owned = {"principalId": "", "tenantId": TENANT}
    if said.get("type") == "SystemAssigned":
        owned["principalId"] = guid(making.id, "principal")
    named_ones: dict[str, Any] = {}
    for each in said.get("userAssignedIdentities") or ():
        found = making.world.find((IDENTITY,), str(each))
        keys = ("clientId", "principalId")
        named_ones[str(each)] = {key: found.outputs[key] for key in keys} if found else {}
    return {**said, **owned, **({"userAssignedIdentities": named_ones} if named_ones else {})}


def _kubelet(making: Making) -> dict[str, Any]:
    said = making.inputs.get("identityProfile") or {}
    own = {
        "resourceId": f"{making.id}-agentpool",
        "clientId": guid(making.id, "kubelet-client"),
        "objectId": guid(making.id, "kubelet"),
    }
    return {"kubeletidentity": own, **said}


def _reached(_cluster: Resource, endpoint: Endpoint) -> dict[str, Any]:  # noqa: ARG001  see notes
    return {}


def _drivers(inputs: Inputs) -> Sequence[str]:
    driver = ((inputs.get("storageProfile") or {}).get("blobCSIDriver") or {}).get("enabled")
    return [BLOB_DRIVER] if driver else []


CLUSTER_RULES = (
    Rule(
        name="version of an AKS cluster",
        source=f"{DOCS}, supported versions",
        broken=rules.version_known("kubernetesVersion"),
    ),
    Rule(name="name of an AKS cluster", source=f"{DOCS}, naming", broken=rules.cluster_name),
    Rule(
        name="System pool of a cluster",
        source=f"{DOCS}, use system node pools",
        broken=rules.system_pool,
    ),
    Rule(
        name="network of an AKS cluster", source=f"{DOCS}, Azure CNI Overlay", broken=rules.network
    ),
    Rule(name="door of an AKS cluster", source=f"{DOCS}, authorized IP ranges", broken=rules.door),
    Rule(
        name="identities of an AKS cluster",
        source=f"{DOCS}, managed identities",
        broken=rules.identities,
    ),
    Rule(name="tier of an AKS cluster", source=f"{DOCS}, pricing tiers", broken=rules.tier),
    Rule(
        name="autoscaler of a cluster",
        source=f"{DOCS}, cluster autoscaler profile",
        broken=rules.autoscaler,
    ),
    *(
        Rule(name=f"inline: {name}", source=f"{DOCS}, node pools", broken=inline(check))
        for name, check in POOL_CHECKS.items()
    ),
)
CLUSTER_DEMANDS = (
    Demand(
        name="way out of a cluster",
        source=f"{DOCS}, NAT gateway",
        code="InvalidUserAssignedNATGateway",
        broken=rules.nat_gateway,
    ),
    Demand(
        name="cluster joins its subnet",
        source=f"{DOCS}, managed identities",
        code="LinkedAuthorizationFailed",
        broken=rules.joins_subnet,
    ),
    Demand(
        name="cluster gives the kubelet's identity",
        source=f"{DOCS}, managed identities",
        code="KubeletIdentityPermissionMissing",
        broken=rules.gives_identity,
    ),
    Demand(
        name="kubelet's identity whole",
        source=f"{DOCS}, managed identities",
        code=BAD,
        broken=rules.kubelet_whole,
    ),
    Demand(
        name="steps of an AKS version",
        source=f"{DOCS}, upgrade a cluster",
        code="OperationNotAllowed",
        broken=rules.one_step,
    ),
    Demand(
        name="inline pools stay",
        source="pulumi-azure-native #2719, #579",
        code="PropertyChangeNotAllowed",
        broken=rules.inline_kept,
    ),
    Demand(
        name="location has zones",
        source="Azure regions",
        code="AvailabilityZoneNotSupported",
        broken=rules.zones_there,
    ),
)

TYPES = (
    ResourceType(
        token=CLUSTER,
        identify=arm(CLUSTER_PATH),
        describe=_describe_cluster,
        cluster=_reached,
        pools=inline_pools,
        resized=live_cluster,
        drivers=_drivers,
        naming=Naming(property="resourceName", longest=63),
        immutable=named(
            CLUSTER_PATH,
            "location",
            "dnsPrefix",
            "nodeResourceGroup",
            "networkProfile.networkPlugin",
            "networkProfile.serviceCidr",
            "networkProfile.dnsServiceIP",
            "networkProfile.podCidr",
            "networkProfile.loadBalancerSku",
            "apiServerAccessProfile.enablePrivateCluster",
            "apiServerAccessProfile.privateDNSZone",
            "diskEncryptionSetID",
            "linuxProfile",
            "identityProfile",
        ),
        parent=parent_of,
        rules=CLUSTER_RULES,
        references=(
            Reference(
                path="agentPoolProfiles.*.vnetSubnetID",
                to=(SUBNET,),
                code="InvalidResourceReference",
                holds=IN_USE,
            ),
            Reference(
                path="identity.userAssignedIdentities.*",
                to=(IDENTITY,),
                code="FailedIdentityOperation",
            ),
            Reference(
                path="identityProfile.kubeletidentity.resourceId",
                to=(IDENTITY,),
                code="FailedIdentityOperation",
            ),
            Reference(
                path="addonProfiles.omsagent.config.logAnalyticsWorkspaceResourceID",
                to=("azure-native:operationalinsights:Workspace",),
                code="WorkspaceNotFound",
            ),
        ),
        demands=CLUSTER_DEMANDS,
        unique_code="Conflict",
    ),
    ResourceType(
        token="azure-native:containerservice:MaintenanceConfiguration",
        identify=arm(CALENDAR_PATH),
        naming=Naming(property="configName", longest=63, automatic=False),
        immutable=named(CALENDAR_PATH),
        parent=parent_of,
        rules=(
            Rule(
                name="maintenance window",
                source=f"{DOCS}, planned maintenance",
                broken=rules.calendar,
            ),
        ),
        unique_code="Conflict",
    ),
)
