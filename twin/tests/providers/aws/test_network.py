"""Networks of Amazon VPC; `cases.py` has the cases of the rules."""

import pytest
from cloudtwin.providers.errors import CloudError

from twin.tests.providers.offline import Provider

VPC, TABLE = "aws:ec2/vpc:Vpc", "aws:ec2/routeTable:RouteTable"


def test_the_main_route_table_of_a_vpc_takes_routes_and_is_deleted_with_it(
    provider: Provider,
) -> None:
    vpc = provider.create_resource(VPC, "v", cidrBlock="10.0.0.0/16")
    created = provider.account.read().find((VPC,), vpc)
    assert created is not None
    gateway = provider.create_resource("aws:ec2/internetGateway:InternetGateway", "g", vpcId=vpc)
    route = provider.create_resource(
        "aws:ec2/route:Route",
        "r",
        routeTableId=created.outputs["mainRouteTableId"],
        destinationCidrBlock="0.0.0.0/0",
        gatewayId=gateway,
    )

    provider.delete_resource("aws:ec2/route:Route", route)
    provider.delete_resource("aws:ec2/internetGateway:InternetGateway", gateway)
    provider.delete_resource(VPC, vpc)

    assert not provider.account.read().resources


def test_an_inline_rule_must_name_an_existing_group(provider: Provider) -> None:
    group = "aws:ec2/securityGroup:SecurityGroup"
    vpc = provider.create_resource(VPC, "v", cidrBlock="10.0.0.0/16")
    rule = {"protocol": "tcp", "fromPort": 22, "toPort": 22}
    first = provider.create_resource(group, "a", vpcId=vpc, ingress=[rule | {"securityGroups": []}])

    provider.create_resource(group, "b", vpcId=vpc, ingress=[rule | {"securityGroups": [first]}])

    with pytest.raises(CloudError, match="DependencyViolation"):
        provider.delete_resource(group, first)
    with pytest.raises(CloudError, match="InvalidGroup"):
        provider.create_resource(
            group, "c", vpcId=vpc, egress=[rule | {"securityGroups": ["sg-0"]}]
        )
