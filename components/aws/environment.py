"""The environment on AWS: network, cluster, storage, nodes, registry and budget.

Each resource waits for everything to its left when it is created; the order of deletion is the reverse:

    network -> control plane -> network add-ons -> system nodes -> other add-ons -> objects in the cluster
            -> file system ------------------------------------------^
                                                -> GPU nodes

Objects in the cluster wait for their provider, which depends on system nodes, add-ons, routes and access
entries. Pods therefore unmount the volume before the file system is deleted, and the network plugin outlives
the nodes whose interfaces it created. No resource waits for GPU nodes: while the cloud has no capacity for
them, all other resources exist, and the job waits for the autoscaler.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_aws
import pulumi_kubernetes as kubernetes
from cloudfacts.aws import INSTANCE_TYPES

from components.aws import proxy
from components.aws.addons import (
    ADDONS_AFTER_NODES,
    ADDONS_BEFORE_NODES,
    FSX,
    NETWORK,
    AddonIdentity,
    EksAddons,
    EksAddonsArgs,
    csi_identity,
    network_identity,
)
from components.aws.autoscaler import EksAutoscaler, EksAutoscalerArgs, priorities
from components.aws.cluster import EksCluster, EksClusterArgs
from components.aws.data_access import EksDataAccess, EksDataAccessArgs
from components.aws.fsx import Fsx, FsxArgs
from components.aws.iam import with_account_rules
from components.aws.network import ExistingVpc, Vpc, VpcArgs
from components.aws.node_groups import (
    GPU_PLACEMENT,
    SYSTEM_PLACEMENT,
    EksNodeGroups,
    EksNodeGroupsArgs,
    gpu_pools,
    system_pool,
)
from components.component import Component
from components.config import EksConfig, FsxConfig, StackConfig, as_kind
from components.interface import DATA_ACCOUNT, Cluster, DataAccess, Environment
from components.platform.monitoring import rule_groups
from everstep.catalog.names import TRAINER_SERVICE_ACCOUNT

if TYPE_CHECKING:
    from components.aws.metrics_agent import EksMetricsAgent


@dataclass(frozen=True, kw_only=True)
class EksEnvironmentArgs:
    """Arguments of an EksEnvironment.

    Attributes:
        config: the whole validated configuration; `cluster` is of kind eks, `storage` of kind fsx.
        stack: name of the stack, for tags and for names that are unique in an account.
        vpc: an existing VPC, such as another stack's; None: the VPC of the configuration.
        registry_only: whether to declare only the registry, for images that are pushed before the first `up`.
    """

    config: StackConfig
    stack: str
    vpc: ExistingVpc | None = None
    registry_only: bool = False


class EksEnvironment(Component):
    """All resources of a stack on AWS, through one provider.

    Attributes:
        environment: the cluster and volume, for a TrainingStack; not set with `registry_only`.
        registry: host and path of the registry; None if there is none.
    """

    environment: Environment
    registry: pulumi.Output[str] | None

    def __init__(
        self, name: str, args: EksEnvironmentArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        self._args, self._config = args, args.config
        self._cluster_config = as_kind(args.config.cluster, EksConfig)
        inherited = pulumi.ResourceOptions(
            transformations=[with_account_rules(self._cluster_config.iam)]
        )
        super().__init__("environment:Eks", name, pulumi.ResourceOptions.merge(opts, inherited))
        self._tags = args.config.tags_for(args.stack)
        self._aws = self._declare_provider()
        if args.registry_only:
            self.registry = self._declare_registry(None)
            self.register_outputs({})
            return
        self._network = self._declare_network()
        self._cluster = self._declare_cluster()
        self._account = self._cluster.cluster.arn.apply(lambda arn: arn.split(":")[4])
        self._storage = self._declare_storage()
        network_addons = self._declare_addons(
            "early", ADDONS_BEFORE_NODES, {NETWORK: network_identity()}, ()
        )
        self._nodes = self._declare_nodes(network_addons)
        csi = {FSX: csi_identity(self._cluster_config.region)}
        node_addons = self._declare_addons("late", ADDONS_AFTER_NODES, csi, [self._nodes.system])
        insights = self._declare_container_insights()
        self._kubeconfig = self._declare_kubeconfig()
        self._kubernetes = self._connect([*node_addons.addons, *insights])
        self._declare_autoscaler()
        self._metrics = self._declare_metrics()
        self._data_access = self._declare_data_access()
        self.registry = self._declare_registry(self._nodes.role_arn)
        self._declare_budget()
        self.environment = self._describe()
        self.register_outputs({"kubeconfig": self._kubeconfig})

    def _declare_provider(self) -> pulumi_aws.Provider:
        return pulumi_aws.Provider(
            f"{self.name}-aws",
            region=self._cluster_config.region,
            allowed_account_ids=_allowed_accounts(self._cluster_config.account),
            default_tags=pulumi_aws.ProviderDefaultTagsArgs(tags=self._tags),
            opts=self.child(),
        )

    def _aws_options(
        self,
        depends_on: Sequence[pulumi.Resource] = (),
        providers: "Sequence[pulumi.ProviderResource]" = (),
    ) -> pulumi.ResourceOptions:
        """Return the options of a component that uses the AWS provider, and `providers`."""
        opts = pulumi.ResourceOptions(providers=[self._aws, *providers])
        return pulumi.ResourceOptions.merge(self.child(depends_on=depends_on), opts)

    def _declare_network(self) -> Vpc:
        config = self._cluster_config
        args = VpcArgs(
            name=config.name,
            region=config.region,
            zones=config.node_zones,
            nat_zones=config.node_zones
            if config.network.nat_per_zone
            else [config.file_system_zone],
            cidr=config.network.cidr,
            existing=self._args.vpc or _configured_vpc(config),
        )
        return Vpc(f"{self.name}-network", args, self._aws_options())

    def _declare_cluster(self) -> EksCluster:
        config = self._cluster_config
        args = EksClusterArgs(
            name=config.name,
            kubernetes_version=config.kubernetes_version,
            subnet_ids=[self._network.private_subnet_ids[zone] for zone in config.zones],
            service_cidr=config.network.service_cidr,
            public_access=config.public_access,
            administrators=config.administrators,
            kms_key_arn=config.kms_key_arn,
            log_retention_days=config.log_retention_days,
            protect=self._config.protect,
        )
        return EksCluster(f"{self.name}-cluster", args, self._aws_options())

    def _declare_storage(self) -> Fsx:
        args = FsxArgs(
            config=as_kind(self._config.storage, FsxConfig),
            cluster=self._cluster_config.name,
            stack=self._args.stack,
            region=self._cluster_config.region,
            account=self._account,
            vpc_id=self._network.vpc_id,
            subnet_id=self._network.private_subnet_ids[self._cluster_config.file_system_zone],
            node_security_group=self._cluster.security_group,
            protect=self._config.protect,
            kms_key_arn=self._cluster_config.kms_key_arn,
        )
        return Fsx(f"{self.name}-storage", args, self._aws_options())

    def _declare_addons(
        self,
        stage: str,
        addons: Sequence[str],
        identities: Mapping[str, AddonIdentity],
        depends_on: Sequence[pulumi.Resource],
    ) -> EksAddons:
        args = EksAddonsArgs(
            cluster=self._cluster_config.name,
            cluster_name=self._cluster.cluster.name,
            kubernetes_version=self._cluster_config.kubernetes_version,
            addons=addons,
            versions=self._cluster_config.addon_versions,
            identities=identities,
        )
        return EksAddons(f"{self.name}-{stage}", args, self._aws_options(depends_on))

    def _declare_nodes(self, network_addons: EksAddons) -> EksNodeGroups:
        """Declare the nodes, which need a network plugin and egress routes to become Ready."""
        config = self._cluster_config
        args = EksNodeGroupsArgs(
            cluster=config.name,
            cluster_name=self._cluster.cluster.name,
            kubernetes_version=self._cluster.cluster.version,
            node_security_group=self._cluster.security_group,
            vpc_id=self._network.vpc_id,
            subnet_ids=self._network.private_subnet_ids,
            system_pool=system_pool(config),
            gpu_pools=gpu_pools(config, local_storage=self._uses_local_storage),
            autoscaling=config.autoscaling.enabled,
            user_data=proxy.user_data_parts(config),
            tags=self._tags,
            kms_key_arn=config.kms_key_arn,
            release=config.node_release,
        )
        depends_on = [*network_addons.addons, *self._network.prerequisites]
        return EksNodeGroups(f"{self.name}-nodes", args, self._aws_options(depends_on))

    @property
    def _uses_local_storage(self) -> bool:
        """Whether workers keep a cache of the data on the disks of their node."""
        cache = self._config.data.cache
        return cache is not None and cache.storage_class is None

    def _declare_container_insights(self) -> tuple[pulumi.Resource, ...]:
        """Declare the add-on of CloudWatch if it is enabled, and return it."""
        config = self._cluster_config
        if not config.monitoring.container_insights:
            return ()
        from components.aws.container_insights import EksContainerInsights, EksContainerInsightsArgs

        args = EksContainerInsightsArgs(
            cluster=config.name,
            cluster_name=self._cluster.cluster.name,
            kubernetes_version=config.kubernetes_version,
            versions=config.addon_versions,
            log_groups=config.insights_log_groups,
            log_retention_days=config.log_retention_days,
            kms_key_arn=config.kms_key_arn,
        )
        opts = self._aws_options([self._nodes.system])
        return EksContainerInsights(f"{self.name}-insights", args, opts).addons

    def _declare_kubeconfig(self) -> pulumi.Output[str]:
        cluster, region = self._cluster.cluster, self._cluster_config.region
        content = pulumi.Output.all(
            name=cluster.name, endpoint=cluster.endpoint, certificate=self._cluster.certificate
        ).apply(lambda values: kubeconfig(**values, region=region))
        return pulumi.Output.secret(content)

    def _connect(self, addons: Sequence[pulumi.Resource]) -> kubernetes.Provider:
        """Declare the Kubernetes provider; objects created through it wait for its dependencies."""
        depends_on = [
            *self._cluster.access,
            *self._network.prerequisites,
            *addons,
            self._nodes.system,
        ]
        return kubernetes.Provider(
            f"{self.name}-kubernetes",
            kubeconfig=self._kubeconfig,
            cluster_identifier=self._cluster.cluster.arn,  # a new certificate replaces no objects
            opts=self.child(depends_on=depends_on),
        )

    def _declare_autoscaler(self) -> None:
        if not self._cluster_config.autoscaling.enabled:
            return
        args = EksAutoscalerArgs(
            cluster=self._cluster_config.name,
            cluster_name=self._cluster.cluster.name,
            region=self._cluster_config.region,
            account=self._account,
            config=self._cluster_config.autoscaling,
            placement=SYSTEM_PLACEMENT,
            priorities=priorities(self._cluster_config),
        )
        opts = self._aws_options(providers=[self._kubernetes])
        EksAutoscaler(f"{self.name}-autoscaler", args, opts)

    def _declare_metrics(self) -> "EksMetricsAgent | None":
        monitoring = self._cluster_config.monitoring
        if not monitoring.managed_prometheus:
            return None
        # Imported here, like other optional components: the import takes time, and most stacks do not need it.
        from components.aws.metrics_agent import EksMetricsAgent, EksMetricsAgentArgs

        args = EksMetricsAgentArgs(
            cluster=self._cluster_config.name,
            cluster_name=self._cluster.cluster.name,
            region=self._cluster_config.region,
            image=monitoring.image,
            scrape_seconds=self._config.platform.monitoring.scrape_seconds,
            rules=rule_groups(self._config),
            placement=SYSTEM_PLACEMENT,
        )
        opts = self._aws_options(providers=[self._kubernetes])
        return EksMetricsAgent(f"{self.name}-metrics", args, opts)

    def _declare_data_access(self) -> DataAccess | None:
        """Declare the identity that reads photographs or shards, if the configuration names a bucket."""
        data, config = self._config.data, self._cluster_config
        origin = data.cache.origin if data.cache else data.origin
        if origin is None or origin.kind != "s3":
            return None
        args = EksDataAccessArgs(
            cluster=config.name,
            cluster_name=self._cluster.cluster.name,
            bucket=origin.bucket,
            prefix=origin.path,
            service_account=TRAINER_SERVICE_ACCOUNT if data.cache else DATA_ACCOUNT,
        )
        access = EksDataAccess(f"{self.name}-data", args, self._aws_options())
        return DataAccess(
            env={"AWS_REGION": config.region},
            uses_pod_identity_agent=True,
            prerequisites=access.prerequisites,
        )

    def _declare_registry(self, puller: pulumi.Input[str] | None) -> pulumi.Output[str] | None:
        if self._config.registry.kind != "ecr":
            return None
        from components.aws.registry import Ecr, EcrArgs

        args = EcrArgs(
            config=self._config.registry,
            puller=puller,
            # The next `up` after a teardown needs the images that the stack file names.
            protect=self._config.protect or as_kind(self._config.storage, FsxConfig).keep,
            kms_key_arn=self._cluster_config.kms_key_arn,
        )
        return Ecr(f"{self.name}-registry", args, self._aws_options()).address

    def _declare_budget(self) -> None:
        if self._config.cost.budget is None:
            return
        from components.aws.budget import AwsBudget, AwsBudgetArgs

        args = AwsBudgetArgs(
            config=self._config.cost.budget,
            cluster=self._cluster_config.name,
            stack=self._args.stack,
        )
        AwsBudget(f"{self.name}-budget", args, self._aws_options())

    @property
    def _metrics_outputs(self) -> Mapping[str, pulumi.Input[object]]:
        return {"prometheusEndpoint": self._metrics.endpoint} if self._metrics else {}

    def _describe(self) -> Environment:
        config, cluster = self._cluster_config, self._cluster.cluster
        connect = f"aws eks update-kubeconfig --name {config.name} --region {config.region}"
        return Environment(
            cluster=Cluster(
                provider=self._kubernetes,
                gpu_pool=GPU_PLACEMENT,
                system_pool=SYSTEM_PLACEMENT,
                kubeconfig=self._kubeconfig,
                region=config.region,
                zone=_single_zone(config.gpu_zones),
                gpu_zones=config.gpu_zones,
                name=cluster.name,
                identifier=cluster.arn,
                endpoint=cluster.endpoint,
                efa_interfaces=_efa_interfaces(config),
                scales_from_zero=config.autoscaling.enabled,
            ),
            volume=self._storage.volume,
            registry=self.registry,
            data_access=self._data_access,
            outputs={**self._storage.outputs, **self._metrics_outputs, "connect": connect},
        )


def _allowed_accounts(account: str | None) -> list[str] | None:
    """Return the accounts that the provider may use; None for any."""
    return [account] if account else None


def _configured_vpc(config: EksConfig) -> ExistingVpc | None:
    """Return the existing VPC that the configuration names; None if a new one is created."""
    network = config.network
    if network.vpc_id is None:
        return None
    return ExistingVpc(vpc_id=network.vpc_id, private_subnet_ids=network.private_subnet_ids)


def _efa_interfaces(config: EksConfig) -> int:
    """Return the number of EFA interfaces of a GPU node, which a worker must request."""
    pool = config.pools[0].settings  # with EFA, all pools have the same instance type
    return INSTANCE_TYPES[pool.instance_types[0]].efa_interfaces if pool.efa else 0


def _single_zone(zones: Sequence[str]) -> str | None:
    """Return the zone of all GPU nodes; None if they may be in several."""
    return zones[0] if len(zones) == 1 else None


def kubeconfig(name: str, endpoint: str, certificate: str, region: str) -> str:
    """Return a kubeconfig without credentials: clients get short-lived tokens from the `aws` command.

    Args:
        name: name of the cluster.
        endpoint: https address of its API server.
        certificate: certificate of the API server's CA, base64.
        region: AWS region.
    """
    command = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": ["eks", "get-token", "--cluster-name", name, "--region", region],
        "interactiveMode": "Never",
        "provideClusterInfo": False,
    }
    server = {"server": endpoint, "certificate-authority-data": certificate}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": server}],
            "users": [{"name": name, "user": {"exec": command}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )
