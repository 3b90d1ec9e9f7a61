"""Stacks as tests declare them: sections of a stack file in, the recorded graph out."""

from typing import Any

from components.cluster.existing import ExistingCluster, ExistingClusterArgs
from components.config import from_mapping
from components.stack import TrainingStack, TrainingStackArgs
from components.storage.hostpath import host_path
from tests.unit.components.recorder import Graph, Recorded, record

SPOT = {
    "selector": {"everstep/pool": "gpu-spot"},
    "tolerations": [{"key": "everstep/spot", "value": "true"}],
}
SYSTEM = {"selector": {"everstep/pool": "system"}}


def declared(**sections: Any) -> Graph:
    pools = {"gpuPool": SPOT, "systemPool": SYSTEM}
    config = from_mapping({"cluster": pools, **sections})

    def program() -> dict[str, Any]:
        args = ExistingClusterArgs(config=config.cluster, kubeconfig="contexts: []")
        cluster = ExistingCluster("cluster", args).cluster
        volume = host_path(config.storage.path, config.storage.size)
        training = TrainingStackArgs(config=config, cluster=cluster, volume=volume)
        return TrainingStack("training", training).outputs

    return record(program)


def pod_of(resource: Recorded) -> dict[str, Any]:
    spec = resource.inputs["spec"]
    if resource.type.endswith(":ElasticJob"):
        spec = spec["replicaSpecs"]["Worker"]
    pod: dict[str, Any] = spec["template"]["spec"]
    return pod
