"""What serves the GPU nodes rather than the job: device plugins, metrics, the watcher of spot nodes.

They need folders of the node or its network, which the job's namespace forbids; they therefore have
one of their own. Its level is `privileged`, because Kubernetes knows none between `baseline`, which
forbids both, and that. Each container takes no more than it needs all the same.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import core, meta

from components.cluster import Cluster
from components.config import PlatformConfig
from components.part import Part
from components.platform.gpu import EFA_IMAGE, DevicePlugins, DevicePluginsArgs
from components.platform.network import NetworkPolicies, NetworkPoliciesArgs, system_lines
from components.platform.observability import GpuMetrics, GpuMetricsArgs
from components.platform.pods import PART_OF
from components.platform.spot import SpotWatcher, SpotWatcherArgs

NAMESPACE = "everstep-system"  # that of the RBAC in manifests/
LEVEL = "pod-security.kubernetes.io"


@dataclass(frozen=True, kw_only=True)
class NodeServicesArgs:
    """What to run where.

    Attributes:
        config: the stack's `platform` section.
        cluster: the cluster; its GPU pool is what is served.
    """

    config: PlatformConfig
    cluster: Cluster


def wanted(args: NodeServicesArgs) -> bool:
    """Say whether there is anything to run."""
    config = args.config
    asked = config.gpu_plugin.enabled or config.metrics.enabled or config.spot.enabled
    return asked or args.cluster.efa_interfaces > 0


class NodeServices(Part):
    """A namespace and the DaemonSets in it."""

    def __init__(
        self, name: str, args: NodeServicesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:NodeServices", name, opts)
        self._args = args
        self._namespace = self._declare_namespace()
        guards = self._declare_policies() if args.config.network_policies else []
        self._declare_services(self.child(after=[self._namespace, *guards]))
        self.register_outputs({})

    @property
    def _namespace_name(self) -> pulumi.Output[str]:
        return self._namespace.metadata.apply(lambda metadata: metadata.name or NAMESPACE)

    def _declare_namespace(self) -> core.v1.Namespace:
        levels = {f"{LEVEL}/enforce": "privileged", f"{LEVEL}/audit": "privileged"}
        return core.v1.Namespace(
            f"{self.name}-namespace",
            metadata=meta.v1.ObjectMetaArgs(name=NAMESPACE, labels={**PART_OF, **levels}),
            opts=self.child(),
        )

    def _declare_policies(self) -> list[pulumi.Resource]:
        policies = NetworkPolicies(
            f"{self.name}-network",
            NetworkPoliciesArgs(namespace=self._namespace_name, lines=system_lines()),
            self.child(after=[self._namespace]),
        )
        return [policies]

    def _declare_services(self, opts: pulumi.ResourceOptions) -> None:
        config, cluster, efa = self._args.config, self._args.cluster, self._efa_image()
        if config.gpu_plugin.enabled or efa:
            plugins = DevicePluginsArgs(
                gpu_image=config.gpu_plugin.image if config.gpu_plugin.enabled else None,
                efa_image=efa,
                namespace=self._namespace_name,
                placement=cluster.gpu_pool,
            )
            DevicePlugins(f"{self.name}-devices", plugins, opts)
        if config.metrics.enabled:
            metrics = GpuMetricsArgs(
                image=config.metrics.image,
                namespace=self._namespace_name,
                placement=cluster.gpu_pool,
            )
            GpuMetrics(f"{self.name}-metrics", metrics, opts)
        if config.spot.enabled:
            watcher = SpotWatcherArgs(
                image=config.spot.image, namespace=self._namespace_name, placement=cluster.gpu_pool
            )
            SpotWatcher(f"{self.name}-spot", watcher, opts)

    def _efa_image(self) -> str | None:
        cluster = self._args.cluster
        return EFA_IMAGE.format(region=cluster.region) if cluster.efa_interfaces else None
