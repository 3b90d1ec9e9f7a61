"""Stacks on Azure for tests: from sections of a stack file to the recorded graph."""

from functools import cache
from typing import Any

from components.azure.environment import AksEnvironment, AksEnvironmentArgs
from components.config import AksConfig, BlobConfig, StackConfig, as_kind, from_mapping
from tests.components.certificates import CA
from tests.components.recorder import Graph, record
from tests.components.training import record_training

STACK = "aks-test"
ADMINISTRATORS = "11111111-2222-3333-4444-555555555555"
ZONE = (
    "/subscriptions/22222222-3333-4444-5555-666666666666/resourceGroups/hub"
    "/providers/Microsoft.Network/privateDnsZones/privatelink.eastus.azmk8s.io"
)
SNAPSHOTS = (
    "/subscriptions/22222222-3333-4444-5555-666666666666/resourceGroups/images"
    "/providers/Microsoft.ContainerService/snapshots"
)
TAGS = {"owner": "vision", "costCenter": "4711", "environment": "dev"}
CLUSTER = {
    "kind": "aks",
    "authorizedRanges": ["203.0.113.0/24", "198.51.100.9/32"],
    "administrators": [ADMINISTRATORS],
}


def aks_config(**sections: Any) -> StackConfig:
    """Return a configuration; `cluster` is merged into a complete cluster section."""
    cluster = {**CLUSTER, **sections.pop("cluster", {})}
    return from_mapping({"tags": TAGS, "cluster": cluster, **sections})


def cluster_of(**sections: Any) -> AksConfig:
    """Return the cluster section of `aks_config`."""
    return as_kind(aks_config(**sections).cluster, AksConfig)


def blob_of(**storage: Any) -> BlobConfig:
    """Return a storage section."""
    return as_kind(aks_config(storage={"kind": "blob", **storage}).storage, BlobConfig)


def declare_aks(**sections: Any) -> Graph:
    """Declare all Azure resources of a stack."""
    config = aks_config(**sections)

    def program() -> dict[str, Any]:
        environment = AksEnvironment(
            "aks", AksEnvironmentArgs(config=config, stack=STACK)
        ).environment
        return {
            "location": environment.volume.location,
            "kubeconfig": environment.cluster.kubeconfig,
            "endpoint": environment.cluster.endpoint,
            "registry": environment.registry,
            **environment.outputs,
        }

    return record(program)


def declare_training(**sections: Any) -> Graph:
    """Declare all resources of a stack, including its training job."""
    config = aks_config(**sections)
    args = AksEnvironmentArgs(config=config, stack=STACK)
    return record_training(config, lambda: AksEnvironment("aks", args).environment)


@cache
def plain_stack() -> Graph:
    """Declare a stack with the required keys and a group of administrators."""
    return declare_aks()


@cache
def training_stack() -> Graph:
    """Declare a complete stack on Azure, with a fallback pool and a training job."""
    return declare_training(cluster={"gpuPool": {"fallbackNodes": 2}})


@cache
def all_features_stack() -> Graph:
    """Declare a production stack with a fallback pool, monitoring, a registry and a budget."""
    return declare_aks(
        tags={**TAGS, "environment": "prod"},
        protect=True,
        cluster={
            "gpuPool": {"fallbackNodes": 2},
            "monitoring": {
                "containerInsights": True,
                "managedPrometheus": True,
                "jobMetrics": True,
            },
        },
        registry={"kind": "acr", "name": "visionimages", "keepImages": 5},
        cost={"budget": {"monthlyUsd": 500, "email": "owner@example.org"}},
    )


@cache
def spoke_stack() -> Graph:
    """Declare a stack in a spoke of a hub-and-spoke network."""
    return declare_aks(
        cluster={
            "network": {
                "egress": "userDefinedRouting",
                "firewallIp": "10.100.0.4",
                "proxy": {
                    "http": "http://proxy.example.org:3128",
                    "noProxy": [".corp.example.org"],
                    "trustedCa": CA,
                },
            },
            "authorizedRanges": [],
            "privateApi": True,
            "privateDnsZone": ZONE,
            "systemPool": {"snapshotId": f"{SNAPSHOTS}/system"},
            "gpuPool": {"snapshotId": f"{SNAPSHOTS}/gpu", "fallbackNodes": 1},
            "upgrades": {"channel": "none", "nodeImage": "None"},
        }
    )
