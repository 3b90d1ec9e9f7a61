"""Registries of an Azure subscription, and whether the nodes of its clusters may pull. Pure.

Source: Azure Container Registry documentation, "Authenticate with Azure Container Registry from AKS": the kubelet's
identity needs the role AcrPull on the registry.
"""

from cloudtwin.providers.azure.identity import ACR_PULL, CLUSTER, granted_roles
from cloudtwin.providers.azure.storage import REGISTRY
from cloudtwin.providers.conditions import section
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.registries import PrivateRegistry

USER = "00000000-0000-0000-0000-000000000000"  # user name of a token login


def registries(account: Inventory) -> dict[str, PrivateRegistry]:
    """Return the registries by their hosts; a push creates a repository."""
    return {
        str(registry.outputs["loginServer"]): PrivateRegistry(
            id=str(registry.inputs["registryName"]),
            user=USER,
            nodes_may_pull=_may_pull(account, registry),
            repositories=None,
        )
        for registry in account.all(REGISTRY)
    }


def _may_pull(account: Inventory, registry: Resource) -> bool:
    kubelets = {
        str(section(cluster.outputs, "identityProfile", "kubeletidentity").get("objectId"))
        for cluster in account.all(CLUSTER)
    }
    return any(ACR_PULL in granted_roles(account, kubelet, registry.id) for kubelet in kubelets)
