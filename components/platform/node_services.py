"""The system namespace, and services of the GPU nodes: device plugins, metrics and the spot watcher.

The services use host paths or the host network. The pod security level of the job's namespace forbids both.
The services therefore have their own namespace with the level `privileged`: `baseline` would forbid them too, and
Kubernetes has no level in between. Each container still has only the privileges that it needs.
"""

from dataclasses import dataclass

import pulumi
from cloudfacts.aws import addon_registry
from pulumi_kubernetes import core, meta

from components.component import Component
from components.config import PlatformConfig
from components.interface import Cluster
from components.platform.gpu import EFA_IMAGE, DevicePlugins, DevicePluginsArgs
from components.platform.image_pull import PullSecret, PullSecretArgs, RegistryLogin
from components.platform.network import NetworkPolicies, NetworkPoliciesArgs, system_rules
from components.platform.observability import GpuMetrics, GpuMetricsArgs
from components.platform.pods import PART_OF
from components.platform.spot import SpotWatcher, SpotWatcherArgs
from everstep.catalog.names import SYSTEM_NAMESPACE

POD_SECURITY_LABEL = "pod-security.kubernetes.io"


@dataclass(frozen=True, kw_only=True)
class NodeServicesArgs:
    """Arguments of NodeServices.

    Attributes:
        config: the `platform` section of a stack.
        cluster: the cluster, whose GPU pool is served.
        with_controller: whether the controller of the jobs runs in the system namespace.
        logins: users of third-party registries, with their passwords.
    """

    config: PlatformConfig
    cluster: Cluster
    with_controller: bool = False
    logins: tuple[RegistryLogin, ...] = ()


def is_needed(args: NodeServicesArgs) -> bool:
    """Return True if any service is enabled, or if the controller needs the namespace."""
    config = args.config
    enabled = config.gpu_plugin.enabled or config.metrics.enabled or config.spot.enabled
    return enabled or args.with_controller or args.cluster.efa_interfaces > 0


class NodeServices(Component):
    """A namespace and the DaemonSets in it.

    Attributes:
        namespace: name of the namespace.
    """

    namespace: pulumi.Output[str]

    def __init__(
        self, name: str, args: NodeServicesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:NodeServices", name, opts)
        self._args = args
        self._namespace = self._declare_namespace()
        self.namespace = self._namespace.metadata.apply(
            lambda metadata: metadata.name or SYSTEM_NAMESPACE
        )
        policies = self._declare_policies() if args.config.network_policies else []
        prerequisites = [self._namespace, *self._declare_logins(), *policies]
        self._declare_services(self.child(depends_on=prerequisites))
        self.register_outputs({})

    def _declare_namespace(self) -> core.v1.Namespace:
        levels = {
            f"{POD_SECURITY_LABEL}/enforce": "privileged",
            f"{POD_SECURITY_LABEL}/audit": "privileged",
        }
        return core.v1.Namespace(
            f"{self.name}-namespace",
            metadata=meta.v1.ObjectMetaArgs(name=SYSTEM_NAMESPACE, labels={**PART_OF, **levels}),
            opts=self.child(),
        )

    def _declare_logins(self) -> list[pulumi.Resource]:
        if not self._args.logins:
            return []
        args = PullSecretArgs(logins=self._args.logins, namespace=self.namespace)
        return [
            PullSecret(f"{self.name}-registries", args, self.child(depends_on=[self._namespace]))
        ]

    def _declare_policies(self) -> list[pulumi.Resource]:
        policies = NetworkPolicies(
            f"{self.name}-network",
            NetworkPoliciesArgs(
                namespace=self.namespace,
                rules=system_rules(with_controller=self._args.with_controller),
            ),
            self.child(depends_on=[self._namespace]),
        )
        return [policies]

    def _declare_services(self, opts: pulumi.ResourceOptions) -> None:
        config, cluster, efa = self._args.config, self._args.cluster, self._efa_image()
        awaited = not cluster.scales_from_zero
        if config.gpu_plugin.enabled or efa:
            plugins = DevicePluginsArgs(
                gpu_image=config.gpu_plugin.image if config.gpu_plugin.enabled else None,
                efa_image=efa,
                namespace=self.namespace,
                placement=cluster.gpu_pool,
                awaited=awaited,
            )
            DevicePlugins(f"{self.name}-devices", plugins, opts)
        if config.metrics.enabled:
            metrics = GpuMetricsArgs(
                image=config.metrics.image,
                namespace=self.namespace,
                placement=cluster.gpu_pool,
                awaited=awaited,
            )
            GpuMetrics(f"{self.name}-metrics", metrics, opts)
        if config.spot.enabled:
            watcher = SpotWatcherArgs(
                image=config.spot.image,
                namespace=self.namespace,
                placement=cluster.gpu_pool,
                awaited=awaited,
            )
            SpotWatcher(f"{self.name}-spot", watcher, opts)

    def _efa_image(self) -> str | None:
        cluster = self._args.cluster
        if not (cluster.efa_interfaces and cluster.region):
            return None
        return f"{addon_registry(cluster.region)}/{EFA_IMAGE}"
