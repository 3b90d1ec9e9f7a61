"""The twin's accounts: IDs and names that the stored resources, the machines and the clouds' messages share. Pure."""

MAX_LABEL = 63  # characters of a label's value; LabelValueMaxLength in k8s.io/apimachinery/pkg/util/validation
AWS_ACCOUNT = "123456789012"  # the account of AWS's own examples
AZURE_SUBSCRIPTION = "00000000-0000-4000-8000-000000000000"


def node_resource_group(group: str, cluster: str, location: str) -> str:
    """Return the default name of an AKS cluster's node resource group.

    Source: AKS documentation, "Frequently asked questions", two resource groups, 2026-11-27.
    """
    return f"MC_{group}_{cluster}_{location}"


def cluster_label(group: str) -> str:
    """Return the value of an AKS node's label `kubernetes.azure.com/cluster`: its resource group as a label value.

    Source: normalizeResourceGroupNameForLabel in github.com/Azure/AgentBaker, 2026-11-27.
    """
    value = group.replace("(", "-").replace(")", "-")[:MAX_LABEL]
    return f"{value[: MAX_LABEL - 1]}z" if value.endswith(("-", "_", ".")) else value


def scale_set(pool: str) -> str:
    """Return the name of the scale set of an AKS pool."""
    return f"aks-{pool}-00000000-vmss"
