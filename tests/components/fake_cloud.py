"""A stack on a fake cloud with only the interface that the platform relies on.

The AWS and Azure components have their own tests. Here the rest of a stack is declared with a
cluster, a volume and taints as these components return them.
"""

from functools import cache
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes import core

from components.component import Component
from components.config import TolerationConfig, from_mapping
from components.interface import Cluster, Placement, VolumeSource
from components.stack import TrainingStack, TrainingStackArgs
from tests.components.recorder import Graph, record

GPU_TAINTS = (
    TolerationConfig(key="everstep.dev/spot", value="true"),
    TolerationConfig(key="kubernetes.azure.com/scalesetpriority", value="spot"),
)
ALL_SERVICES = {
    "gpuPlugin": {"enabled": True},
    "metrics": {"enabled": True},
    "spot": {"enabled": True},
}


class FakeCloud(Component):
    """Network, file system, control plane, nodes, storage driver, and a provider that depends on the nodes.

    All are ConfigMaps: only the dependencies on them matter here, and the recorder has no schema of
    a cloud's resources without that cloud's SDK.
    """

    def __init__(
        self, name: str, *, efa_interfaces: int = 0, scales_from_zero: bool = False
    ) -> None:
        super().__init__("environment:FakeCloud", name)
        network = self._resource("network")
        files = self._resource("files", network)
        control_plane = self._resource("cluster", network)
        nodes = self._resource("nodes", control_plane)
        driver = self._resource("driver", nodes)
        provider = kubernetes.Provider(
            f"{name}-kubernetes", kubeconfig="contexts: []", opts=self.child(depends_on=[nodes])
        )
        self.cluster = Cluster(
            provider=provider,
            gpu_pool=Placement(selector={"everstep.dev/pool": "gpu-spot"}, tolerations=GPU_TAINTS),
            system_pool=Placement(selector={"everstep.dev/pool": "system"}, tolerations=()),
            kubeconfig=pulumi.Output.secret("contexts: []"),
            region="mars-north-1",
            efa_interfaces=efa_interfaces,
            scales_from_zero=scales_from_zero,
        )
        self.volume = VolumeSource(
            spec={"csi": core.v1.CSIPersistentVolumeSourceArgs(driver="d", volume_handle="v")},
            location=pulumi.Output.from_input("somecloud://training"),
            size="1200Gi",
            annotations={"pv.kubernetes.io/provisioned-by": "d"},
            mount_options=["flock"],
            service_account_annotations={"client-id": "c"},
            service_account_labels={"use": "true"},
            pod_labels={"access": "granted"},
            prerequisites=[files, driver],
        )
        self.register_outputs({})

    def _resource(self, part: str, *prerequisites: pulumi.Resource) -> pulumi.Resource:
        return core.v1.ConfigMap(f"{self.name}-{part}", opts=self.child(depends_on=prerequisites))


def fake_cloud_graph(
    *, efa_interfaces: int = 0, scales_from_zero: bool = False, **sections: Any
) -> Graph:
    """Declare a complete stack with all the services that a cloud's GPU nodes need."""
    sections = {"platform": ALL_SERVICES, "etcd": {"persistence": "memory"}, **sections}
    config = from_mapping(sections)

    def program() -> dict[str, Any]:
        cloud = FakeCloud("cloud", efa_interfaces=efa_interfaces, scales_from_zero=scales_from_zero)
        args = TrainingStackArgs(config=config, cluster=cloud.cluster, volume=cloud.volume)
        return dict(TrainingStack("training", args).outputs)

    return record(program)


@cache
def default_graph() -> Graph:
    """Return the graph of the default stack, declared once and shared by all tests that only read it."""
    return fake_cloud_graph(job={"name": "fashion"})
