"""Stacks on AWS for tests: from sections of a stack file to the recorded graph."""

import json
from functools import cache
from typing import Any

from components.aws.environment import EksEnvironment, EksEnvironmentArgs
from components.config import EksConfig, StackConfig, as_kind, from_mapping
from tests.components.recorder import Graph, RecordedResource, record
from tests.components.training import record_training

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
    """Return a configuration; `cluster` is merged into a complete cluster section."""
    cluster = {**CLUSTER, **sections.pop("cluster", {})}
    return from_mapping({"tags": TAGS, "etcd": MEMORY, "cluster": cluster, **sections})


def cluster_of(**cluster: Any) -> EksConfig:
    """Return the cluster section of `eks_config`."""
    return as_kind(eks_config(cluster=cluster).cluster, EksConfig)


def declare_eks(**sections: Any) -> Graph:
    """Declare all AWS resources of a stack."""
    config = eks_config(**sections)

    def program() -> dict[str, Any]:
        environment = EksEnvironment(
            "eks", EksEnvironmentArgs(config=config, stack=STACK)
        ).environment
        return {
            "location": environment.volume.location,
            "kubeconfig": environment.cluster.kubeconfig,
            "endpoint": environment.cluster.endpoint,
            "registry": environment.registry,
            "efaInterfaces": environment.cluster.efa_interfaces,
            **environment.outputs,
        }

    return record(program)


@cache
def plain_stack() -> Graph:
    """Declare a stack with defaults, except its administrator and the network that may reach the API."""
    return declare_eks()


@cache
def all_features_stack() -> Graph:
    """Declare a production stack with EFA, a fallback pool, monitoring, a registry and a budget."""
    return declare_eks(
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
            "monitoring": {"containerInsights": True, "managedPrometheus": True},
        },
        storage={"kind": "fsx", "deploymentType": "PERSISTENT_2", "sizeGib": 2400},
        registry={"kind": "ecr", "name": "vision", "keepImages": 5},
        cost={"budget": {"monthlyUsd": 500, "email": "owner@example.org"}},
    )


@cache
def existing_vpc_stack() -> Graph:
    """Declare a stack in the user's VPC with the user's file system, a private API and no autoscaler."""
    zones = {"us-east-1a": "subnet-0aaaaaaa", "us-east-1b": "subnet-0bbbbbbb"}
    file_system = {
        "fileSystemId": "fs-0123456789abcdef0",
        "dnsName": "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
        "mountName": "abcdefgh",
        "zone": "us-east-1a",
    }
    return declare_eks(
        cluster={
            "network": {"vpcId": "vpc-0123456789abcdef0", "privateSubnetIds": zones},
            "autoscaling": {"enabled": False},
            "gpuPool": {"nodes": 3},
            "publicAccess": [],
            "administrators": [],
            "addonVersions": {"coredns": "v1.13.2-eksbuild.9"},
        },
        storage={"kind": "fsx", "existing": file_system},
    )


@cache
def training_stack() -> Graph:
    """Declare a complete stack on AWS, including its training job."""
    return declare_training(job={"name": "fashion"})


def declare_training(**sections: Any) -> Graph:
    """Declare all resources of a stack, including its training job."""
    config = eks_config(**sections)
    args = EksEnvironmentArgs(config=config, stack=STACK)
    return record_training(config, lambda: EksEnvironment("eks", args).environment)


def policy_statements(resource: RecordedResource, key: str = "policy") -> list[dict[str, Any]]:
    """Return the statements of a resource's policy document."""
    statements: list[dict[str, Any]] = json.loads(resource.inputs[key])["Statement"]
    return statements
