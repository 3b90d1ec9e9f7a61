"""A stack's place on AWS: VPC, EKS, GPU spot nodes, FSx for Lustre over S3, perhaps ECR and a budget.

What is made and in which order, each waiting for all to its left; destroyed the other way round:

    network -> control plane -> network add-ons -> nodes -> other add-ons -> objects in the cluster
            -> file system ---------------------------------^

Objects in the cluster wait for all of it by way of their provider, which waits for nodes, add-ons,
routes and access entries. So pods have let go of the volume before the file system goes, and the
plugin that made network interfaces outlives the nodes that have them.
"""

import json
from collections.abc import Sequence

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes

from components.budget.aws import AwsBudget, AwsBudgetArgs
from components.cluster import Cluster
from components.cluster.eks import EksCluster, EksClusterArgs
from components.cluster.eks_addons import (
    BEFORE_NODES,
    FSX,
    NETWORK,
    ON_NODES,
    EksAddons,
    EksAddonsArgs,
    Identity,
    csi_identity,
    network_identity,
)
from components.cluster.eks_autoscaler import EksAutoscaler, EksAutoscalerArgs
from components.cluster.eks_nodes import (
    GPU_PLACEMENT,
    SYSTEM_PLACEMENT,
    EksNodes,
    EksNodesArgs,
)
from components.config import EksConfig, FsxConfig, StackConfig, as_kind
from components.config.catalog import AWS_GPUS
from components.environment import Environment
from components.network.vpc import Vpc, VpcArgs
from components.part import Part
from components.registry.ecr import Ecr, EcrArgs
from components.storage.fsx import Fsx, FsxArgs


def declare_eks(config: StackConfig, stack: str) -> Environment:
    """Declare all that a stack needs on AWS.

    Args:
        config: the whole configuration, checked; `cluster` is of kind eks, `storage` of kind fsx.
        stack: name of the stack, for tags and names that are unique in an account.
    """
    return EksEnvironment("eks", config, stack).environment


class EksEnvironment(Part):
    """The parts on AWS, and their order.

    Attributes:
        environment: what a TrainingStack is put on.
    """

    environment: Environment

    def __init__(self, name: str, config: StackConfig, stack: str) -> None:
        super().__init__("environment:Eks", name)
        self._config, self._stack = config, stack
        self._eks = as_kind(config.cluster, EksConfig)
        self._aws = aws.Provider(
            f"{name}-aws",
            region=self._eks.region,
            default_tags=aws.ProviderDefaultTagsArgs(tags=config.tags_for(stack)),
            opts=self.child(),
        )
        self._vpc = Vpc(f"{name}-network", VpcArgs(config=self._eks), self._on_aws())
        self._cluster = self._declare_cluster()
        self._storage = self._declare_storage()
        early = self._addons("early", BEFORE_NODES, {NETWORK: network_identity()}, ())
        self._nodes = self._declare_nodes(early)
        self._late = self._addons(
            "late", ON_NODES, {FSX: csi_identity(self._storage.arn)}, [self._nodes.system]
        )
        self._kubeconfig = self._write_kubeconfig()
        self._kubernetes = self._connect()
        self._declare_autoscaler()
        self.environment = self._describe(self._declare_registry())
        self._declare_budget()
        self.register_outputs({"kubeconfig": self._kubeconfig})

    def _on_aws(
        self,
        after: Sequence[pulumi.Resource] = (),
        also: "Sequence[pulumi.ProviderResource]" = (),
    ) -> pulumi.ResourceOptions:
        """Give the options of a part whose resources go through the stack's own provider."""
        through = pulumi.ResourceOptions(providers=[self._aws, *also])
        return pulumi.ResourceOptions.merge(self.child(after=after), through)

    def _declare_cluster(self) -> EksCluster:
        args = EksClusterArgs(
            config=self._eks, subnets=self._vpc.private, protect=self._config.protect
        )
        return EksCluster(f"{self.name}-cluster", args, self._on_aws())

    def _declare_storage(self) -> Fsx:
        args = FsxArgs(
            config=as_kind(self._config.storage, FsxConfig),
            cluster=self._eks.name,
            stack=self._stack,
            region=self._eks.region,
            account=self._cluster.cluster.arn.apply(lambda arn: arn.split(":")[4]),
            vpc_id=self._vpc.vpc_id,
            subnet_id=self._vpc.private[self._eks.gpu_zone],
            node_security_group=self._cluster.security_group,
            protect=self._config.protect,
        )
        return Fsx(f"{self.name}-storage", args, self._on_aws())

    def _addons(
        self,
        stage: str,
        names: Sequence[str],
        identities: dict[str, Identity],
        after: Sequence[pulumi.Resource],
    ) -> EksAddons:
        args = EksAddonsArgs(
            config=self._eks,
            cluster=self._cluster.cluster,
            names=names,
            identities=identities,
        )
        return EksAddons(f"{self.name}-{stage}", args, self._on_aws(after))

    def _declare_nodes(self, early: EksAddons) -> EksNodes:
        """Declare nodes, which need a network and a way out to become Ready."""
        args = EksNodesArgs(
            config=self._eks,
            cluster=self._cluster.cluster,
            node_security_group=self._cluster.security_group,
            vpc_id=self._vpc.vpc_id,
            subnets=self._vpc.private,
            tags=self._config.tags_for(self._stack),
        )
        after = [*early.installed, *self._vpc.ready]
        return EksNodes(f"{self.name}-nodes", args, self._on_aws(after))

    def _write_kubeconfig(self) -> pulumi.Output[str]:
        cluster = self._cluster.cluster
        parts = pulumi.Output.all(cluster.name, cluster.endpoint, self._cluster.certificate)
        region = self._eks.region
        written = parts.apply(lambda said: kubeconfig(said[0], said[1], said[2], region))
        return pulumi.Output.secret(written)

    def _connect(self) -> kubernetes.Provider:
        """Give the way into the cluster; whatever is made through it waits for all of this."""
        after = [
            *self._cluster.access,
            *self._vpc.ready,
            *self._late.installed,
            self._nodes.system,
            *self._nodes.gpu,
        ]
        return kubernetes.Provider(
            f"{self.name}-kubernetes",
            kubeconfig=self._kubeconfig,
            cluster_identifier=self._cluster.cluster.arn,  # a new certificate is no new cluster
            opts=self.child(after=after),
        )

    def _declare_autoscaler(self) -> None:
        if not self._eks.autoscaling.enabled:
            return
        args = EksAutoscalerArgs(
            config=self._eks,
            cluster=self._cluster.cluster,
            groups=[self._nodes.system, *self._nodes.gpu],
            placement=SYSTEM_PLACEMENT,
        )
        EksAutoscaler(f"{self.name}-autoscaler", args, self._on_aws(also=[self._kubernetes]))

    def _declare_registry(self) -> Ecr | None:
        if self._config.registry.kind != "ecr":
            return None
        args = EcrArgs(
            config=self._config.registry,
            puller=self._nodes.role_arn,
            protect=self._config.protect,
        )
        return Ecr(f"{self.name}-registry", args, self._on_aws())

    def _declare_budget(self) -> None:
        if self._config.cost.budget is None:
            return
        args = AwsBudgetArgs(
            config=self._config.cost.budget, cluster=self._eks.name, stack=self._stack
        )
        AwsBudget(f"{self.name}-budget", args, self._on_aws())

    @property
    def _efa_interfaces(self) -> int:
        """The adapters of a GPU node, which workers must ask for to get them."""
        pool = self._eks.gpu_pool
        return AWS_GPUS[pool.instance_types[0]].efa if pool.efa else 0

    def _describe(self, registry: Ecr | None) -> Environment:
        cluster = self._cluster.cluster
        return Environment(
            cluster=Cluster(
                provider=self._kubernetes,
                gpu_pool=GPU_PLACEMENT,
                system_pool=SYSTEM_PLACEMENT,
                kubeconfig=self._kubeconfig,
                region=self._eks.region,
                zone=self._eks.gpu_zone,
                name=cluster.name,
                endpoint=cluster.endpoint,
                efa_interfaces=self._efa_interfaces,
            ),
            volume=self._storage.volume,
            registry=registry.address if registry else None,
            outputs={
                **self._storage.outputs,
                "connect": f"aws eks update-kubeconfig --name {self._eks.name} "
                f"--region {self._eks.region}",
            },
        )


def kubeconfig(name: str, endpoint: str, certificate: str, region: str) -> str:
    """Give a kubeconfig that holds no credential: `aws` is asked for one each time.

    Args:
        name: of the cluster.
        endpoint: https address of its API server.
        certificate: of the API server's authority, base64.
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
