"""The recorder: it refuses inputs that Pulumi's own mocks accept."""

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from tests.components.recorder import record
from tests.components.sdk_schema import UNKNOWN, schema_errors

GROUP = "aws:eks/nodeGroup:NodeGroup"
SCALING = {"minSize": 0, "maxSize": 3, "desiredSize": 1}
VALID_INPUTS = {
    "clusterName": "everstep",
    "nodeRoleArn": "arn:aws:iam::123456789012:role/nodes",
    "subnetIds": ["subnet-1"],
    "scalingConfig": SCALING,
}


def test_valid_inputs_have_no_errors() -> None:
    assert schema_errors(GROUP, VALID_INPUTS) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"clusterNam": "x"}, "clusterNam is not known"),
        ({"scalingConfig": {**SCALING, "maxSizee": 1}}, "maxSizee is not known"),
        ({"scalingConfig": {"minSize": 0, "maxSize": 3}}, "desiredSize is missing"),
        ({"subnetIds": "subnet-1"}, "subnetIds must be a list"),
        ({"subnetIds": []}, "subnetIds is empty"),
        ({"labels": {"a": True}}, "labels.a must be str"),
        ({"clusterName": UNKNOWN}, "clusterName is unknown"),
        ({"taints": [{"key": "a"}]}, "taints[0].effect is missing"),
        ({"diskSize": True}, "diskSize must be int"),
    ],
)
def test_an_invalid_input_is_reported(change: dict[str, Any], expected: str) -> None:
    assert any(expected in error for error in schema_errors(GROUP, {**VALID_INPUTS, **change}))


def test_a_value_outside_an_enumeration_is_reported() -> None:
    pool = {"resourceGroupName": "a", "resourceName": "b", "scaleSetPriority": "Spott"}

    (error,) = schema_errors("azure-native:containerservice:AgentPool", pool)

    assert "scaleSetPriority is not one of ['Spot', 'Regular']" in error


def test_an_unknown_resource_type_is_refused() -> None:
    with pytest.raises(AssertionError, match="no arguments of aws:eks/nodeGruop:NodeGruop"):
        schema_errors("aws:eks/nodeGruop:NodeGruop", {})


def duplicate_name() -> None:
    aws.ec2.Vpc("network", cidr_block="10.0.0.0/16")
    aws.ec2.Eip("network", domain="vpc")


def lost_output() -> None:
    vpc = aws.ec2.Vpc("network", cidr_block="10.0.0.0/16")
    empty_tags = vpc.ipv6_cidr_block.apply(lambda block: {"block": block} if block else {})
    aws.ec2.Subnet("subnet", vpc_id=vpc.id, tags=empty_tags)


@pytest.mark.parametrize(
    ("program", "expected"),
    [(duplicate_name, "two resources are named network"), (lost_output, "tags is empty")],
)
def test_a_program_that_pulumis_mocks_accept_fails(
    program: Callable[[], None], expected: str
) -> None:
    with pytest.raises(AssertionError, match=expected):
        record(program)


def test_order_follows_explicit_and_implicit_dependencies() -> None:
    def program() -> None:
        vpc = aws.ec2.Vpc("network", cidr_block="10.0.0.0/16")
        subnet = aws.ec2.Subnet("subnet", vpc_id=vpc.id, cidr_block="10.0.0.0/20")
        aws.ec2.Eip("address", opts=pulumi.ResourceOptions(depends_on=[subnet], protect=True))

    graph = record(program)

    assert graph.ancestors("address") == {"subnet", "network"}
    assert set(graph["subnet"].property_dependencies["vpcId"]) == {graph["network"].urn}
    assert graph["address"].protect
    assert not graph["subnet"].protect


def test_a_provider_outlives_its_resources() -> None:
    def program() -> None:
        provider = aws.Provider("aws", region="us-east-1")
        aws.ec2.Vpc(
            "network", cidr_block="10.0.0.0/16", opts=pulumi.ResourceOptions(provider=provider)
        )

    assert record(program).ancestors("network") == {"aws"}
