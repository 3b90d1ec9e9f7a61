"""TrainingStack: puts the parts together and owns their order.

Created: namespace, quota and network policies, services of the GPU nodes, storage, etcd, controller,
data preparation, job. Destroyed the other way round, so that the job's pods are gone before the
controller that cleans up after them, and nothing holds the claim when it goes. Each part waits for
all that went before it, although some could start side by side: in seconds that costs little, and a
half-made stack always is a prefix of a whole one.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import core, meta

from components.cluster import Cluster
from components.config import StackConfig
from components.job.data_prep import DataPrep, DataPrepArgs
from components.job.elastic_job import ElasticTrainingJob, ElasticTrainingJobArgs
from components.part import Part
from components.platform.elastic_controller import ElasticController, ElasticControllerArgs
from components.platform.etcd import Etcd, EtcdArgs
from components.platform.governance import Governance, GovernanceArgs
from components.platform.network import NetworkPolicies, NetworkPoliciesArgs, job_lines
from components.platform.node_services import NodeServices, NodeServicesArgs, wanted
from components.storage import VolumeSource
from components.storage.claim import SharedClaim, SharedClaimArgs

NAMESPACE = "elastic-job"  # upstream's, and that of the RBAC in manifests/


@dataclass(frozen=True, kw_only=True)
class TrainingStackArgs:
    """What to declare, on which cluster, over which volume."""

    config: StackConfig
    cluster: Cluster
    volume: VolumeSource


class TrainingStack(Part):
    """Everything that elastic training needs in a cluster, and the training itself."""

    def __init__(
        self, name: str, args: TrainingStackArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        inherited = pulumi.ResourceOptions(provider=args.cluster.provider)
        super().__init__("stack:TrainingStack", name, pulumi.ResourceOptions.merge(opts, inherited))
        self._args = args
        self._namespace = self._declare_namespace()
        self._guards = [self._namespace, *self._declare_guards()]
        self._services = self._declare_node_services()
        self._storage = self._declare_storage()
        self._etcd = self._declare_etcd()
        self._controller = self._declare_controller()
        self._data = self._declare_data()
        self._job = self._declare_job()
        self.outputs = self._describe()
        self.register_outputs(self.outputs)

    @property
    def _namespace_name(self) -> pulumi.Output[str]:
        return self._namespace.metadata.apply(lambda metadata: metadata.name or NAMESPACE)

    def _declare_namespace(self) -> core.v1.Namespace:
        # Upstream's types are Kubernetes 1.15's: it drops the seccomp profile of the pods it makes,
        # and `restricted` asks for one.
        level = "baseline" if self._upstream else "restricted"
        return core.v1.Namespace(
            f"{self.name}-namespace",
            metadata=meta.v1.ObjectMetaArgs(
                name=NAMESPACE,
                labels={
                    "app.kubernetes.io/part-of": "everstep",
                    "pod-security.kubernetes.io/enforce": level,
                    "pod-security.kubernetes.io/warn": level,
                },
            ),
            opts=self.child(),
        )

    @property
    def _upstream(self) -> bool:
        return self._args.config.controller.kind == "upstream"

    def _declare_guards(self) -> list[pulumi.Resource]:
        """Declare what holds for all pods, before there are any."""
        config = self._args.config.platform
        governance = Governance(
            f"{self.name}-governance",
            GovernanceArgs(
                pods=config.quota.pods, gpus=config.quota.gpus, namespace=self._namespace_name
            ),
            self.child(after=[self._namespace]),
        )
        if not config.network_policies:
            return [governance]
        policies = NetworkPolicies(
            f"{self.name}-network",
            NetworkPoliciesArgs(namespace=self._namespace_name, lines=job_lines()),
            self.child(after=[self._namespace]),
        )
        return [governance, policies]

    def _declare_node_services(self) -> list[pulumi.Resource]:
        args = NodeServicesArgs(config=self._args.config.platform, cluster=self._args.cluster)
        if not wanted(args):
            return []
        after = self.child(after=self._guards)
        return [NodeServices(f"{self.name}-nodes", args, after)]

    def _declare_storage(self) -> SharedClaim:
        return SharedClaim(
            f"{self.name}-storage",
            SharedClaimArgs(source=self._args.volume, namespace=self._namespace_name),
            self.child(after=[*self._guards, *self._services]),
        )

    def _declare_etcd(self) -> Etcd:
        return Etcd(
            f"{self.name}-etcd",
            EtcdArgs(
                config=self._args.config.etcd,
                namespace=self._namespace_name,
                placement=self._args.cluster.system_pool,
                storage=self._storage.storage,
                rejoin_image=self._args.config.platform.spot.image,
            ),
            self.child(after=[self._storage]),
        )

    def _declare_controller(self) -> ElasticController:
        return ElasticController(
            f"{self.name}-controller",
            ElasticControllerArgs(
                config=self._args.config.controller,
                namespace=self._namespace_name,
                placement=self._args.cluster.system_pool,
            ),
            self.child(after=[self._etcd]),
        )

    def _declare_data(self) -> DataPrep:
        config = self._args.config
        return DataPrep(
            f"{self.name}-data",
            DataPrepArgs(
                dataset=config.data.dataset,
                image=config.data.image or config.job.image,
                namespace=self._namespace_name,
                placement=self._args.cluster.system_pool,
                storage=self._storage.storage,
            ),
            self.child(after=[self._controller]),
        )

    def _declare_job(self) -> ElasticTrainingJob:
        config = self._args.config
        return ElasticTrainingJob(
            f"{self.name}-job",
            ElasticTrainingJobArgs(
                config=config.job,
                dataset=config.data.dataset,
                data=self._data.folder,
                endpoint=self._etcd.endpoint,
                namespace=self._namespace_name,
                placement=self._args.cluster.gpu_pool,
                storage=self._storage.storage,
                upstream=self._upstream,
                efa_interfaces=self._args.cluster.efa_interfaces,
            ),
            self.child(after=[self._data]),
        )

    def _describe(self) -> dict[str, pulumi.Input[str]]:
        """Give what `pulumi stack output` shows."""
        config, where = self._args.config, self._storage.storage.where
        cluster = self._args.cluster
        of_the_cloud = {"clusterName": cluster.name, "clusterEndpoint": cluster.endpoint}
        return {
            **{name: value for name, value in of_the_cloud.items() if value is not None},
            "job": config.job.name,
            "namespace": self._namespace_name,
            "volumePath": where,
            "checkpoints": pulumi.Output.concat(where, "/", self._job.run, "/checkpoints"),
            "journal": pulumi.Output.concat(where, "/", self._job.run, "/journal"),
            "follow": "everstep follow",
            "image": config.job.image,
            "controller": self._controller.image,
            "etcdEndpoint": self._etcd.endpoint,
            "kubeconfig": cluster.kubeconfig,
        }
