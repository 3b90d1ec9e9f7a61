"""Stacks on Azure as tests declare them: sections of a stack file in, the recorded graph out."""

from functools import cache
from typing import Any

from components.config import AksConfig, BlobConfig, StackConfig, as_kind, from_mapping
from components.environment.aks import declare_aks
from tests.unit.components.recorder import Graph, record

STACK = "aks-test"
ADMINISTRATORS = "11111111-2222-3333-4444-555555555555"
TAGS = {"owner": "vision", "costCenter": "4711", "environment": "dev"}
CLUSTER = {
    "kind": "aks",
    "authorizedRanges": ["203.0.113.0/24", "198.51.100.9/32"],
    "administrators": [ADMINISTRATORS],
}


def aks_config(**sections: Any) -> StackConfig:
    """Give a configuration; `cluster` is laid over one that is complete."""
    cluster = {**CLUSTER, **sections.pop("cluster", {})}
    return from_mapping({"tags": TAGS, "cluster": cluster, **sections})


def cluster_of(**sections: Any) -> AksConfig:
    """Give the cluster's section of `aks_config`."""
    return as_kind(aks_config(**sections).cluster, AksConfig)


def blob_of(**storage: Any) -> BlobConfig:
    """Give a storage section."""
    return as_kind(aks_config(storage={"kind": "blob", **storage}).storage, BlobConfig)


def declared_aks(**sections: Any) -> Graph:
    """Declare all that such a stack has on Azure."""
    config = aks_config(**sections)

    def program() -> dict[str, Any]:
        made = declare_aks(config, STACK)
        return {
            "where": made.volume.where,
            "kubeconfig": made.cluster.kubeconfig,
            "endpoint": made.cluster.endpoint,
            "registry": made.registry,
            **made.outputs,
        }

    return record(program)


@cache
def plain() -> Graph:
    """A stack that says no more than it must."""
    return declared_aks()


@cache
def full() -> Graph:
    """A stack of production with everything that can be asked for."""
    return declared_aks(
        tags={**TAGS, "environment": "prod"},
        protect=True,
        cluster={
            "gpuPool": {"fallbackNodes": 2},
            "monitoring": {"containerInsights": True, "managedPrometheus": True},
        },
        registry={"kind": "acr", "name": "visionimages", "keepImages": 5},
        cost={"budget": {"monthlyUsd": 500, "email": "owner@example.org"}},
    )
