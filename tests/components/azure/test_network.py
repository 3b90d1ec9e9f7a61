"""The network of an AKS cluster: its subnet, its egress, or the user's existing subnet."""

from collections.abc import Mapping
from typing import Any

from components.azure.network import Vnet, VnetArgs
from tests.components.azure.aks_stack import cluster_of
from tests.components.recorder import Graph, record

SUBNET = (
    "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/g"
    "/providers/Microsoft.Network/virtualNetworks/v/subnets/nodes"
)


def network(**cluster: Any) -> Graph:
    def program() -> Mapping[str, Any]:
        config = cluster_of(cluster=cluster)
        args = VnetArgs(
            name=config.name,
            stack="dev",
            location=config.location,
            cidr=config.network.cidr,
            resource_group=config.resource_group,
            subnet_id=config.network.subnet_id,
            firewall_ip=config.network.firewall_ip,
            tags={"owner": "vision"},
        )
        vnet = Vnet("net", args)
        return {"group": vnet.group, "subnet": vnet.subnet_id, "egress": vnet.egress}

    return record(program)


def test_nodes_have_a_nat_gateway_and_an_endpoint_for_storage() -> None:
    graph = network()
    subnet = graph.one("Subnet").inputs

    assert subnet["natGateway"]["id"].endswith("/NatGateway/everstep-gateway")
    assert subnet["defaultOutboundAccess"] is False
    assert subnet["serviceEndpoints"] == [{"service": "Microsoft.Storage"}], (
        "without it the account could not identify traffic from the nodes"
    )
    assert graph.one("PublicIPAddress").inputs["publicIPAllocationMethod"] == "Static"
    assert graph.outputs["egress"] == "198.51.100.7"


def test_all_egress_of_a_subnet_with_a_firewall_goes_through_it() -> None:
    graph = network(network={"egress": "userDefinedRouting", "firewallIp": "10.100.0.4"})
    subnet, table = graph.one("Subnet").inputs, graph.one("RouteTable").inputs

    assert subnet["routeTable"]["id"].endswith("/RouteTable/everstep-routes")
    assert [(route["addressPrefix"], route["nextHopIpAddress"]) for route in table["routes"]] == [
        ("0.0.0.0/0", "10.100.0.4")
    ]
    assert table["disableBgpRoutePropagation"] is True
    assert not graph.of_type("NatGateway") + graph.of_type("PublicIPAddress")
    assert graph.outputs["egress"] is None, "the API admits only the ranges of the stack file"


def test_an_existing_group_and_subnet_are_not_changed() -> None:
    graph = network(resourceGroup="theirs", network={"subnetId": SUBNET})

    assert not graph.resources_of("azure-native")
    assert graph.outputs == {"group": "theirs", "subnet": SUBNET, "egress": None}
