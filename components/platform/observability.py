"""GPU metrics for Prometheus: NVIDIA's DCGM exporter on every GPU node.

A node must have only one exporter: two would compete for the counters of the GPU. If the cloud runs an exporter, set
`platform.metrics.enabled` to false.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import apps, core, meta

from components.component import Component
from components.interface import Placement
from components.platform.daemons import SKIP_AWAIT, NodeDaemon, daemon_security
from components.platform.pods import PULL_POLICY, field_env, scrape_annotations
from everstep.catalog.names import GPU_METRICS_PORT, NODE_NAME_VARIABLE

NAME = "dcgm-exporter"
POD_RESOURCES = "/var/lib/kubelet/pod-resources"  # kubelet API that maps GPUs to pods


@dataclass(frozen=True, kw_only=True)
class GpuMetricsArgs:
    """Arguments of GpuMetrics.

    Attributes:
        image: image of the exporter.
        namespace: namespace of the exporter.
        placement: the GPU nodes.
        awaited: whether the nodes exist before the stack, so that Pulumi waits for the first pod.
    """

    image: str
    namespace: pulumi.Input[str]
    placement: Placement
    awaited: bool = False


class GpuMetrics(Component):
    """The exporter, and a headless Service through which Prometheus finds its pods."""

    def __init__(
        self, name: str, args: GpuMetricsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:GpuMetrics", name, opts)
        daemon = exporter(args)
        apps.v1.DaemonSet(
            f"{name}-exporter",
            metadata=daemon.metadata(),
            spec=daemon.spec(),
            opts=self.child(delete_before_replace=True),
        )
        core.v1.Service(
            f"{name}-service",
            metadata=meta.v1.ObjectMetaArgs(
                name=NAME,
                namespace=args.namespace,
                labels=daemon.labels,
                annotations={
                    **SKIP_AWAIT,  # without GPU nodes it has no endpoints
                    **scrape_annotations(GPU_METRICS_PORT),
                },
            ),
            spec=core.v1.ServiceSpecArgs(
                cluster_ip="None",
                selector=daemon.labels,
                ports=[core.v1.ServicePortArgs(name="metrics", port=GPU_METRICS_PORT)],
            ),
            opts=self.child(delete_before_replace=True),
        )
        self.register_outputs({})


def exporter(args: GpuMetricsArgs) -> NodeDaemon:
    """Return the DaemonSet of the exporter."""
    return NodeDaemon(
        name=NAME,
        namespace=args.namespace,
        placement=args.placement,
        awaited=args.awaited,
        host_folders={"pod-resources": POD_RESOURCES},
        container=core.v1.ContainerArgs(
            name="exporter",
            image=args.image,
            image_pull_policy=PULL_POLICY,
            env=[
                core.v1.EnvVarArgs(name="DCGM_EXPORTER_LISTEN", value=f":{GPU_METRICS_PORT}"),
                core.v1.EnvVarArgs(name="DCGM_EXPORTER_KUBERNETES", value="true"),
                field_env(NODE_NAME_VARIABLE, "spec.nodeName"),
            ],
            ports=[core.v1.ContainerPortArgs(name="metrics", container_port=GPU_METRICS_PORT)],
            # The profiling counters require SYS_ADMIN.
            security_context=daemon_security(read_only=False, capabilities=["SYS_ADMIN"]),
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "1Gi"}
            ),
            volume_mounts=[
                core.v1.VolumeMountArgs(
                    name="pod-resources", mount_path=POD_RESOURCES, read_only=True
                )
            ],
        ),
    )
