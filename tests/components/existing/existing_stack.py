"""Stacks on an existing cluster for tests: from sections of a stack file to the recorded graph."""

from functools import cache
from typing import Any

import pulumi

from components.config import ExistingClusterConfig, as_kind, from_mapping
from components.existing.cluster import ExistingCluster, ExistingClusterArgs
from components.existing.environment import volume_source
from components.platform.image_pull import RegistryLogin
from components.stack import TrainingStack, TrainingStackArgs
from tests.components.recorder import Graph, RecordedResource, record

SPOT = {
    "selector": {"everstep.dev/pool": "gpu-spot"},
    "tolerations": [{"key": "everstep.dev/spot", "value": "true"}],
}
SYSTEM = {"selector": {"everstep.dev/pool": "system"}}


def declare_existing(**sections: Any) -> Graph:
    """Declare a stack on an existing cluster with a GPU pool and a system pool."""
    pools = {"gpuPool": SPOT, "systemPool": SYSTEM}
    config = from_mapping({"cluster": pools, **sections})

    def program() -> dict[str, Any]:
        cluster_config = as_kind(config.cluster, ExistingClusterConfig)
        args = ExistingClusterArgs(config=cluster_config, kubeconfig="contexts: []")
        cluster = ExistingCluster("cluster", args).cluster
        volume = volume_source(config.storage, cluster)
        logins = tuple(
            RegistryLogin(host, user, pulumi.Output.secret(f"password of {user}"))
            for host, user in config.platform.registry_logins.items()
        )
        training = TrainingStackArgs(config=config, cluster=cluster, volume=volume, logins=logins)
        return dict(TrainingStack("training", training).outputs)

    return record(program)


def pod_of(resource: RecordedResource) -> dict[str, Any]:
    """Return the pod spec of a workload; for an ElasticJob, the worker's."""
    spec = resource.inputs["spec"]
    if resource.type.endswith(":ElasticJob"):
        spec = spec["replicaSpecs"]["Worker"]
    pod: dict[str, Any] = spec["template"]["spec"]
    return pod


UPSTREAM = {"kind": "upstream", "image": "torchelastic/kubernetes:0.1.0"}


@cache
def maintained_stack() -> Graph:
    """Declare a stack with Everstep's controller."""
    return declare_existing(job={"name": "fashion"})


@cache
def upstream_stack() -> Graph:
    """Declare a stack with the upstream controller."""
    return declare_existing(job={"name": "fashion"}, controller=UPSTREAM)
