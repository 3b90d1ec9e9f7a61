"""For each rule and precondition of the twin's Azure: a valid and an invalid case, and part of the message.

The cases of CHANGE_RULES are in `test_changes.py`.
"""

from cloudtwin.providers.azure.aks_rules import POOL, SNAPSHOT
from cloudtwin.providers.azure.common import GROUP, ROOT
from cloudtwin.providers.azure.identity import ASSIGNMENT, CLUSTER, CREDENTIAL, IDENTITY
from cloudtwin.providers.azure.network import ADDRESS, GATEWAY, NETWORK, ROUTE_TABLE, SUBNET
from cloudtwin.providers.azure.storage import ACCOUNT, CONTAINER
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.protocol.values import Object

SERVICE = "azure-native:storage:BlobServiceProperties"
RULE_ASSOCIATION = "azure-native:monitor:DataCollectionRuleAssociation"
BUDGET = "azure-native:consumption:Budget"
RG = f"{ROOT}/resourceGroups/g"
VNET = f"{RG}/providers/Microsoft.Network/virtualNetworks/v"
SNAPSHOT_ID = f"{RG}/providers/Microsoft.ContainerService/snapshots/s"
ROUTES = f"{RG}/providers/Microsoft.Network/routeTables/r"
ZONE = f"{RG}/providers/Microsoft.Network/privateDnsZones/privatelink.eastus.azmk8s.io"
NODES, OTHER_NODES = f"{VNET}/subnets/nodes", f"{VNET}2/subnets/nodes"
AKS = f"{RG}/providers/Microsoft.ContainerService/managedClusters/c"
CONTROL = f"{RG}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/control"
KUBELET = f"{RG}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/kubelet"
ROLE = f"{ROOT}/providers/Microsoft.Authorization/roleDefinitions/"
NETWORK_ROLE = f"{ROLE}4d97b98b-1d4f-4787-a291-c67834d212e7"
DNS_ROLE = f"{ROLE}b12aa53e-6015-4669-85d0-8515ebb3ae7f"
OPERATOR_ROLE = f"{ROLE}f1a07417-d97a-45cb-824c-7a7467783830"
GUID = "5b1f5b3a-5d8b-4f7e-9c43-4f0f0ad7f2c1"
SPOT = {"scaleSetPriority": "Spot", "mode": "User"}


def pools(pool: Object) -> Object:
    """Return the inputs of a cluster whose inline pool has the given inputs of a separate pool."""
    profile = {("name" if key == "agentPoolName" else key): value for key, value in pool.items()}
    return {"agentPoolProfiles": [profile]}


def private_api(zone: str) -> Object:
    """Return the profile of a private API with a DNS zone."""
    return {"apiServerAccessProfile": {"enablePrivateCluster": True, "privateDNSZone": zone}}


POOLS: dict[str, tuple[Object, Object, str]] = {
    "name of a pool": ({"agentPoolName": "t4"}, {"agentPoolName": "gpu-spot-pool"}, "1 to 12"),
    "counts of a pool": (
        {"enableAutoScaling": True, "minCount": 0, "count": 1, "maxCount": 3},
        {"enableAutoScaling": True, "minCount": 4, "count": 4, "maxCount": 3},
        "must hold",
    ),
    "maxSurge of a pool": (
        {"upgradeSettings": {"maxSurge": "33%"}},
        {"upgradeSettings": {"maxSurge": "a third"}},
        "nor a percentage",
    ),
    "maxUnavailable of a pool": (
        {"upgradeSettings": {"maxUnavailable": "1"}},
        {"upgradeSettings": {"maxUnavailable": "101%"}},
        "nor a percentage",
    ),
    "restrictions of Spot": (
        SPOT,
        {**SPOT, "upgradeSettings": {"maxSurge": "1"}},
        "upgradeSettings",
    ),
    "price of a Spot pool": (
        {**SPOT, "spotMaxPrice": 0.12345},
        {**SPOT, "spotMaxPrice": 0.123456},
        "5 decimal places",
    ),
    "size of a pool's machines": (
        {"vmSize": "Standard_NC4as_T4_v3"},
        {"vmSize": "Standard_NC6s_v3"},
        "retired",
    ),
    "taints of a pool": (
        {"nodeTaints": ["everstep.dev/spot=true:NoSchedule"]},
        {"nodeTaints": ["everstep.dev/spot:NoSchedule"]},
        "key=value",
    ),
    "labels of a pool": (
        {"nodeLabels": {"kubernetes.azure.com/scalesetpriority": "spot"}},
        {"nodeLabels": {"kubernetes.azure.com/aks-local-ssd": "true"}},
        "reserves the prefix kubernetes.azure.com",
    ),
    "GPUs of a pool": (
        {"vmSize": "Standard_NC4as_T4_v3", "gpuProfile": {"driver": "Install"}},
        {"vmSize": "Standard_D4s_v5", "gpuProfile": {"driver": "Install"}},
        "no GPU",
    ),
    "zones of a pool": ({"availabilityZones": ["1"]}, {"availabilityZones": ["a"]}, "1, 2, 3"),
}

SECURITY_RULE = {
    "name": "a", "direction": "Inbound", "priority": 100, "sourceAddressPrefix": "*", "sourcePortRange": "*",
    "destinationAddressPrefix": "VirtualNetwork", "destinationPortRange": "22-23",
}  # fmt: skip
# rule -> (valid inputs, invalid inputs, part of the message)
RULES: dict[str, tuple[Object, Object, str]] = {
    **POOLS,
    **{f"inline: {name}": (pools(valid), pools(invalid), reason) for name, (valid, invalid, reason) in POOLS.items()},
    **{
        f"name in {name}": ({name: valid}, {name: invalid}, "is not a valid name")
        for name, valid, invalid in (
            ("resourceGroupName", "everstep-dev", "everstep dev"),
            ("virtualNetworkName", "everstep", "ever step"),
            ("subnetName", "nodes", "no/des"),
            ("natGatewayName", "everstep", "everstep-"),
            ("privateZoneName", "privatelink.eastus.azmk8s.io", "private zone"),
            ("routeTableName", "everstep", "everstep-"),
            ("publicIpAddressName", "everstep", "-everstep"),
            ("networkSecurityGroupName", "everstep", "ever step"),
            ("resourceName", "trainer", "trai ner"),
            ("federatedIdentityCredentialResourceName", "trainer", "trai ner"),
            ("accountName", "everstepdev", "everstep-dev"),
            ("containerName", "training", "training--data"),
            ("registryName", "everstep", "ever-step"),
            ("taskName", "sweep", "sw eep"),
            ("workspaceName", "everstep", "ever_step"),
            ("azureMonitorWorkspaceName", "everstep", "ever step"),
            ("dataCollectionEndpointName", "everstep", "ever step"),
            ("dataCollectionRuleName", "everstep", "ever step"),
        )
    },
    "blocks of a network": (
        {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}},
        {"addressSpace": {"addressPrefixes": ["10.0.0.1/16"]}},
        "valid CIDR",
    ),
    "block of an Azure subnet": (
        {"addressPrefix": "10.0.0.0/24"},
        {"addressPrefix": "10.0.0.0/30"},
        "smaller than /29",
    ),
    "blocks of an Azure subnet": (
        {"addressPrefixes": ["10.0.0.0/24"]}, {"addressPrefixes": ["10.0.0.0/30"]}, "smaller than /29",
    ),
    "addresses of a subnet": (
        {"addressPrefixes": ["10.0.0.0/24"]}, {"addressPrefixes": []}, "needs an address block",
    ),
    "address space of a network": (
        {"addressSpace": {"addressPrefixes": ["10.0.0.0/16", "10.1.0.0/16"]}},
        {"addressSpace": {"addressPrefixes": ["10.0.0.0/16", "10.0.1.0/24"]}},
        "overlaps",
    ),
    "zone of a gateway": (
        {"sku": {"name": "Standard"}, "zones": ["1"]},
        {"sku": {"name": "Standard"}, "zones": ["1", "2"]},
        "one zone",
    ),
    "addresses of a gateway": (
        {"publicIpAddresses": [{"id": "i"}] * 16}, {"publicIpAddresses": [{"id": "i"}] * 17}, "at most 16",
    ),
    "idle timeout of a gateway": (
        {"idleTimeoutInMinutes": 120}, {"idleTimeoutInMinutes": 121}, "4 to 120",
    ),
    "rules of a security group": (
        {"securityRules": [SECURITY_RULE, {**SECURITY_RULE, "name": "b", "direction": "Outbound"}]},
        {"securityRules": [SECURITY_RULE, {**SECURITY_RULE, "name": "b"}]},
        "two Inbound rules have the priority 100",
    ),
    "priority of a rule": (
        {"securityRules": [SECURITY_RULE]}, {"securityRules": [{**SECURITY_RULE, "priority": 99}]}, "100 to 4096",
    ),
    "sourcePortRange of a rule": (
        {"securityRules": [SECURITY_RULE]}, {"securityRules": [{"sourcePortRange": "ssh"}]}, "not a port",
    ),
    "sourcePortRanges of a rule": (
        {"securityRules": [{"sourcePortRanges": ["1-2"]}]}, {"securityRules": [{"sourcePortRanges": ["2-1"]}]},
        "not a port",
    ),
    "destinationPortRange of a rule": (
        {"securityRules": [SECURITY_RULE]}, {"securityRules": [{"destinationPortRange": "70000"}]}, "not a port",
    ),
    "destinationPortRanges of a rule": (
        {"securityRules": [{"destinationPortRanges": ["22"]}]},
        {"securityRules": [{"destinationPortRanges": ["22,23"]}]}, "not a port",
    ),
    "block of a route": (
        {"routes": [{"addressPrefix": "Storage"}]},
        {"routes": [{"addressPrefix": "10.0.0.1/16"}]},
        "valid CIDR",
    ),
    "next hop of a route": (
        {"routes": [{"nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.1.0.4"}]},
        {"routes": [{"nextHopType": "VirtualAppliance"}]},
        "needs its address",
    ),
    "SKU of a gateway": ({"sku": {"name": "Standard"}}, {}, "Standard"),
    "allocation of an address": (
        {"sku": {"name": "Standard"}, "publicIPAllocationMethod": "Static"},
        {"sku": {"name": "Standard"}, "publicIPAllocationMethod": "Dynamic"},
        "Static",
    ),
    "subject of a credential": (
        {"issuer": "https://i", "subject": "system:serviceaccount:elastic-job:trainer", "audiences": ["a"]},
        {"issuer": "https://i", "subject": "system:serviceaccount:trainer", "audiences": ["a"]},
        "NAMESPACE:NAME",
    ),
    "issuer of a credential": ({"issuer": "https://i"}, {"issuer": "http://i"}, "HTTPS"),
    "audience of a credential": ({"audiences": ["a"]}, {"audiences": ["a", "b"]}, "one audience"),
    "name of an assignment": (
        {"roleAssignmentName": GUID}, {"roleAssignmentName": "mine"}, "not a GUID",
    ),
    "principal id of an assignment": (
        {"principalId": GUID}, {"principalId": "me"}, "not a name or client id",
    ),
    "scope id of an assignment": ({"scope": RG}, {"scope": "g"}, "not an ARM id"),
    "role of an assignment": (
        {"principalId": GUID, "roleDefinitionId": NETWORK_ROLE},
        {"principalId": GUID, "roleDefinitionId": f"{ROLE}{GUID}"},
        "not a built-in role",
    ),
    "version of an AKS cluster": (
        {"kubernetesVersion": "1.36.2"},
        {"kubernetesVersion": "1.30"},
        "not offered",
    ),
    "version of a pool": ({"orchestratorVersion": "1.36"}, {"orchestratorVersion": "1.30"}, "not offered"),
    "name of an AKS cluster": ({"resourceName": "everstep"}, {"resourceName": "everstep-"}, "1 to 63"),
    "DNS prefix of an AKS cluster": ({"dnsPrefix": "everstep-dev"}, {"dnsPrefix": "everstep_dev-"}, "1 to 54"),
    "system pool of a cluster": (
        {"agentPoolProfiles": [{"name": "system", "mode": "System"}]},
        {"agentPoolProfiles": [{"name": "user", "mode": "User"}]},
        "mode System",
    ),
    "network of an AKS cluster": (
        {"networkProfile": {"podCidr": "10.244.0.0/16", "serviceCidr": "10.2.0.0/16"}},
        {"networkProfile": {"podCidr": "10.2.0.0/16", "serviceCidr": "10.2.0.0/16"}},
        "overlaps",
    ),
    "API access of an AKS cluster": (
        {"apiServerAccessProfile": {"authorizedIPRanges": ["203.0.113.0/24"]}},
        {"apiServerAccessProfile": {"authorizedIPRanges": ["203.0.113.0/24"], "enablePrivateCluster": True}},
        "private cluster",
    ),
    "DNS zone of an AKS cluster": (
        {"location": "eastus", "identity": {"type": "UserAssigned"}, **private_api(ZONE)},
        {"location": "westus", "identity": {"type": "UserAssigned"}, **private_api(ZONE)},
        "privatelink.westus",
    ),
    "proxy of an AKS cluster": (
        {"httpProxyConfig": {"httpProxy": "http://proxy:3128", "noProxy": [".corp.example.org"]}},
        {"httpProxyConfig": {"httpProxy": "http://proxy:3128", "noProxy": ["*.corp.example.org"]}},
        "wildcards",
    ),
    "location of a private zone": ({"location": "global"}, {"location": "eastus"}, "not one of"),
    "identities of an AKS cluster": (
        {"identity": {"type": "SystemAssigned"}},
        {"identity": {"type": "SystemAssigned"}, "securityProfile": {"workloadIdentity": {"enabled": True}}},
        "OIDC issuer",
    ),
    "name of the node resource group": (
        {"nodeResourceGroup": "nodes"}, {"nodeResourceGroup": "n" * 81}, "at most 80 are allowed",
    ),
    "data plane of an AKS cluster": (
        {"networkProfile": {"networkDataplane": "cilium", "networkPlugin": "azure"}},
        {"networkProfile": {"networkDataplane": "cilium", "networkPlugin": "kubenet"}},
        "plugin azure",
    ),
    "tier of an AKS cluster": (
        {"supportPlan": "AKSLongTermSupport", "sku": {"tier": "Premium"}},
        {"supportPlan": "AKSLongTermSupport", "sku": {"tier": "Standard"}},
        "Premium",
    ),
    "autoscaler of a cluster": (
        {"autoScalerProfile": {"scaleDownUnneededTime": "10m"}},
        {"autoScalerProfile": {"scaleDownUnneededTime": "10"}},
        "not a duration",
    ),
    "hours of a maintenance window": (
        {"configName": "default", "maintenanceWindow": {"durationHours": 4}},
        {"configName": "default", "maintenanceWindow": {"durationHours": 2}},
        "4 to 24",
    ),
    "name of a maintenance window": (
        {"configName": "default"}, {"configName": "sunday"}, "not one of",
    ),
    "start of a maintenance window": (
        {"maintenanceWindow": {"startTime": "02:00"}},
        {"maintenanceWindow": {"startTime": "2:00"}},
        "time of day",
    ),
    "kind of an account": (
        {"kind": "BlockBlobStorage", "sku": {"name": "Premium_LRS"}},
        {"kind": "BlockBlobStorage", "sku": {"name": "Standard_LRS"}},
        "premium",
    ),
    "NFS of an account": (
        {"enableNfsV3": True, "isHnsEnabled": True, "networkRuleSet": {"defaultAction": "Deny"}},
        {"enableNfsV3": True, "networkRuleSet": {"defaultAction": "Deny"}},
        "hierarchical namespace",
    ),
    "addresses of an account": (
        {"networkRuleSet": {"ipRules": [{"iPAddressOrRange": "203.0.113.0/24"}]}},
        {"networkRuleSet": {"ipRules": [{"iPAddressOrRange": "203.0.113.0/31"}]}},
        "individually",
    ),
    "name of a blob service": ({"blobServicesName": "default"}, {"blobServicesName": "mine"}, "default"),
    "name of a management policy": (
        {"managementPolicyName": "default"},
        {"managementPolicyName": "mine"},
        "default",
    ),
    "days of retention": (
        {"deleteRetentionPolicy": {"enabled": True, "days": 7}},
        {"deleteRetentionPolicy": {"enabled": True}},
        "number of days",
    ),
    "step of a task": (
        {"step": {"type": "EncodedTask", "encodedTaskContent": "djogMQ=="}},
        {"step": {"type": "Encoded"}},
        "not one of Docker, EncodedTask, FileTask",
    ),
    "tier of a registry": (
        {"sku": {"name": "Premium"}, "zoneRedundancy": "Enabled"},
        {"sku": {"name": "Standard"}, "zoneRedundancy": "Enabled"},
        "Premium",
    ),
    "retention of a workspace": (
        {"sku": {"name": "PerGB2018"}, "retentionInDays": 30},
        {"sku": {"name": "PerGB2018"}, "retentionInDays": 7},
        "30 to 730",
    ),
    "flows of a rule": (
        {"destinations": {"logAnalytics": [{"name": "l"}]}, "dataFlows": [{"destinations": ["l"]}]},
        {"destinations": {"logAnalytics": [{"name": "l"}]}, "dataFlows": [{"destinations": ["m"]}]},
        "not a destination",
    ),
    "endpoint of a rule": (
        {"dataSources": {"prometheusForwarder": [{}]}, "dataCollectionEndpointId": "e"},
        {"dataSources": {"prometheusForwarder": [{}]}},
        "missing",
    ),
    "target of a rule association": ({"dataCollectionRuleId": "r"}, {}, "exactly one of"),
    "amount of an Azure budget": ({"amount": 1}, {"amount": 0}, "more than 0"),
    "thresholds of an Azure budget": (
        {"notifications": {"n": {"threshold": 80}}}, {"notifications": {"n": {"threshold": -1}}}, "0 to",
    ),
    "notifications of an Azure budget": (
        {"notifications": {"n": {"contactEmails": ["a@b"]}}}, {"notifications": {"n": {}}}, "contact",
    ),
    "start of an Azure budget": (
        {"amount": 100, "timePeriod": {"startDate": "2026-11-01T00:00:00Z"}},
        {"amount": 100, "timePeriod": {"startDate": "2026-11-21T00:00:00Z"}},
        "first day of a month",
    ),
}  # fmt: skip


def resource(token: str, identity: str, inputs: Object, **outputs: object) -> Resource:
    return Resource(
        token=token, id=identity, urn=f"urn::{identity}", inputs=inputs, outputs=outputs
    )


def assignment(principal: str, role: str, scope: str) -> Resource:
    inputs = {"principalId": principal, "roleDefinitionId": role, "scope": scope}
    path = f"{scope}/providers/Microsoft.Authorization/roleAssignments/{GUID}"
    return resource(ASSIGNMENT, path, inputs)


def subnet(identity: str = NODES, **inputs: object) -> Resource:
    return resource(SUBNET, identity, {"addressPrefix": "10.0.0.0/24", **inputs})


def snapshot(size: str) -> Resource:
    """Return a snapshot of a pool with a VM size."""
    return resource(SNAPSHOT, SNAPSHOT_ID, {"location": "eastus"}, vmSize=size)


def routed(prefix: str, hop: str) -> list[Resource]:
    """Return a subnet with a route table that has one route."""
    routes = [{"addressPrefix": prefix, "nextHopType": hop}]
    return [subnet(routeTable={"id": ROUTES}), resource(ROUTE_TABLE, ROUTES, {"routes": routes})]


def cluster(version: str = "1.36.2", location: str = "eastus", **inputs: object) -> Resource:
    defaults = {
        "resourceName": "c",
        "location": location,
        "agentPoolProfiles": [{"name": "system", "vnetSubnetID": NODES}],
    }
    outputs = {"currentKubernetesVersion": version, "nodeResourceGroup": f"MC_g_c_{location}"}
    return resource(CLUSTER, AKS, {**defaults, **inputs}, **outputs)


def inputs_with_id(keys: str, names: str) -> Object:
    """Return inputs that give a resource an id in the group `g`; spaces separate the keys and the names."""
    return {"resourceGroupName": "g", **dict(zip(keys.split(), names.split(), strict=True))}


CONTROL_IDENTITY = resource(IDENTITY, CONTROL, {}, principalId="p", clientId="c")
KUBELET_IDENTITY = resource(IDENTITY, KUBELET, {}, principalId="kp", clientId="kc")
INLINE = {"agentPoolProfiles": [{"name": "system", "vnetSubnetID": NODES}]}
ROUTED = {**INLINE, "networkProfile": {"outboundType": "userDefinedRouting"}}
CLUSTER_INPUTS = {
    **INLINE,
    "identity": {"userAssignedIdentities": [CONTROL]},
    **inputs_with_id("resourceName", "c"),
}
KUBELET_CLUSTER = {
    **CLUSTER_INPUTS,
    "identityProfile": {"kubeletidentity": {"resourceId": KUBELET, "clientId": "kc"}},
}
POOL_INPUTS = inputs_with_id("resourceName agentPoolName", "c t4")
SNAPSHOT_POOL = {
    "vmSize": "Standard_NC4as_T4_v3",
    "creationData": {"sourceResourceId": SNAPSHOT_ID},
}
STANDARD_IP = resource(ADDRESS, f"{RG}/a", {"sku": {"name": "Standard"}})
BASIC_IP = resource(ADDRESS, f"{RG}/a", {"sku": {"name": "Basic"}})
GRANT_INPUTS = {
    "scope": RG,
    "principalId": "p",
    "roleDefinitionId": NETWORK_ROLE,
    "roleAssignmentName": "new",
}
THE_GROUP = resource(GROUP, RG, {})
CREDENTIALS = inputs_with_id(
    "resourceName federatedIdentityCredentialResourceName", "control trainer"
) | {
    "issuer": "https://i",
    "subject": "s",
}
OTHER_CREDENTIAL = resource(
    CREDENTIAL,
    f"{CONTROL}/federatedIdentityCredentials/other",
    {"issuer": "https://i", "subject": "s"},
)
RULESET = {"networkRuleSet": {"virtualNetworkRules": [{"virtualNetworkResourceId": NODES}]}}
BLOBS = inputs_with_id("accountName blobServicesName", "a default") | {"isVersioningEnabled": True}
STORAGE_ACCOUNT = f"{RG}/providers/Microsoft.Storage/storageAccounts/a"

# precondition -> (type, inputs, an account in which it holds, an account in which it fails, part of the message)
PRECONDITIONS: dict[str, tuple[str, Object, list[Resource], list[Resource], str]] = {
    "subnet in its network": (
        SUBNET, inputs_with_id("virtualNetworkName subnetName", "v nodes") | {"addressPrefix": "10.0.0.0/24"},
        [resource(NETWORK, VNET, {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}})],
        [resource(NETWORK, VNET, {"addressSpace": {"addressPrefixes": ["10.1.0.0/16"]}})], "is not in",
    ),
    "location of a subnet's associations": (
        SUBNET, inputs_with_id("virtualNetworkName subnetName", "v nodes") | {"natGateway": {"id": f"{RG}/n"}},
        [resource(NETWORK, VNET, {"location": "eastus"}), resource(GATEWAY, f"{RG}/n", {"location": "East US"})],
        [resource(NETWORK, VNET, {"location": "eastus"}), resource(GATEWAY, f"{RG}/n", {"location": "westus"})],
        "not in the same location",
    ),
    "one gateway per public address": (
        GATEWAY, {"publicIpAddresses": [{"id": f"{RG}/a"}]}, [],
        [resource(GATEWAY, f"{RG}/n", {"publicIpAddresses": [{"id": f"{RG}/A"}]})], "already used",
    ),
    "subnets of a network do not overlap": (
        SUBNET, inputs_with_id("virtualNetworkName subnetName", "v other") | {"addressPrefix": "10.0.0.0/25"},
        [subnet(addressPrefix="10.0.1.0/24")], [subnet(addressPrefix="10.0.0.0/24")], "/subnets/nodes",
    ),
    "subnets in the address space": (
        NETWORK, inputs_with_id("virtualNetworkName", "v") | {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}},
        [subnet()], [subnet(addressPrefix="10.1.0.0/24")], "nodes has 10.1.0.0/24",
    ),
    "address of a gateway": (
        GATEWAY, {"publicIpAddresses": [{"id": f"{RG}/a"}]}, [STANDARD_IP], [BASIC_IP], "Standard",
    ),
    "credentials of an identity": (CREDENTIAL, CREDENTIALS, [], [OTHER_CREDENTIAL], "already"),
    "scope of an assignment": (ASSIGNMENT, GRANT_INPUTS, [THE_GROUP], [], "does not exist"),
    "principal of an assignment": (ASSIGNMENT, GRANT_INPUTS, [CONTROL_IDENTITY], [], "does not exist in the directory"),
    "one assignment of a role": (ASSIGNMENT, GRANT_INPUTS, [], [assignment("p", NETWORK_ROLE, RG)], "already exists"),
    "NAT gateway of a cluster": (
        CLUSTER, {**INLINE, "networkProfile": {"outboundType": "userAssignedNATGateway"}},
        [subnet(natGateway={"id": "n"})], [subnet()], "no NAT gateway",
    ),
    "route table of a cluster": (
        CLUSTER, ROUTED, [subnet(routeTable={"id": ROUTES})], [subnet()], "no route table",
    ),
    "default route of a cluster": (
        CLUSTER, ROUTED, routed("0.0.0.0/0", "VirtualAppliance"),
        routed("10.0.0.0/8", "VirtualAppliance"), "0.0.0.0/0 missing",
    ),
    "next hop of a cluster's egress": (
        CLUSTER, ROUTED, routed("0.0.0.0/0", "VirtualNetworkGateway"),
        routed("0.0.0.0/0", "Internet"), "next hop of Internet",
    ),
    "Services outside the nodes' network": (
        CLUSTER, INLINE, [subnet(addressPrefix="10.1.0.0/24"), subnet(f"{VNET}2/subnets/other")],
        [subnet(addressPrefix="10.1.0.0/24"), subnet(f"{VNET}/subnets/other")],
        "service CIDR 10.0.0.0/16 is conflicted with an existing subnet CIDR 10.0.0.0/24",
    ),
    "pods outside the nodes' network": (
        CLUSTER, INLINE, [resource(NETWORK, VNET, {"addressSpace": {"addressPrefixes": ["10.240.0.0/16"]}})],
        [resource(NETWORK, VNET, {"addressSpace": {"addressPrefixes": ["10.240.0.0/12"]}})],
        "CIDR 10.244.0.0/16 overlaps with reserved VNET CIDR 10.240.0.0/12",
    ),
    "addresses of a cluster": (
        CLUSTER, {**CLUSTER_INPUTS, "agentPoolProfiles": [{"name": "system", "count": 8, "vnetSubnetID": NODES}]},
        [subnet(addressPrefix="10.1.0.0/28")], [subnet(addressPrefix="10.1.0.0/29")],
        "Pre-allocated IPs 9 exceeds IPs available 3 in Subnet Cidr 10.1.0.0/29, Subnet Name nodes",
    ),
    "addresses of a pool": (
        POOL, {**POOL_INPUTS, "enableAutoScaling": True, "maxCount": 6, "vnetSubnetID": NODES},
        [cluster(), subnet(addressPrefix="10.1.0.0/28")], [cluster(), subnet(addressPrefix="10.1.0.0/29")],
        "Pre-allocated IPs 9 exceeds IPs available 3",
    ),
    "cluster joins its subnet": (
        CLUSTER, CLUSTER_INPUTS, [CONTROL_IDENTITY, assignment("p", NETWORK_ROLE, NODES)],
        [CONTROL_IDENTITY], "Network Contributor",
    ),
    "cluster writes its DNS zone": (
        CLUSTER, {**CLUSTER_INPUTS, **private_api(ZONE)},
        [CONTROL_IDENTITY, assignment("p", DNS_ROLE, ZONE), assignment("p", NETWORK_ROLE, VNET)],
        [CONTROL_IDENTITY, assignment("p", DNS_ROLE, ZONE), assignment("p", NETWORK_ROLE, NODES)],
        "Network Contributor on",
    ),
    "cluster assigns the kubelet's identity": (
        CLUSTER, KUBELET_CLUSTER, [CONTROL_IDENTITY, KUBELET_IDENTITY, assignment("p", OPERATOR_ROLE, KUBELET)],
        [CONTROL_IDENTITY, KUBELET_IDENTITY], "Identity Operator",
    ),
    "kubelet's identity consistent": (
        CLUSTER, KUBELET_CLUSTER, [KUBELET_IDENTITY],
        [resource(IDENTITY, KUBELET, {}, principalId="kp", clientId="x")], "does not belong to",
    ),
    "version of a pool and its control plane": (
        POOL, {**POOL_INPUTS, "orchestratorVersion": "1.36"}, [cluster()], [cluster("1.35.5")], "incompatible",
    ),
    "pool name not inline": (
        POOL, POOL_INPUTS, [cluster()], [cluster(agentPoolProfiles=[{"name": "t4"}])], "inline pool",
    ),
    "pool in the cluster's network": (
        POOL, {**POOL_INPUTS, "vnetSubnetID": NODES}, [cluster()],
        [cluster(agentPoolProfiles=[{"name": "system", "vnetSubnetID": OTHER_NODES}])], "virtual network",
    ),
    "snapshot of a pool": (
        POOL, {**POOL_INPUTS, **SNAPSHOT_POOL},
        [cluster(), snapshot("Standard_NC24ads_A100_v4")], [cluster(), snapshot("Standard_D4s_v5")],
        "another series than",
    ),
    "snapshots of inline pools": (
        CLUSTER, {**inputs_with_id("resourceName", "c"), "location": "eastus", **pools(SNAPSHOT_POOL)},
        [snapshot("Standard_NC24ads_A100_v4")], [snapshot("Standard_D4s_v5")], "another series than",
    ),
    "pool's location has zones": (
        POOL, {**POOL_INPUTS, "availabilityZones": ["1"]},
        [cluster()], [cluster(location="westus")], "no availability zones",
    ),
    "subnets of an account": (
        ACCOUNT, {**RULESET, **inputs_with_id("accountName", "a")},
        [subnet(serviceEndpoints=[{"service": "Microsoft.Storage"}])], [subnet()], "no service endpoint",
    ),
    "anonymous access to blobs": (
        CONTAINER, inputs_with_id("accountName containerName", "a blobs") | {"publicAccess": "Blob"},
        [resource(ACCOUNT, STORAGE_ACCOUNT, {"allowBlobPublicAccess": True})],
        [resource(ACCOUNT, STORAGE_ACCOUNT, {})], "not permitted",
    ),
    "versions of blobs": (
        SERVICE, BLOBS, [resource(ACCOUNT, STORAGE_ACCOUNT, {})],
        [resource(ACCOUNT, STORAGE_ACCOUNT, {"isHnsEnabled": True})], "hierarchical",
    ),
    "resource of an association": (RULE_ASSOCIATION, {"resourceUri": AKS}, [cluster()], [], "does not exist"),
    "scope of a budget": (BUDGET, {"scope": RG}, [THE_GROUP], [], "does not exist"),
}  # fmt: skip
# Both preconditions are the same function; test_aks_rules.py tests an inline pool, whose location is an input.
PRECONDITIONS["location has zones"] = PRECONDITIONS["pool's location has zones"]
NEVER_HOLDS: set[str] = set()
CHANGE_RULES = {  # see test_changes.py
    "upgrade by one minor version", "inline pools unchanged", "pool unchanged",
    "versions of inline pools", "number of nodes of a new pool", "number of nodes of new inline pools",
    "version skew of node pools", "no version downgrade of a pool", "start of a budget",
    "zones of an account",
}  # fmt: skip
ACCOUNTS = {
    name: (Inventory(tuple(holding)), Inventory(tuple(violating)))
    for name, (_, _, holding, violating, _) in PRECONDITIONS.items()
}
