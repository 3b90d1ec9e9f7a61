"""The environment on Azure: network, cluster, storage, nodes, registry and budget.

Each resource waits for everything to its left when it is created; the order of deletion is the reverse:

    network -> control plane -> access -> objects in the cluster
            -> storage, registry --------------^
                             -> GPU pools

Storage and registry are created at the same time as the cluster; only a federated credential of the storage needs
the issuer of the cluster, and the pull role of the registry needs the identity of the nodes. Objects in the cluster
wait for their provider, which waits for roles: the deletion of an object with a finalizer needs a role. No resource
waits for GPU pools: while the cloud has no capacity for them, all other resources exist, and the job waits for the
autoscaler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pulumi
import pulumi_azure_native as azure_native
import pulumi_kubernetes as kubernetes

from components.azure import profiles
from components.azure.aliases import without_api_versions
from components.azure.blob import BlobArgs, BlobStorage
from components.azure.cluster import AksCluster, AksClusterArgs
from components.azure.data_access import AksDataAccess, AksDataAccessArgs
from components.azure.network import Vnet, VnetArgs
from components.azure.node_pools import (
    GPU_PLACEMENT,
    SYSTEM_PLACEMENT,
    AksNodePools,
    AksNodePoolsArgs,
    priorities,
)
from components.component import Component
from components.config import AksConfig, BlobConfig, StackConfig, as_kind
from components.interface import DATA_ACCOUNT, Cluster, DataAccess, Environment
from everstep.catalog.names import TRAINER_SERVICE_ACCOUNT

if TYPE_CHECKING:
    from components.azure.registry import AzureRegistry


@dataclass(frozen=True, kw_only=True)
class AksEnvironmentArgs:
    """Arguments of an AksEnvironment.

    Attributes:
        config: the whole validated configuration; `cluster` is of kind aks, `storage` of kind blob.
        stack: name of the stack, for tags and for names that are unique in a subscription.
        subnet_id: an existing subnet, such as another stack's, with an egress route and a service
            endpoint for storage; None: the subnet of the configuration.
        registry_only: whether to declare only the network and the registry, for images that are pushed before
            the first `up`.
    """

    config: StackConfig
    stack: str
    subnet_id: pulumi.Input[str] | None = None
    registry_only: bool = False


class AksEnvironment(Component):
    """All resources of a stack on Azure, through one provider.

    Attributes:
        environment: the cluster and volume, for a TrainingStack; not set with `registry_only`.
        registry: host of the registry; None if there is none.
    """

    environment: Environment
    registry: pulumi.Output[str] | None

    def __init__(
        self, name: str, args: AksEnvironmentArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        inherited = pulumi.ResourceOptions(transformations=[without_api_versions])
        super().__init__("environment:Aks", name, pulumi.ResourceOptions.merge(opts, inherited))
        self._args, self._config = args, args.config
        self._cluster_config = as_kind(args.config.cluster, AksConfig)
        self._tags: Mapping[str, str] = args.config.tags_for(args.stack)
        self._azure = self._declare_provider()
        self._network = self._declare_network()
        if args.registry_only:
            registry = self._declare_registry(None)
            self.registry = registry.host if registry else None
            self.register_outputs({})
            return
        self._cluster = self._declare_cluster()
        self._storage = self._declare_storage()
        self._data_access = self._declare_data_access()
        self._declare_nodes()
        registry = self._declare_registry(self._cluster.kubelet_id)
        self.registry = registry.host if registry else None
        self._kubeconfig = self._cluster.kubeconfig(self._cluster.access)
        self._kubernetes = self._connect([registry] if registry else [])
        self._declare_priorities()
        self._declare_scraping()
        self._declare_budget()
        self.environment = self._describe()
        self.register_outputs({})

    def _declare_provider(self) -> azure_native.Provider:
        config = self._cluster_config
        return azure_native.Provider(
            f"{self.name}-azure",
            location=config.location,
            subscription_id=config.subscription,
            opts=self.child(),
        )

    def _azure_options(self) -> pulumi.ResourceOptions:
        """Return the options of a component that uses the Azure provider."""
        opts = pulumi.ResourceOptions(provider=self._azure)
        return pulumi.ResourceOptions.merge(self.child(), opts)

    def _declare_network(self) -> Vnet:
        config = self._cluster_config
        args = VnetArgs(
            name=config.name,
            stack=self._args.stack,
            location=config.location,
            cidr=config.network.cidr,
            resource_group=config.resource_group,
            subnet_id=self._args.subnet_id or config.network.subnet_id,
            firewall_ip=config.network.firewall_ip,
            tags=self._tags,
            protect=self._config.protect,
        )
        return Vnet(f"{self.name}-network", args, self._azure_options())

    def _declare_cluster(self) -> AksCluster:
        args = AksClusterArgs(
            config=self._cluster_config,
            stack=self._args.stack,
            group=self._network.group,
            subnet_id=self._network.subnet_id,
            egress=self._network.egress,
            prerequisites=self._network.prerequisites,
            tags=self._tags,
            protect=self._config.protect,
        )
        return AksCluster(f"{self.name}-cluster", args, self._azure_options())

    def _declare_storage(self) -> BlobStorage:
        args = BlobArgs(
            config=as_kind(self._config.storage, BlobConfig),
            cluster=self._cluster_config.name,
            location=self._cluster_config.location,
            group=self._network.group,
            group_id=self._network.group_id,
            subnet_id=self._network.subnet_id,
            issuer=self._cluster.issuer,
            user_ranges=self._cluster_config.authorized_ranges,
            tags=self._tags,
            service_accounts=self._mounting_accounts(),
            protect=self._config.protect,
        )
        return BlobStorage(f"{self.name}-blob", args, self._azure_options())

    def _mounting_accounts(self) -> tuple[str, ...]:
        """Return the ServiceAccounts of pods that mount the volume: the data preparation may have its own."""
        origin = self._config.data.origin
        has_own_account = origin is not None and origin.kind == "az"
        return (TRAINER_SERVICE_ACCOUNT, *((DATA_ACCOUNT,) if has_own_account else ()))

    def _declare_data_access(self) -> DataAccess | None:
        """Declare the identity that reads photographs or shards, if the configuration names a container."""
        data, config = self._config.data, self._cluster_config
        section = data.cache or data
        origin = section.origin
        if origin is None or origin.kind != "az":
            return None
        proxy = config.network.proxy
        args = AksDataAccessArgs(
            cluster=config.name,
            location=config.location,
            group=self._network.group,
            issuer=self._cluster.issuer,
            account=origin.account,
            account_group=section.source_resource_group or self._network.group,
            container=origin.bucket,
            service_account=TRAINER_SERVICE_ACCOUNT if data.cache else DATA_ACCOUNT,
            identity=self._storage.identity if data.cache else None,
            proxy_port=urlsplit(proxy.for_https).port if proxy else None,
            tags=self._tags,
        )
        return AksDataAccess(f"{self.name}-data", args, self._azure_options()).access

    def _declare_nodes(self) -> None:
        args = AksNodePoolsArgs(
            config=self._cluster_config,
            group=self._network.group,
            cluster_name=self._cluster.cluster.name,
            subnet_id=self._network.subnet_id,
            tags=self._tags,
        )
        AksNodePools(f"{self._cluster.name}-pools", args, self._cluster.child())

    def _connect(self, registry: Sequence[pulumi.Resource]) -> kubernetes.Provider:
        """Declare the Kubernetes provider; objects created through it wait for roles.

        Args:
            registry: the registry with the role that lets nodes pull; empty if there is none.
        """
        return kubernetes.Provider(
            f"{self._cluster.name}-kubernetes",
            kubeconfig=self._kubeconfig,
            cluster_identifier=self._cluster.cluster.id,  # a new kubeconfig replaces no objects
            opts=self._cluster.child(depends_on=[*self._cluster.access, *registry]),
        )

    def _declare_priorities(self) -> None:
        """Declare the order in which the autoscaler tries pools, in the ConfigMap that it reads."""
        config = self._cluster_config
        if not (config.autoscaling.enabled and profiles.has_several_gpu_pools(config)):
            return
        data = {"priorities": priorities(config.pools)}
        self._declare_settings("priorities", "cluster-autoscaler-priority-expander", data)

    def _declare_scraping(self) -> None:
        """Declare the scrape jobs of Azure Monitor's agent, in the ConfigMap that it reads."""
        if not self._cluster_config.monitoring.job_metrics:
            return
        from components.azure.monitoring import SCRAPE_CONFIG_MAP, scrape_config

        settings = scrape_config(self._config.platform.monitoring.scrape_seconds)
        self._declare_settings("scraping", SCRAPE_CONFIG_MAP, settings)

    def _declare_settings(self, key: str, name: str, data: Mapping[str, str]) -> None:
        """Declare a ConfigMap that an AKS add-on reads."""
        kubernetes.core.v1.ConfigMap(
            f"{self._cluster.name}-{key}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=name, namespace="kube-system"),
            data=data,
            opts=pulumi.ResourceOptions.merge(
                self._cluster.child(delete_before_replace=True),
                pulumi.ResourceOptions(provider=self._kubernetes),
            ),
        )

    def _declare_registry(self, kubelet_id: pulumi.Input[str] | None) -> "AzureRegistry | None":
        if self._config.registry.kind != "acr":
            return None
        from components.azure.registry import AzureRegistry, AzureRegistryArgs

        args = AzureRegistryArgs(
            config=self._config.registry,
            group=self._network.group,
            location=self._cluster_config.location,
            kubelet_id=kubelet_id,
            # The next `up` after a teardown needs the images that the stack file names.
            protect=self._config.protect or as_kind(self._config.storage, BlobConfig).keep,
            tags=self._tags,
        )
        return AzureRegistry(f"{self.name}-registry", args, self._azure_options())

    def _declare_budget(self) -> None:
        if self._config.cost.budget is None:
            return
        from components.azure.budget import AzureBudget, AzureBudgetArgs

        args = AzureBudgetArgs(
            config=self._config.cost.budget,
            cluster=self._cluster_config.name,
            stack=self._args.stack,
            group=self._network.group,
            group_id=self._network.group_id,
            node_group=self._cluster.node_group,
            today=datetime.now(UTC).date(),
        )
        AzureBudget(f"{self.name}-budget", args, self._azure_options())

    def _describe(self) -> Environment:
        config, zones = self._cluster_config, self._cluster_config.gpu_zones
        return Environment(
            cluster=Cluster(
                provider=self._kubernetes,
                gpu_pool=GPU_PLACEMENT,
                system_pool=SYSTEM_PLACEMENT,
                kubeconfig=self._kubeconfig,
                region=config.location,
                zone=zones[0] if len(zones) == 1 else None,
                gpu_zones=[config.zone_label(zone) for zone in zones] if config.gpu_pools else (),
                name=self._cluster.cluster.name,
                identifier=self._cluster.cluster.id,
                endpoint=self._cluster.endpoint,
                scales_from_zero=config.autoscaling.enabled,
            ),
            volume=self._storage.volume,
            registry=self.registry,
            data_access=self._data_access,
            outputs={
                "resourceGroup": self._network.group,
                "nodeResourceGroup": self._cluster.node_group,
                "storageAccount": self._storage.account,
            },
        )
