"""The Azure RBAC actions by which Pulumi creates, reads, changes and deletes each type of Azure resource.

The table covers only the types that a stack declares. Source: Azure permissions reference (learn.microsoft.com,
"Azure resource provider operations") and "Service principal and identity permissions" of AKS, 2026-11-23.
"""

from collections.abc import Mapping

ALWAYS = ("Microsoft.Resources/subscriptions/resourceGroups/read",)
"""Actions of the provider itself."""

ASSIGNMENT = "azure-native:authorization:RoleAssignment"
BUDGET = "azure-native:consumption:Budget"
CONTAINER = "azure-native:storage:BlobContainer"

JOIN_SUBNET = "Microsoft.Network/virtualNetworks/subnets/join/action"
JOIN_FOR_STORAGE = "Microsoft.Network/virtualNetworks/subnets/joinViaServiceEndpoint/action"
"""Action that a network rule of a storage account needs on the subnet that it allows."""

KINDS: Mapping[str, str] = {
    ASSIGNMENT: "Microsoft.Authorization/roleAssignments",
    BUDGET: "Microsoft.Consumption/budgets",
    "azure-native:containerregistry:Registry": "Microsoft.ContainerRegistry/registries",
    "azure-native:containerregistry:Task": "Microsoft.ContainerRegistry/registries/tasks",
    "azure-native:containerservice:AgentPool": "Microsoft.ContainerService/managedClusters/agentPools",
    "azure-native:containerservice:MaintenanceConfiguration": (
        "Microsoft.ContainerService/managedClusters/maintenanceConfigurations"
    ),
    "azure-native:containerservice:ManagedCluster": "Microsoft.ContainerService/managedClusters",
    "azure-native:managedidentity:FederatedIdentityCredential": (
        "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials"
    ),
    "azure-native:managedidentity:UserAssignedIdentity": (
        "Microsoft.ManagedIdentity/userAssignedIdentities"
    ),
    "azure-native:monitor:AzureMonitorWorkspace": "Microsoft.Monitor/accounts",
    "azure-native:monitor:DataCollectionEndpoint": "Microsoft.Insights/dataCollectionEndpoints",
    "azure-native:monitor:DataCollectionRule": "Microsoft.Insights/dataCollectionRules",
    "azure-native:monitor:DataCollectionRuleAssociation": (
        "Microsoft.Insights/dataCollectionRuleAssociations"
    ),
    "azure-native:network:NatGateway": "Microsoft.Network/natGateways",
    "azure-native:network:PublicIPAddress": "Microsoft.Network/publicIPAddresses",
    "azure-native:network:RouteTable": "Microsoft.Network/routeTables",
    "azure-native:network:Subnet": "Microsoft.Network/virtualNetworks/subnets",
    "azure-native:network:VirtualNetwork": "Microsoft.Network/virtualNetworks",
    "azure-native:operationalinsights:Workspace": "Microsoft.OperationalInsights/workspaces",
    "azure-native:resources:ResourceGroup": "Microsoft.Resources/subscriptions/resourceGroups",
    CONTAINER: "Microsoft.Storage/storageAccounts/blobServices/containers",
    "azure-native:storage:BlobServiceProperties": "Microsoft.Storage/storageAccounts/blobServices",
    "azure-native:storage:StorageAccount": "Microsoft.Storage/storageAccounts",
}
"""Type of resource -> its type in Resource Manager."""

FURTHER_ACTIONS: Mapping[str, tuple[str, ...]] = {
    # AKS checks the caller's permission on what it links to the cluster.
    "azure-native:containerservice:AgentPool": (JOIN_SUBNET,),
    "azure-native:containerservice:ManagedCluster": (
        "Microsoft.ContainerService/managedClusters/listClusterUserCredential/action",
        "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
        JOIN_SUBNET,
        # With Container Insights, AKS reads the key of the workspace as the caller. Source: AKS, "Service
        # permissions"; azure-cli #22232, Azure/AKS #499.
        "Microsoft.OperationalInsights/workspaces/sharedkeys/read",
    ),
    "azure-native:network:NatGateway": ("Microsoft.Network/publicIPAddresses/join/action",),
    "azure-native:network:Subnet": (
        "Microsoft.Network/natGateways/join/action",
        "Microsoft.Network/routeTables/join/action",
    ),
    "azure-native:storage:StorageAccount": (JOIN_FOR_STORAGE,),
}
"""Type of resource -> actions besides reading, writing and deleting it."""

PUSH = (
    "Microsoft.ContainerRegistry/registries/pull/read",
    "Microsoft.ContainerRegistry/registries/push/write",
)
"""Actions of a push; the role AcrPush has them. Source: Azure built-in roles, Containers, 2026-11-25."""

STATE = (
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete",
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write",
    "Microsoft.Storage/storageAccounts/blobServices/containers/read",
)
"""Actions on the container of the state; the role Storage Blob Data Contributor has them. All but the last are
dataActions."""

STATE_KEY = (
    "Microsoft.KeyVault/vaults/keys/decrypt/action",
    "Microsoft.KeyVault/vaults/keys/encrypt/action",
    "Microsoft.KeyVault/vaults/keys/read",
)
"""Actions on the key of the stack's secrets, all dataActions; the role Key Vault Crypto User has them."""

DOCTOR = (
    "Microsoft.Authorization/permissions/read",
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/skus/read",
    "Microsoft.ContainerRegistry/checkNameAvailability/read",
    "Microsoft.ContainerRegistry/registries/metadata/read",
    "Microsoft.ContainerService/locations/kubernetesVersions/read",
    "Microsoft.KeyVault/deletedVaults/read",
    "Microsoft.Resources/subscriptions/providers/read",
    "Microsoft.Resources/subscriptions/read",
    "Microsoft.Storage/checknameavailability/read",
)
"""Actions of `everstep doctor` in addition to the actions on resources; it also reads groups from Microsoft Graph."""

TASKS: Mapping[str, tuple[str, ...]] = {
    "`everstep images push`, on the registry": PUSH,
    "the state, on its container": STATE,
    "the stack's secrets, on their key": STATE_KEY,
    "`everstep doctor`": DOCTOR,
}
"""Task other than managing a stack's resources -> actions."""

UNDELETABLE_TYPES = frozenset({"azure-native:storage:BlobServiceProperties"})
"""Types without an action that deletes them: they exist as long as their parent."""


def actions_of(token: str) -> tuple[str, ...]:
    """Return the actions of a type of resource; none for an unknown type."""
    kind = KINDS.get(token)
    if kind is None:
        return ()
    verbs = ("read", "write") if token in UNDELETABLE_TYPES else ("read", "write", "delete")
    return tuple(sorted({*(f"{kind}/{verb}" for verb in verbs), *FURTHER_ACTIONS.get(token, ())}))


def all_actions() -> list[str]:
    """Return every action that a stack may need, sorted."""
    return sorted({*ALWAYS, *(action for token in KINDS for action in actions_of(token))})
