"""Stacks on AWS as tests declare them: sections of a stack file in, the recorded graph out."""

import json
from functools import cache
from typing import Any

from components.config import EksConfig, FsxConfig, StackConfig, as_kind, from_mapping
from components.environment.eks import declare_eks
from components.stack import TrainingStack, TrainingStackArgs
from tests.unit.components.recorder import Graph, Recorded, record

STACK = "eks-test"
ADMINISTRATOR = "arn:aws:iam::123456789012:role/platform/engineers"
TAGS = {"owner": "vision", "costCenter": "4711", "environment": "dev"}
CLUSTER = {
    "kind": "eks",
    "publicAccess": ["203.0.113.0/24"],
    "administrators": [ADMINISTRATOR],
}
MEMORY = {"persistence": "memory"}
PRODUCTION: dict[str, Any] = {"tags": {**TAGS, "environment": "prod"}, "protect": True}


def eks_config(**sections: Any) -> StackConfig:
    """Give a configuration; `cluster` is laid over one that is complete."""
    cluster = {**CLUSTER, **sections.pop("cluster", {})}
    return from_mapping({"tags": TAGS, "etcd": MEMORY, "cluster": cluster, **sections})


def cluster_of(**cluster: Any) -> EksConfig:
    """Give a cluster's section."""
    return as_kind(eks_config(cluster=cluster).cluster, EksConfig)


def fsx_of(**storage: Any) -> FsxConfig:
    """Give a storage section."""
    return as_kind(eks_config(storage={"kind": "fsx", **storage}).storage, FsxConfig)


def declared_eks(**sections: Any) -> Graph:
    """Declare all that such a stack has on AWS."""
    config = eks_config(**sections)

    def program() -> dict[str, Any]:
        made = declare_eks(config, STACK)
        return {
            "where": made.volume.where,
            "kubeconfig": made.cluster.kubeconfig,
            "endpoint": made.cluster.endpoint,
            "registry": made.registry,
            "efaInterfaces": made.cluster.efa_interfaces,
            **made.outputs,
        }

    return record(program)


@cache
def plain() -> Graph:
    """A stack that says no more than it must."""
    return declared_eks()


@cache
def full() -> Graph:
    """A stack of production with everything that can be asked for."""
    return declared_eks(
        **PRODUCTION,
        cluster={
            "zones": ["us-east-1a", "us-east-1b", "us-east-1c"],
            "network": {"natPerZone": True},
            "gpuPool": {
                "zone": "us-east-1b",
                "instanceTypes": ["p4d.24xlarge"],
                "fallbackNodes": 2,
                "efa": True,
            },
        },
        storage={"kind": "fsx", "deploymentType": "PERSISTENT_2", "sizeGib": 2400},
        registry={"kind": "ecr", "name": "vision", "keepImages": 5},
        cost={"budget": {"monthlyUsd": 500, "email": "owner@example.org"}},
    )


@cache
def own() -> Graph:
    """A stack in the user's own VPC, over the user's own file system, private, never scaled."""
    zones = {"us-east-1a": "subnet-0aaaaaaa", "us-east-1b": "subnet-0bbbbbbb"}
    system = {
        "fileSystemId": "fs-0123456789abcdef0",
        "dnsName": "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
        "mountName": "abcdefgh",
        "zone": "us-east-1a",
    }
    return declared_eks(
        cluster={
            "network": {"vpcId": "vpc-0123456789abcdef0", "privateSubnetIds": zones},
            "autoscaling": {"enabled": False},
            "publicAccess": [],
            "administrators": [],
            "addonVersions": {"coredns": "v1.13.2-eksbuild.9"},
        },
        storage={"kind": "fsx", "existing": system},
    )


@cache
def whole() -> Graph:
    """A stack on AWS with the training on top of it."""
    config = eks_config(job={"name": "fashion"})

    def program() -> dict[str, Any]:
        made = declare_eks(config, STACK)
        args = TrainingStackArgs(config=config, cluster=made.cluster, volume=made.volume)
        return dict(TrainingStack("training", args).outputs)

    return record(program)


def document(resource: Recorded, key: str = "policy") -> list[dict[str, Any]]:
    """Give the statements of a resource's policy document."""
    said: list[dict[str, Any]] = json.loads(resource.inputs[key])["Statement"]
    return said
