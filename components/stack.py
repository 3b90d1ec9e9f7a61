"""TrainingStack: declares all workloads of a stack and their order.

The order of creation is: namespace, quota and network policies, DaemonSets of the GPU nodes, storage, etcd,
controller, data preparation, job. The order of deletion is the reverse, so that the job's pods end before the
controller that cleans up after them, and no pod uses the claim when it is deleted. Each component
waits for all earlier components, although some could be created in parallel: this costs a few seconds, but
an interrupted `up` always leaves a prefix of the complete stack. Only the monitoring objects, which follow the
controller, delay no other component.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import core, meta

from components.component import Component
from components.config import StackConfig
from components.interface import Cluster, DataAccess, VolumeSource
from components.job import shared_platform
from components.job.data_prep import DataPrep, DataPrepArgs
from components.job.elastic_job import ElasticTrainingJob, ElasticTrainingJobArgs
from components.platform.claim import SharedClaim, SharedClaimArgs
from components.platform.elastic_controller import ElasticController, ElasticControllerArgs
from components.platform.etcd import Etcd, EtcdArgs
from components.platform.governance import Governance, GovernanceArgs
from components.platform.image_pull import (
    PullSecret,
    PullSecretArgs,
    RegistryLogin,
    add_image_pull_secrets,
)
from components.platform.monitoring import Monitoring, MonitoringArgs
from components.platform.network import NetworkPolicies, NetworkPoliciesArgs, job_rules
from components.platform.node_services import NodeServices, NodeServicesArgs, is_needed
from components.platform.pods import DATA_PREPARATION, PART_OF, WORKER
from components.spending import job_spending, zone_ceilings, zone_prices
from everstep.catalog.names import JOB_NAMESPACE, SYSTEM_NAMESPACE


@dataclass(frozen=True, kw_only=True)
class TrainingStackArgs:
    """Arguments of a TrainingStack.

    Attributes:
        config: the whole validated configuration.
        cluster: the cluster on which it runs.
        volume: the volume that the workers share.
        logins: users of the registries in `platform.registryLogins`, with their passwords.
        data_access: identity that may read `data.source` or `data.cache.source`; None if no identity is needed.
    """

    config: StackConfig
    cluster: Cluster
    volume: VolumeSource
    logins: tuple[RegistryLogin, ...] = ()
    data_access: DataAccess | None = None


class TrainingStack(Component):
    """An elastic training job and everything that it needs in a cluster.

    Attributes:
        outputs: stack outputs.
    """

    outputs: Mapping[str, pulumi.Input[object]]

    def __init__(
        self, name: str, args: TrainingStackArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        inherited = pulumi.ResourceOptions(
            provider=args.cluster.provider,
            transformations=[add_image_pull_secrets(login.host for login in args.logins)],
        )
        super().__init__("stack:TrainingStack", name, pulumi.ResourceOptions.merge(opts, inherited))
        self._args = args
        self._namespace = self._declare_namespace()
        self._namespace_objects = [self._namespace, *self._declare_namespace_objects()]
        self._node_services = self._declare_node_services()
        self._storage = self._declare_storage()
        self._etcd = self._declare_etcd()
        self._controller = self._declare_controller()
        self._declare_monitoring()
        self._data = self._declare_data()
        self._job = self._declare_job()
        self.outputs = self._stack_outputs()
        self.register_outputs(dict(self.outputs))

    @property
    def _namespace_name(self) -> pulumi.Output[str]:
        return self._namespace.metadata.apply(lambda metadata: metadata.name or JOB_NAMESPACE)

    def _declare_namespace(self) -> core.v1.Namespace:
        # The upstream controller has the types of Kubernetes 1.15: it drops the seccomp profile of
        # the pods that it creates, which `restricted` requires.
        level = "baseline" if self._upstream else "restricted"
        return core.v1.Namespace(
            f"{self.name}-namespace",
            metadata=meta.v1.ObjectMetaArgs(
                name=JOB_NAMESPACE,
                labels={
                    **PART_OF,
                    "pod-security.kubernetes.io/enforce": level,
                    "pod-security.kubernetes.io/warn": level,
                },
            ),
            opts=self.child(),
        )

    @property
    def _upstream(self) -> bool:
        return self._args.config.controller.kind == "upstream"

    @property
    def _system_namespace(self) -> pulumi.Input[str]:
        return next((services.namespace for services in self._node_services), SYSTEM_NAMESPACE)

    def _declare_namespace_objects(self) -> list[pulumi.Resource]:
        """Declare quota, priorities, logins and network policies, before any pod exists."""
        config, access = self._args.config.platform, self._args.data_access
        governance = Governance(
            f"{self.name}-governance",
            GovernanceArgs(
                pods=config.quota.pods, gpus=config.quota.gpus, namespace=self._namespace_name
            ),
            self.child(depends_on=[self._namespace]),
        )
        objects = [governance, *self._declare_logins()]
        if not config.network_policies:
            return objects
        policies = NetworkPolicies(
            f"{self.name}-network",
            NetworkPoliciesArgs(
                namespace=self._namespace_name,
                rules=job_rules(
                    with_controller=not self._upstream,
                    with_etcd_users=self._args.config.etcd.has_users,
                    with_staging=bool(self._args.config.data.source),
                    store_readers=self._store_readers,
                    with_pod_identity_agent=access is None or access.uses_pod_identity_agent,
                    proxy_port=access.proxy_port if access else None,
                ),
            ),
            self.child(depends_on=[self._namespace]),
        )
        return [*objects, policies]

    @property
    def _store_readers(self) -> Mapping[str, str] | None:
        """Labels of the pods that read an object store; None if none does."""
        if self._args.config.data.cache:
            return WORKER
        return DATA_PREPARATION if self._args.data_access else None

    @property
    def _workers_access(self) -> DataAccess | None:
        """The identity with which workers read the shards of the cache; None if they need none."""
        return self._args.data_access if self._args.config.data.cache else None

    def _declare_logins(self) -> list[pulumi.Resource]:
        """Declare the Secret with which pods pull from third-party registries."""
        if not self._args.logins:
            return []
        args = PullSecretArgs(logins=self._args.logins, namespace=self._namespace_name)
        return [
            PullSecret(f"{self.name}-registries", args, self.child(depends_on=[self._namespace]))
        ]

    def _declare_node_services(self) -> list[NodeServices]:
        args = NodeServicesArgs(
            config=self._args.config.platform,
            cluster=self._args.cluster,
            with_controller=self._upstream,
            logins=self._args.logins,
        )
        if not is_needed(args):
            return []
        opts = self.child(depends_on=self._namespace_objects)
        return [NodeServices(f"{self.name}-nodes", args, opts)]

    def _declare_storage(self) -> SharedClaim:
        return SharedClaim(
            f"{self.name}-storage",
            SharedClaimArgs(
                source=self._args.volume,
                namespace=self._namespace_name,
                workers_access=self._workers_access,
                protect=self._args.config.protect,
            ),
            self.child(depends_on=[*self._namespace_objects, *self._node_services]),
        )

    def _declare_etcd(self) -> Etcd:
        return Etcd(
            f"{self.name}-etcd",
            EtcdArgs(
                config=self._args.config.etcd,
                namespace=self._namespace_name,
                placement=self._args.cluster.system_pool,
                storage=self._storage.storage,
                run=self._args.config.job.name,
            ),
            self.child(depends_on=[self._storage]),
        )

    def _declare_controller(self) -> ElasticController:
        return ElasticController(
            f"{self.name}-controller",
            ElasticControllerArgs(
                config=self._args.config.controller,
                namespace=self._namespace_name,
                system_namespace=self._system_namespace,
                placement=self._args.cluster.system_pool,
            ),
            self.child(depends_on=[self._etcd]),
        )

    def _declare_monitoring(self) -> None:
        """Declare the objects for a Prometheus operator, which the cluster must already run."""
        config = self._args.config
        if config.platform.monitoring.kind == "none":
            return
        args = MonitoringArgs(
            config=config,
            namespace=self._namespace_name,
            system_namespace=self._system_namespace,
        )
        Monitoring(f"{self.name}-monitoring", args, self.child(depends_on=[self._controller]))

    def _declare_data(self) -> DataPrep | None:
        """Declare the preparation of the data set, which a user's program and a cache do not need."""
        config = self._args.config
        if config.job.command or config.data.cache:
            return None
        return DataPrep(
            f"{self.name}-data",
            DataPrepArgs(
                config=config.data,
                image=config.data.image or config.job.image,
                namespace=self._namespace_name,
                placement=self._args.cluster.system_pool,
                storage=self._storage.storage,
                access=self._args.data_access,
            ),
            self.child(depends_on=[self._controller]),
        )

    def _declare_job(self) -> ElasticTrainingJob:
        config = self._args.config
        return ElasticTrainingJob(
            f"{self.name}-job",
            ElasticTrainingJobArgs(
                config=config.job,
                dataset=None if config.job.command else config.data.dataset,
                data=self._data.folder if self._data else None,
                cache=config.data.cache,
                access=self._workers_access,
                endpoint=self._etcd.endpoint,
                etcd_users=config.etcd.has_users,
                namespace=self._namespace_name,
                placement=self._args.cluster.gpu_pool,
                storage=self._storage.storage,
                upstream=self._upstream,
                efa_interfaces=self._args.cluster.efa_interfaces,
                zones=() if config.job.spread_zones else self._args.cluster.gpu_zones,
                zone_prices=zone_prices(config),
                zone_ceilings=zone_ceilings(config),
                scales_from_zero=self._args.cluster.scales_from_zero,
                spending=job_spending(config),
            ),
            self.child(depends_on=[self._data or self._controller, *self._prerequisites]),
        )

    @property
    def _prerequisites(self) -> Sequence[pulumi.Resource]:
        """Cloud resources that workers need before they read their data."""
        return self._workers_access.prerequisites if self._workers_access else ()

    def _stack_outputs(self) -> dict[str, pulumi.Input[object]]:
        """Return the outputs of the stack, which `pulumi stack output` shows."""
        config, cluster = self._args.config, self._args.cluster
        cloud_outputs = {"clusterName": cluster.name, "clusterEndpoint": cluster.endpoint}
        return {
            **{name: value for name, value in cloud_outputs.items() if value is not None},
            **self._job.outputs,
            "controller": self._controller.image,
            "etcdEndpoint": self._etcd.endpoint,
            "kubeconfig": cluster.kubeconfig,
            shared_platform.OUTPUT: shared_platform.platform_output(
                config, cluster, self._storage.storage, self._namespace_name, self._etcd.endpoint
            ),
        }
