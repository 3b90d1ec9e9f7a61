"""The VPC of an EKS cluster: made over two or three zones, or the user's own."""

from collections.abc import Mapping
from ipaddress import IPv4Network
from itertools import combinations

import pytest

from components.network.cidr import subnets
from tests.unit.components.eks_stack import full, own, plain
from tests.unit.components.recorder import Graph, Recorded


def by_zone(graph: Graph, side: str) -> Mapping[str, Recorded]:
    return {
        one.inputs["availabilityZone"]: one
        for one in graph.of("Subnet")
        if one.name.startswith(f"eks-network-{side}-")
    }


def test_every_zone_has_a_private_subnet_of_its_own_addresses() -> None:
    found = by_zone(plain(), "private")
    blocks = [IPv4Network(one.inputs["cidrBlock"]) for one in plain().of("Subnet")]

    assert set(found) == {"us-east-1a", "us-east-1b"}
    assert all(block.subnet_of(IPv4Network("10.0.0.0/16")) for block in blocks)
    assert not any(one.overlaps(other) for one, other in combinations(blocks, 2))


def test_a_zone_keeps_its_addresses_when_another_one_is_put_before_it() -> None:
    before, after = (
        subnets("10.0.0.0/16", zones)
        for zones in (["us-east-1b", "us-east-1c"], ["us-east-1a", "us-east-1b", "us-east-1c"])
    )

    assert before["us-east-1b"] == after["us-east-1b"], "its subnet and all in it would be replaced"


def test_no_subnet_gives_machines_a_public_address() -> None:
    for one in plain().of("Subnet"):
        assert not one.inputs.get("mapPublicIpOnLaunch")


def test_one_gateway_serves_all_zones_from_that_of_the_gpus() -> None:
    (gateway,) = plain().of("NatGateway")
    routes = [one for one in plain().of("Route") if "natGatewayId" in one.inputs]

    assert gateway.inputs["subnetId"] == "eks-network-public-us-east-1a-id"
    assert {one.inputs["natGatewayId"] for one in routes} == {f"{gateway.name}-id"}
    assert {one.inputs["routeTableId"] for one in routes} == {
        "eks-network-private-us-east-1a-table-id",
        "eks-network-private-us-east-1b-table-id",
    }


def test_a_gateway_a_zone_serves_its_own_zone() -> None:
    routes = {one.name: one.inputs for one in full().of("Route") if "natGatewayId" in one.inputs}

    assert len(full().of("NatGateway")) == 3
    for zone in ("us-east-1a", "us-east-1b", "us-east-1c"):
        said = routes[f"eks-network-private-{zone}-route"]
        assert said["natGatewayId"] == f"eks-network-nat-{zone}-id"


@pytest.mark.parametrize("side", ["private", "public"])
def test_every_subnet_is_tied_to_a_table(side: str) -> None:
    tied = {one.inputs["subnetId"] for one in plain().of("RouteTableAssociation")}

    assert {f"{one.name}-id" for one in by_zone(plain(), side).values()} <= tied


def test_s3_is_reached_past_the_gateway_from_every_private_subnet() -> None:
    endpoint = plain().one("VpcEndpoint").inputs

    assert (endpoint["vpcEndpointType"], endpoint["serviceName"]) == (
        "Gateway",
        "com.amazonaws.us-east-1.s3",
    )
    assert set(endpoint["routeTableIds"]) == {
        "eks-network-private-us-east-1a-table-id",
        "eks-network-private-us-east-1b-table-id",
    }


def test_names_are_resolved_in_the_vpc() -> None:
    vpc = plain().one("Vpc").inputs

    assert vpc["enableDnsHostnames"] is True, "FSx and the private API are found by name"
    assert vpc["enableDnsSupport"] is True


def test_nodes_and_control_plane_go_into_the_users_own_subnets() -> None:
    theirs = {"subnet-0aaaaaaa", "subnet-0bbbbbbb"}

    assert set(own().one("Cluster").inputs["vpcConfig"]["subnetIds"]) == theirs
    assert set(own()["eks-nodes-system"].inputs["subnetIds"]) == theirs
    assert own()["eks-nodes-gpu-spot"].inputs["subnetIds"] == ["subnet-0aaaaaaa"]
