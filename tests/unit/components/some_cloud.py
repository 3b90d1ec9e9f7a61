"""A stack on a cloud that is none in particular: what the platform may rely on, and nothing more.

The cloud's own modules are tried by their own tests; here the rest of a stack meets a cluster, a
volume and taints of the shapes that they give.
"""

from functools import cache
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes import core

from components.cluster import Cluster, Placement
from components.config import TolerationConfig, from_mapping
from components.part import Part
from components.stack import TrainingStack, TrainingStackArgs
from components.storage import VolumeSource
from tests.unit.components.recorder import Graph, record

GPU_TAINTS = (
    TolerationConfig(key="everstep/spot", value="true"),
    TolerationConfig(key="kubernetes.azure.com/scalesetpriority", value="spot"),
)
ALL_SERVICES = {
    "gpuPlugin": {"enabled": True},
    "metrics": {"enabled": True},
    "spot": {"enabled": True},
}


class SomeCloud(Part):
    """Network, file system, node group, storage driver, and a provider that waits for them.

    They are ConfigMaps: what they are does not matter here, only what waits for them, and the
    recorder knows no cloud's resources without that cloud's SDK.
    """

    def __init__(self, name: str, *, efa_interfaces: int = 0) -> None:
        super().__init__("environment:SomeCloud", name)
        network = self._made("network")
        files = self._made("files", network)
        control_plane = self._made("cluster", network)
        nodes = self._made("nodes", control_plane)
        driver = self._made("driver", nodes)
        provider = kubernetes.Provider(
            f"{name}-kubernetes", kubeconfig="contexts: []", opts=self.child(after=[nodes])
        )
        self.cluster = Cluster(
            provider=provider,
            gpu_pool=Placement(selector={"everstep/pool": "gpu-spot"}, tolerations=GPU_TAINTS),
            system_pool=Placement(selector={"everstep/pool": "system"}, tolerations=()),
            kubeconfig=pulumi.Output.secret("contexts: []"),
            region="mars-north-1",
            efa_interfaces=efa_interfaces,
        )
        self.volume = VolumeSource(
            spec={"csi": core.v1.CSIPersistentVolumeSourceArgs(driver="d", volume_handle="v")},
            where=pulumi.Output.from_input("somecloud://training"),
            size="1200Gi",
            annotations={"pv.kubernetes.io/provisioned-by": "d"},
            mount_options=["flock"],
            service_account_annotations={"client-id": "c"},
            service_account_labels={"use": "true"},
            pod_labels={"let-me": "in"},
            ready=[files, driver],
        )
        self.register_outputs({})

    def _made(self, what: str, *after: pulumi.Resource) -> pulumi.Resource:
        return core.v1.ConfigMap(f"{self.name}-{what}", opts=self.child(after=after))


def on_some_cloud(*, efa_interfaces: int = 0, **sections: Any) -> Graph:
    """Declare a whole stack with all the services that a cloud's GPU nodes need."""
    sections = {"platform": ALL_SERVICES, "etcd": {"persistence": "memory"}, **sections}
    config = from_mapping(sections)

    def program() -> dict[str, Any]:
        cloud = SomeCloud("cloud", efa_interfaces=efa_interfaces)
        args = TrainingStackArgs(config=config, cluster=cloud.cluster, volume=cloud.volume)
        return TrainingStack("training", args).outputs

    return record(program)


@cache
def usual() -> Graph:
    """The same for all tests that only look."""
    return on_some_cloud(job={"name": "fashion"})
