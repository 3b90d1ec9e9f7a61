"""Azure, whole: network, cluster, Blob volume, registry and budget, as one `Environment`.

Volume and registry come after the cluster's identities and issuer but beside its pools, so that
creation takes no longer than the cluster alone; all that is in the cluster waits for all of them
and goes first.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pulumi
import pulumi_azure_native as azure_native

from components.cluster.aks import AksCluster, AksClusterArgs
from components.config import AksConfig, BlobConfig, StackConfig, as_kind
from components.environment import Environment
from components.network.vnet import Vnet, VnetArgs
from components.part import Part
from components.storage.blob import BlobArgs, BlobStorage

if TYPE_CHECKING:
    from components.registry.acr import AzureRegistry


def declare_aks(config: StackConfig, stack: str) -> Environment:
    """Declare everything on Azure that the stack's configuration asks for.

    Args:
        config: the whole configuration, checked; its cluster is an `aks` one.
        stack: the stack's name.
    """
    return Aks("aks", config, stack).environment


class Aks(Part):
    """All that a stack has on Azure, through one provider."""

    environment: Environment

    def __init__(
        self,
        name: str,
        config: StackConfig,
        stack: str,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("environment:Aks", name, opts)
        self._config, self._stack = config, stack
        self._said = as_kind(config.cluster, AksConfig)
        self._tags = config.tags_for(stack)
        self._provider = azure_native.Provider(
            f"{name}-azure", location=self._said.location, opts=self.child()
        )
        self._vnet = self._declare_vnet()
        self._cluster = self._declare_cluster()
        self._blob = self._declare_blob()
        registry = self._declare_registry()
        self._declare_budget()
        self.environment = Environment(
            cluster=self._cluster.cluster,
            volume=self._blob.volume,
            registry=registry.host if registry else None,
            outputs={
                "resourceGroup": self._vnet.group,
                "nodeResourceGroup": self._cluster.node_group,
                "storageAccount": self._blob.account,
            },
        )
        self.register_outputs({})

    def _part(self) -> pulumi.ResourceOptions:
        """Give the options of a part that is on Azure."""
        return pulumi.ResourceOptions.merge(
            self.child(), pulumi.ResourceOptions(provider=self._provider)
        )

    def _declare_vnet(self) -> Vnet:
        args = VnetArgs(
            config=self._said, stack=self._stack, tags=self._tags, protect=self._config.protect
        )
        return Vnet(f"{self.name}-network", args, self._part())

    def _declare_cluster(self) -> AksCluster:
        args = AksClusterArgs(
            config=self._said,
            stack=self._stack,
            vnet=self._vnet,
            tags=self._tags,
            protect=self._config.protect,
        )
        return AksCluster(f"{self.name}-cluster", args, self._part())

    def _declare_blob(self) -> BlobStorage:
        args = BlobArgs(
            config=as_kind(self._config.storage, BlobConfig),
            cluster_name=self._said.name,
            location=self._said.location,
            group=self._vnet.group,
            group_id=self._vnet.group_id,
            subnet_id=self._vnet.subnet_id,
            issuer=self._cluster.issuer,
            visitors=self._said.authorized_ranges,
            tags=self._tags,
            protect=self._config.protect,
        )
        return BlobStorage(f"{self.name}-blob", args, self._part())

    def _declare_registry(self) -> "AzureRegistry | None":
        if self._config.registry.kind != "acr":
            return None
        from components.registry.acr import AcrArgs, AzureRegistry

        args = AcrArgs(
            config=self._config.registry,
            group=self._vnet.group,
            location=self._said.location,
            kubelet_id=self._cluster.kubelet_id,
            tags=self._tags,
        )
        return AzureRegistry(f"{self.name}-registry", args, self._part())

    def _declare_budget(self) -> None:
        if self._config.cost.budget is None:
            return
        from components.budget.azure import AzureBudget, AzureBudgetArgs

        args = AzureBudgetArgs(
            config=self._config.cost.budget,
            cluster_name=self._said.name,
            stack=self._stack,
            group=self._vnet.group,
            group_id=self._vnet.group_id,
            node_group=self._cluster.node_group,
            today=datetime.now(UTC).date(),
        )
        AzureBudget(f"{self.name}-budget", args, self._part())
