"""The device plugins: without them a node's GPUs and network adapters are invisible to pods.

A DaemonSet of ours rather than the documented one, which lacks the spot taint's toleration and so
never starts on a spot node; rather than the GPU operator, which would also manage the driver that
both clouds' node images bring.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import apps, core

from components.cluster import Placement
from components.part import Part
from components.platform.daemons import Daemon, confined
from components.platform.pods import PULL_POLICY

GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
"""What pods ask for, by the names under which the plugins offer it."""

GPU_PLUGIN = "nvidia-device-plugin"
EFA_PLUGIN = "aws-efa-device-plugin"
DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"  # the kubelet's; a plugin registers there
# Amazon's own registry and account for add-ons; its chart 0.5.8 of eks-charts names this image.
EFA_IMAGE = "602401143452.dkr.ecr.{region}.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.8"


@dataclass(frozen=True, kw_only=True)
class DevicePluginsArgs:
    """What to run.

    Attributes:
        gpu_image: image of NVIDIA's plugin; None: somebody else brings one.
        efa_image: image of Amazon's plugin for EFA; None without EFA.
        namespace: where.
        placement: the GPU nodes.
    """

    gpu_image: str | None
    efa_image: str | None
    namespace: pulumi.Input[str]
    placement: Placement


class DevicePlugins(Part):
    """One DaemonSet for each kind of device."""

    def __init__(
        self, name: str, args: DevicePluginsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:DevicePlugins", name, opts)
        if args.gpu_image:
            self._declare("gpu", gpu_plugin(args, args.gpu_image))
        if args.efa_image:
            self._declare("efa", efa_plugin(args, args.efa_image))
        self.register_outputs({})

    def _declare(self, device: str, daemon: Daemon) -> None:
        apps.v1.DaemonSet(
            f"{self.name}-{device}",
            metadata=daemon.metadata(),
            spec=daemon.spec(),
            opts=self.child(delete_before_replace=True),
        )


def gpu_plugin(args: DevicePluginsArgs, image: str) -> Daemon:
    """Give NVIDIA's plugin."""
    return Daemon(
        name=GPU_PLUGIN,
        namespace=args.namespace,
        placement=args.placement,
        host_folders={"device-plugins": DEVICE_PLUGINS},
        container=core.v1.ContainerArgs(
            name="plugin",
            image=image,
            image_pull_policy=PULL_POLICY,
            env=[
                # A node whose driver is still being installed has no GPUs yet: wait, do not crash.
                core.v1.EnvVarArgs(name="FAIL_ON_INIT_ERROR", value="false"),
            ],
            security_context=confined(read_only=False),
            resources=_resources("50m", "64Mi", "256Mi"),
            volume_mounts=[_mount("device-plugins", DEVICE_PLUGINS)],
        ),
    )


def efa_plugin(args: DevicePluginsArgs, image: str) -> Daemon:
    """Give Amazon's plugin for the Elastic Fabric Adapter."""
    return Daemon(
        name=EFA_PLUGIN,
        namespace=args.namespace,
        placement=args.placement,
        host_network=True,  # the adapters stand in the node's network
        host_folders={"device-plugins": DEVICE_PLUGINS, "infiniband": "/dev/infiniband"},
        container=core.v1.ContainerArgs(
            name="plugin",
            image=image,
            image_pull_policy=PULL_POLICY,
            security_context=confined(read_only=False),
            resources=_resources("10m", "20Mi", "128Mi"),
            volume_mounts=[
                _mount("device-plugins", DEVICE_PLUGINS),
                _mount("infiniband", "/dev/infiniband"),
            ],
        ),
    )


def _resources(cpu: str, memory: str, most: str) -> core.v1.ResourceRequirementsArgs:
    return core.v1.ResourceRequirementsArgs(
        requests={"cpu": cpu, "memory": memory}, limits={"memory": most}
    )


def _mount(name: str, path: str) -> core.v1.VolumeMountArgs:
    return core.v1.VolumeMountArgs(name=name, mount_path=path)
