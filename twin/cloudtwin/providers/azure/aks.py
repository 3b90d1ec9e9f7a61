"""AKS clusters; the rules are in aks_rules. Pure."""

from collections.abc import Mapping
from typing import Any

from cloudfacts.kubernetes import AKS_DEFAULT_VERSION, AKS_PATCHES

from cloudtwin.accounts import node_resource_group
from cloudtwin.providers.azure import aks_network
from cloudtwin.providers.azure import aks_rules as rules
from cloudtwin.providers.azure.aks_pool_rules import POOL_RULES, inline_rule
from cloudtwin.providers.azure.aks_pools import (
    current_cluster,
    inline_pools,
    inline_pools_sized_by_update,
)
from cloudtwin.providers.azure.aks_rules import (
    BAD_REQUEST,
    CLUSTER_PATH,
    DOCS,
    IN_USE,
    INVALID_PARAMETER,
)
from cloudtwin.providers.azure.common import TENANT, arm_type, guid, location_of
from cloudtwin.providers.azure.identity import CLUSTER, IDENTITY
from cloudtwin.providers.azure.network import PRIVATE_ZONE, SUBNET, resource_reference
from cloudtwin.providers.conditions import in_range, matches, one_of_values, section, value_rule
from cloudtwin.providers.inventory import Resource
from cloudtwin.providers.model import (
    Endpoint,
    InputRule,
    Inputs,
    Precondition,
    Reference,
    ResourceRequest,
)

MAINTENANCE_PATH = f"{CLUSTER_PATH}/maintenanceConfigurations/{{configName}}"
MAINTENANCE = "azure-native:containerservice:MaintenanceConfiguration"
WORKSPACE = "azure-native:operationalinsights:Workspace"
BLOB_DRIVER = "blob.csi.azure.com"
PERSISTENT_PROFILES = ("azureMonitorProfile", "httpProxyConfig")
MAX_NODE_RESOURCE_GROUP = 80  # characters; AKS documentation, naming


def _describe_cluster(request: ResourceRequest) -> dict[str, Any]:
    inputs, location = request.inputs, location_of(request.region)
    old = request.previous
    old_version = old.outputs["currentKubernetesVersion"] if old else AKS_DEFAULT_VERSION
    version = str(inputs.get("kubernetesVersion") or old_version)
    prefix = inputs.get("fqdnSubdomain") or f"{inputs['dnsPrefix']}-{request.digits('dns', 8)}"
    access = section(inputs, "apiServerAccessProfile")
    zone = str(access.get("privateDNSZone") or "system")
    is_private = access.get("enablePrivateCluster") and zone != "none"
    host = f"{prefix}.hcp.{location}.azmk8s.io"
    system_zone = f"{request.digits('zone', 12)}.privatelink.{location}.azmk8s.io"
    private_host = f"{prefix}.{zone.rpartition('/')[2] if '/' in zone else system_zone}"
    group = node_resource_group(inputs["resourceGroupName"], inputs["resourceName"], location)
    return {
        "currentKubernetesVersion": AKS_PATCHES.get(version, version),
        "fqdn": "" if is_private else host,
        "azurePortalFQDN": f"{prefix}.portal.hcp.{location}.azmk8s.io",
        **({"privateFQDN": private_host} if is_private else {}),
        "nodeResourceGroup": inputs.get("nodeResourceGroup") or group,
        "agentPoolProfiles": rules.profiles_after(request),
        "maxAgentPools": 100,
        "powerState": {"code": "Running"},
        "resourceUID": request.digits("uid", 24),
        "oidcIssuerProfile": _issuer(request),
        "identity": _identity(request),
        "identityProfile": _kubelet_identity(request),
        **_persistent_profiles(request),
    }


def _persistent_profiles(request: ResourceRequest) -> dict[str, Any]:
    """Return the add-ons, the agent for metrics and the proxy: AKS keeps those that an update omits (AKS #2904)."""
    old = request.previous.outputs if request.previous else {}
    addons = {**(old.get("addonProfiles") or {}), **section(request.inputs, "addonProfiles")}
    profiles = {name: request.inputs.get(name) or old.get(name) for name in PERSISTENT_PROFILES}
    return {"addonProfiles": addons or None, **profiles}


def _issuer(request: ResourceRequest) -> dict[str, Any]:
    profile, location = section(request.inputs, "oidcIssuerProfile"), location_of(request.region)
    url = f"https://{location}.oic.prod-aks.azure.com/{TENANT}/{guid(request.id, 'issuer')}/"
    return {**profile, **({"issuerURL": url} if profile.get("enabled") else {})}


def _identity(request: ResourceRequest) -> dict[str, Any]:
    """Return the identities as a map; in the inputs they are a list."""
    identity = section(request.inputs, "identity")
    outputs = {"principalId": "", "tenantId": TENANT}
    if identity.get("type") == "SystemAssigned":
        outputs["principalId"] = guid(request.id, "principal")
    assigned_identities: dict[str, Any] = {}
    for resource_id in identity.get("userAssignedIdentities") or ():
        resource = request.account.find((IDENTITY,), resource_id)
        keys = ("clientId", "principalId")
        assigned_identities[str(resource_id)] = (
            {key: resource.outputs[key] for key in keys} if resource else {}
        )
    return {
        **identity,
        **outputs,
        **({"userAssignedIdentities": assigned_identities} if assigned_identities else {}),
    }


def _kubelet_identity(request: ResourceRequest) -> dict[str, Any]:
    identity = {
        "resourceId": f"{request.id}-agentpool",
        "clientId": guid(request.id, "kubelet-client"),
        "objectId": guid(request.id, "kubelet"),
    }
    return {"kubeletidentity": identity, **section(request.inputs, "identityProfile")}


def _cluster_outputs(_cluster: Resource, _endpoint: Endpoint) -> dict[str, Any]:
    """Return no outputs: the endpoint stays private, in the kubeconfig."""
    return {}


def _drivers(inputs: Inputs) -> Mapping[str, bool]:
    return {BLOB_DRIVER: bool(section(inputs, "storageProfile", "blobCSIDriver").get("enabled"))}


def _length_error(value: object) -> str | None:
    length = len(str(value))
    if length <= MAX_NODE_RESOURCE_GROUP:
        return None
    return f"{value!r} has {length} characters, at most {MAX_NODE_RESOURCE_GROUP} are allowed"


RULES = (
    value_rule("version of an AKS cluster", "kubernetesVersion", rules.version_error,
               f"{DOCS}, supported versions"),
    value_rule("name of an AKS cluster", "resourceName",
               matches(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?",
                       "is invalid: 1 to 63 letters, digits, - and _, a letter or digit at both ends"),
               f"{DOCS}, naming"),
    value_rule("name of the node resource group", "nodeResourceGroup", _length_error, f"{DOCS}, naming"),
    InputRule("DNS prefix of an AKS cluster", "pulumi-azure-native #571", rules.dns_prefix),
    InputRule("system pool of a cluster", f"{DOCS}, use system node pools", rules.system_pool),
    InputRule("network of an AKS cluster", f"{DOCS}, Azure CNI Overlay", rules.network),
    InputRule("data plane of an AKS cluster", f"{DOCS}, Azure CNI powered by Cilium", rules.data_plane),
    InputRule("API access of an AKS cluster", f"{DOCS}, authorized IP ranges", rules.api_access),
    InputRule("DNS zone of an AKS cluster", f"{DOCS}, private clusters", rules.dns_zone),
    InputRule("proxy of an AKS cluster", f"{DOCS}, HTTP proxy", rules.proxy),
    InputRule("identities of an AKS cluster", f"{DOCS}, managed identities", rules.identities),
    InputRule("tier of an AKS cluster", f"{DOCS}, pricing tiers", rules.tier),
    InputRule("autoscaler of a cluster", f"{DOCS}, cluster autoscaler profile", rules.autoscaler),
    *map(inline_rule, POOL_RULES),
)  # fmt: skip
PRECONDITIONS = (
    Precondition("NAT gateway of a cluster", f"{DOCS}, NAT gateway", "InvalidUserAssignedNATGateway",
                 rules.nat_gateway),
    Precondition("route table of a cluster", f"{DOCS}, user-defined routing; AKS #1842",
                 "ExistingRouteTableNotAssociatedWithSubnet", rules.route_table),
    Precondition("default route of a cluster", "azure-docs #108240", "RouteTableMissingDefaultRouteError",
                 rules.default_route),
    Precondition("next hop of a cluster's egress", "terraform-provider-azurerm #8609",
                 "RouteTableInvalidNextHop", rules.default_hop),
    Precondition("Services outside the nodes' network", "AKS #1117; azure-cli #20810",
                 "ServiceCidrOverlapExistingSubnetsCidr", aks_network.service_overlap),
    Precondition("pods outside the nodes' network", "AKS-Construction #403", "NetworkProfileCIDROverlapVNET",
                 aks_network.pod_overlap),
    Precondition("addresses of a cluster", "AKS-Construction #701; AKS #4467", "InsufficientSubnetSize",
                 aks_network.cluster_fits),
    Precondition("cluster joins its subnet", f"{DOCS}, managed identities",
                 "LinkedAuthorizationFailed", rules.joins_subnet),
    Precondition("cluster writes its DNS zone", f"{DOCS}, private clusters",
                 "CustomPrivateDNSZoneMissingPermissionError", rules.writes_dns_zone),
    Precondition("cluster assigns the kubelet's identity", f"{DOCS}, managed identities",
                 "KubeletIdentityPermissionMissing", rules.assigns_identity),
    Precondition("kubelet's identity consistent", f"{DOCS}, managed identities", BAD_REQUEST,
                 rules.kubelet_consistent),
    Precondition("upgrade by one minor version", f"{DOCS}, upgrade a cluster", "OperationNotAllowed",
                 rules.next_minor_version),
    Precondition("versions of inline pools", "terraform-provider-azurerm #23436",
                 "NotAllAgentPoolOrchestratorVersionSpecifiedAndUnchanged", rules.inline_versions),
    Precondition("version skew of node pools", f"{DOCS}, upgrade a cluster",
                 "OperationNotAllowed", rules.pools_in_skew),
    Precondition("number of nodes of new inline pools", f"{DOCS}, cluster autoscaler", INVALID_PARAMETER,
                 rules.new_inline_pool_sizes),
    Precondition("inline pools unchanged", "pulumi-azure-native #2719, #579",
                 "PropertyChangeNotAllowed", rules.inline_unchanged),
    Precondition("snapshots of inline pools", f"{DOCS}, node pool snapshot", BAD_REQUEST, rules.snapshot_fits),
    Precondition("location has zones", "Azure regions", "AvailabilityZoneNotSupported",
                 rules.zonal_location),
)  # fmt: skip
TYPES = (
    arm_type(
        CLUSTER, CLUSTER_PATH, 63, "location", "dnsPrefix", "nodeResourceGroup",
        "networkProfile.networkPlugin", "networkProfile.serviceCidr",
        "networkProfile.dnsServiceIP", "networkProfile.podCidr", "networkProfile.loadBalancerSku",
        "apiServerAccessProfile.enablePrivateCluster", "apiServerAccessProfile.privateDNSZone",
        "diskEncryptionSetID", "linuxProfile", "identityProfile",
        name=None,
        describe=_describe_cluster,
        cluster_outputs=_cluster_outputs,
        pools=inline_pools,
        current_inputs=current_cluster,
        pools_sized_by_update=inline_pools_sized_by_update,
        drivers=_drivers,
        rules=RULES,
        references=(
            resource_reference("agentPoolProfiles.*.vnetSubnetID", SUBNET, IN_USE),
            Reference("agentPoolProfiles.*.creationData.sourceResourceId", (rules.SNAPSHOT,), BAD_REQUEST),
            Reference("apiServerAccessProfile.privateDNSZone", (PRIVATE_ZONE,), BAD_REQUEST,
                      external=("system", "none")),
            Reference("identity.userAssignedIdentities.*", (IDENTITY,), "FailedIdentityOperation"),
            Reference("identityProfile.kubeletidentity.resourceId", (IDENTITY,),
                      "FailedIdentityOperation"),
            Reference("addonProfiles.omsagent.config.logAnalyticsWorkspaceResourceID", (WORKSPACE,),
                      "WorkspaceNotFound"),
        ),
        preconditions=PRECONDITIONS,
    ),
    arm_type(
        MAINTENANCE, MAINTENANCE_PATH, 63, name=None, generated=False,
        rules=(
            value_rule("name of a maintenance window", "configName", one_of_values(*rules.MAINTENANCE_NAMES),
                       f"{DOCS}, planned maintenance"),
            value_rule("hours of a maintenance window", "maintenanceWindow.durationHours",
                       in_range(4, 24, "hours"), f"{DOCS}, planned maintenance"),
            value_rule("start of a maintenance window", "maintenanceWindow.startTime",
                       matches(r"([01]\d|2[0-3]):[0-5]\d", "is not a time of day such as 02:00"),
                       f"{DOCS}, planned maintenance"),
        ),
    ),
)  # fmt: skip
