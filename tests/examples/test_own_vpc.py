"""The example of a program that uses the components with the VPC of another stack."""

import runpy
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pulumi

from tests.components.pulumi_config import pulumi_config
from tests.components.recorder import Graph, record

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "own-vpc" / "__main__.py"
SUBNETS = ["subnet-0aaaaaaa", "subnet-0bbbbbbb"]


@cache
def graph() -> Graph:
    def program() -> dict[str, Any]:
        outputs: dict[str, Any] = {}
        # `pulumi.export` works only in a program that the engine runs; the recorder takes a return value.
        export = patch.object(pulumi, "export", outputs.__setitem__)
        with pulumi_config({"network:stack": "acme/network/dev"}), export:
            runpy.run_path(str(PROGRAM), run_name="__main__")
        return outputs

    return record(program)


def test_the_cluster_and_its_nodes_are_in_the_subnets_of_the_other_stack() -> None:
    cluster = graph().one("Cluster").inputs["vpcConfig"]

    assert cluster["subnetIds"] == SUBNETS
    for group in graph().some_of_type("NodeGroup"):
        assert set(group.inputs["subnetIds"]) <= set(SUBNETS), group.name


def test_the_file_system_is_in_the_vpc_of_the_other_stack() -> None:
    assert graph().one("LustreFileSystem").inputs["subnetIds"] == "subnet-0aaaaaaa"
    assert graph()["eks-storage-group"].inputs["vpcId"] == "vpc-0123456789abcdef0"


def test_no_network_is_created() -> None:
    created_types = {resource.type for resource in graph().resources_of("aws")}

    assert not created_types & {
        "aws:ec2/vpc:Vpc",
        "aws:ec2/subnet:Subnet",
        "aws:ec2/natGateway:NatGateway",
    }, "the other stack manages the network"


def test_the_training_job_runs_on_the_cluster() -> None:
    job = graph().one("ElasticJob")

    assert "eks-kubernetes" in job.provider
    assert graph().outputs["job"] == "fashion"
