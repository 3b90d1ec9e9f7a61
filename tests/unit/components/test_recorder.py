"""The recorder itself: what Pulumi's own mocks would let pass is refused."""

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from tests.unit.components.recorder import record
from tests.unit.components.sdk_types import UNKNOWN, complaints

GROUP = "aws:eks/nodeGroup:NodeGroup"
RIGHT = {
    "clusterName": "everstep",
    "nodeRoleArn": "arn:aws:iam::123456789012:role/nodes",
    "subnetIds": ["subnet-1"],
    "scalingConfig": {"minSize": 0, "maxSize": 3, "desiredSize": 1},
}


def test_a_right_resource_gets_no_complaint() -> None:
    assert complaints(GROUP, RIGHT) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clusterNam": "x"}, "clusterNam is not known"),
        ({"scalingConfig": {**RIGHT["scalingConfig"], "maxSizee": 1}}, "maxSizee is not known"),  # type: ignore[dict-item]  # a mapping it is
        ({"scalingConfig": {"minSize": 0, "maxSize": 3}}, "desiredSize is missing"),
        ({"subnetIds": "subnet-1"}, "subnetIds must be a list"),
        ({"subnetIds": []}, "subnetIds is empty"),
        ({"labels": {"a": True}}, "labels.a must be str"),
        ({"clusterName": UNKNOWN}, "clusterName is unknown"),
        ({"taints": [{"key": "a"}]}, "taints[0].effect is missing"),
        ({"diskSize": True}, "diskSize must be int"),
    ],
)
def test_a_wrong_input_is_named(change: dict[str, Any], said: str) -> None:
    assert any(said in one for one in complaints(GROUP, {**RIGHT, **change}))


def test_a_word_outside_an_enumeration_is_named() -> None:
    pool = {"resourceGroupName": "a", "resourceName": "b", "scaleSetPriority": "Spott"}

    (said,) = complaints("azure-native:containerservice:AgentPool", pool)

    assert "scaleSetPriority is none of ['Spot', 'Regular']" in said


def test_a_type_that_no_sdk_has_is_refused() -> None:
    with pytest.raises(AssertionError, match="no arguments of aws:eks/nodeGruop:NodeGruop"):
        complaints("aws:eks/nodeGruop:NodeGruop", {})


def two_of_one_name() -> None:
    aws.ec2.Vpc("network", cidr_block="10.0.0.0/16")
    aws.ec2.Eip("network", domain="vpc")


def an_output_that_got_lost() -> None:
    vpc = aws.ec2.Vpc("network", cidr_block="10.0.0.0/16")
    nothing = vpc.ipv6_cidr_block.apply(lambda block: {"block": block} if block else {})
    aws.ec2.Subnet("subnet", vpc_id=vpc.id, tags=nothing)


@pytest.mark.parametrize(
    ("program", "said"),
    [(two_of_one_name, "two resources are named network"), (an_output_that_got_lost, "tags is em")],
)
def test_a_program_that_mocks_would_let_pass_fails(program: Callable[[], None], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        record(program)


def test_order_comes_from_dependencies_and_from_what_is_read() -> None:
    def program() -> None:
        vpc = aws.ec2.Vpc("network", cidr_block="10.0.0.0/16")
        subnet = aws.ec2.Subnet("subnet", vpc_id=vpc.id, cidr_block="10.0.0.0/20")
        aws.ec2.Eip("address", opts=pulumi.ResourceOptions(depends_on=[subnet], protect=True))

    graph = record(program)

    assert graph.ancestors("address") == {"subnet", "network"}
    assert set(graph["subnet"].property_dependencies["vpcId"]) == {graph["network"].urn}
    assert graph["address"].protect
    assert not graph["subnet"].protect


def test_a_provider_must_outlive_what_it_made() -> None:
    def program() -> None:
        provider = aws.Provider("aws", region="us-east-1")
        aws.ec2.Vpc(
            "network", cidr_block="10.0.0.0/16", opts=pulumi.ResourceOptions(provider=provider)
        )

    assert record(program).ancestors("network") == {"aws"}
