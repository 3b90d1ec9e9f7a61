"""The VPC of an EKS cluster: created in two or three zones, or the user's existing VPC."""

from collections.abc import Mapping
from ipaddress import IPv4Network
from itertools import combinations

import pytest

from tests.components.aws.eks_stack import all_features_stack, existing_vpc_stack, plain_stack
from tests.components.recorder import Graph, RecordedResource


def subnets_by_zone(graph: Graph, side: str) -> Mapping[str, RecordedResource]:
    return {
        resource.inputs["availabilityZone"]: resource
        for resource in graph.of_type("Subnet")
        if resource.name.startswith(f"eks-network-{side}-")
    }


def test_every_zone_has_a_private_subnet_with_a_disjoint_block() -> None:
    private_subnets = subnets_by_zone(plain_stack(), "private")
    blocks = [
        IPv4Network(resource.inputs["cidrBlock"]) for resource in plain_stack().of_type("Subnet")
    ]

    assert set(private_subnets) == {"us-east-1a", "us-east-1b"}
    assert all(block.subnet_of(IPv4Network("10.0.0.0/16")) for block in blocks)
    assert not any(block.overlaps(other) for block, other in combinations(blocks, 2))


def test_no_subnet_gives_machines_a_public_address() -> None:
    for resource in plain_stack().some_of_type("Subnet"):
        assert not resource.inputs.get("mapPublicIpOnLaunch")


def test_one_gateway_in_the_zone_of_the_gpus_serves_all_zones() -> None:
    (gateway,) = plain_stack().of_type("NatGateway")
    routes = [
        resource for resource in plain_stack().of_type("Route") if "natGatewayId" in resource.inputs
    ]

    assert gateway.inputs["subnetId"] == "eks-network-public-us-east-1a-id"
    assert {route.inputs["natGatewayId"] for route in routes} == {f"{gateway.name}-id"}
    assert {route.inputs["routeTableId"] for route in routes} == {
        "eks-network-private-us-east-1a-table-id",
        "eks-network-private-us-east-1b-table-id",
    }


def test_with_a_gateway_per_zone_each_serves_its_own_zone() -> None:
    routes = {
        resource.name: resource.inputs
        for resource in all_features_stack().of_type("Route")
        if "natGatewayId" in resource.inputs
    }

    assert len(all_features_stack().of_type("NatGateway")) == 3
    for zone in ("us-east-1a", "us-east-1b", "us-east-1c"):
        actual = routes[f"eks-network-private-{zone}-route"]
        assert actual["natGatewayId"] == f"eks-network-nat-{zone}-id"


@pytest.mark.parametrize("side", ["private", "public"])
def test_every_subnet_has_a_route_table(side: str) -> None:
    subnets_with_table = {
        resource.inputs["subnetId"] for resource in plain_stack().of_type("RouteTableAssociation")
    }

    assert {
        f"{subnet.name}-id" for subnet in subnets_by_zone(plain_stack(), side).values()
    } <= subnets_with_table


def test_every_private_subnet_reaches_s3_without_the_nat_gateway() -> None:
    endpoint = plain_stack().one("VpcEndpoint").inputs

    assert (endpoint["vpcEndpointType"], endpoint["serviceName"]) == (
        "Gateway",
        "com.amazonaws.us-east-1.s3",
    )
    assert set(endpoint["routeTableIds"]) == {
        "eks-network-private-us-east-1a-table-id",
        "eks-network-private-us-east-1b-table-id",
    }


@pytest.mark.parametrize(("side", "role"), [("private", "internal-elb"), ("public", "elb")])
def test_load_balancers_find_their_subnets_by_tag(side: str, role: str) -> None:
    tagged_names = {
        resource.name
        for resource in plain_stack().of_type("Subnet")
        if resource.inputs["tags"].get(f"kubernetes.io/role/{role}") == "1"
    }

    assert tagged_names == {subnet.name for subnet in subnets_by_zone(plain_stack(), side).values()}


def test_dns_is_enabled_in_the_vpc() -> None:
    vpc = plain_stack().one("Vpc").inputs

    assert vpc["enableDnsHostnames"] is True, "FSx and the private API are addressed by DNS name"
    assert vpc["enableDnsSupport"] is True


def test_nodes_and_control_plane_use_the_users_subnets() -> None:
    users_subnets = {"subnet-0aaaaaaa", "subnet-0bbbbbbb"}

    assert (
        set(existing_vpc_stack().one("Cluster").inputs["vpcConfig"]["subnetIds"]) == users_subnets
    )
    assert set(existing_vpc_stack()["eks-nodes-system"].inputs["subnetIds"]) == users_subnets
    assert existing_vpc_stack()["eks-nodes-gpu-spot"].inputs["subnetIds"] == ["subnet-0aaaaaaa"]
