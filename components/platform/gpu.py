"""The device plugins, through which pods get GPUs and network adapters of a node.

The DaemonSets in the documentation of the plugins do not tolerate the spot taint and never start on spot nodes. The
GPU operator would also manage the driver, which both clouds provide on their GPU nodes.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import apps, core

from components.component import Component
from components.interface import Placement
from components.platform.daemons import NodeDaemon, daemon_security
from components.platform.pods import PULL_POLICY

GPU_PLUGIN = "nvidia-device-plugin"
EFA_PLUGIN = "aws-efa-device-plugin"
# Folder of the kubelet in which a plugin registers.
DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
EFA_IMAGE = "eks/aws-efa-k8s-device-plugin:v0.5.8"
"""Image in the add-on registry of each region; chart 0.5.8 of eks-charts uses it."""


@dataclass(frozen=True, kw_only=True)
class DevicePluginsArgs:
    """Arguments of DevicePlugins.

    Attributes:
        gpu_image: image of the plugin of NVIDIA; None: the cluster has one already.
        efa_image: image of the plugin of Amazon for EFA; None without EFA.
        namespace: namespace of the DaemonSets.
        placement: the GPU nodes.
        awaited: whether the nodes exist before the stack, so that Pulumi waits for the first pod.
    """

    gpu_image: str | None
    efa_image: str | None
    namespace: pulumi.Input[str]
    placement: Placement
    awaited: bool = False


class DevicePlugins(Component):
    """One DaemonSet per kind of device."""

    def __init__(
        self, name: str, args: DevicePluginsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:DevicePlugins", name, opts)
        if args.gpu_image:
            self._declare("gpu", gpu_plugin(args, args.gpu_image))
        if args.efa_image:
            self._declare("efa", efa_plugin(args, args.efa_image))
        self.register_outputs({})

    def _declare(self, device: str, daemon: NodeDaemon) -> None:
        apps.v1.DaemonSet(
            f"{self.name}-{device}",
            metadata=daemon.metadata(),
            spec=daemon.spec(),
            opts=self.child(delete_before_replace=True),
        )


def gpu_plugin(args: DevicePluginsArgs, image: str) -> NodeDaemon:
    """Return the DaemonSet of NVIDIA's plugin."""
    return NodeDaemon(
        name=GPU_PLUGIN,
        namespace=args.namespace,
        placement=args.placement,
        awaited=args.awaited,
        host_folders={"device-plugins": DEVICE_PLUGINS},
        container=core.v1.ContainerArgs(
            name="plugin",
            image=image,
            image_pull_policy=PULL_POLICY,
            env=[
                # While the driver is being installed, the node has no GPUs: wait instead of crashing.
                core.v1.EnvVarArgs(name="FAIL_ON_INIT_ERROR", value="false"),
            ],
            security_context=daemon_security(read_only=False),
            resources=_resources("50m", "64Mi", "256Mi"),
            volume_mounts=[_mount("device-plugins", DEVICE_PLUGINS)],
        ),
    )


def efa_plugin(args: DevicePluginsArgs, image: str) -> NodeDaemon:
    """Return the DaemonSet of Amazon's plugin for the Elastic Fabric Adapter."""
    return NodeDaemon(
        name=EFA_PLUGIN,
        namespace=args.namespace,
        placement=args.placement,
        awaited=args.awaited,
        host_network=True,  # the adapters belong to the host network
        host_folders={"device-plugins": DEVICE_PLUGINS, "infiniband": "/dev/infiniband"},
        container=core.v1.ContainerArgs(
            name="plugin",
            image=image,
            image_pull_policy=PULL_POLICY,
            security_context=daemon_security(read_only=False),
            resources=_resources("10m", "20Mi", "128Mi"),
            volume_mounts=[
                _mount("device-plugins", DEVICE_PLUGINS),
                _mount("infiniband", "/dev/infiniband"),
            ],
        ),
    )


def _resources(cpu: str, memory: str, memory_limit: str) -> core.v1.ResourceRequirementsArgs:
    return core.v1.ResourceRequirementsArgs(
        requests={"cpu": cpu, "memory": memory}, limits={"memory": memory_limit}
    )


def _mount(name: str, path: str) -> core.v1.VolumeMountArgs:
    return core.v1.VolumeMountArgs(name=name, mount_path=path)
