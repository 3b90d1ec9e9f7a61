"""The Elastic Fabric Adapter of GPU nodes."""

from base64 import b64decode

import pytest

from components.aws.efa import efa_interfaces
from tests.components.aws.eks_stack import all_features_stack, plain_stack

SPOT, SYSTEM = "eks-nodes-gpu-spot", "eks-nodes-system"


def test_efa_has_an_interface_on_every_card() -> None:
    inputs = all_features_stack()[f"{SPOT}-template"].inputs
    interfaces = inputs["networkInterfaces"]

    assert [interface["networkCardIndex"] for interface in interfaces] == [0, 1, 2, 3]
    assert [interface["deviceIndex"] for interface in interfaces] == [0, 1, 1, 1]
    assert [interface["interfaceType"] for interface in interfaces] == ["efa", *["efa-only"] * 3]
    for interface in interfaces:
        assert interface["securityGroups"] == ["sg-everstep-cluster", "eks-nodes-efa-group-id"], (
            "an interface with its own security groups does not get the cluster's group"
        )
    assert "vpcSecurityGroupIds" not in inputs
    assert inputs["placement"] == {"groupName": "everstep-gpu"}
    assert all_features_stack().one("PlacementGroup").inputs["strategy"] == "cluster"


@pytest.mark.parametrize(("name", "direction"), [("in", "Ingress"), ("out", "Egress")])
def test_efa_nodes_allow_all_traffic_among_themselves(name: str, direction: str) -> None:
    rule = all_features_stack()[f"eks-nodes-efa-{name}"]

    assert rule.type.endswith(f":SecurityGroup{direction}Rule")
    assert rule.inputs["securityGroupId"] == "eks-nodes-efa-group-id"
    assert rule.inputs["referencedSecurityGroupId"] == "eks-nodes-efa-group-id"
    assert rule.inputs["ipProtocol"] == "-1", "EFA has no ports that a rule could name"


def test_efa_nodes_reserve_huge_pages() -> None:
    user_data = b64decode(all_features_stack()[f"{SPOT}-template"].inputs["userData"]).decode()

    assert user_data.startswith("MIME-Version: 1.0\n"), (
        "managed node groups accept a shell script only as a part of a MIME message"
    )
    assert "vm.nr_hugepages=5128" in user_data, "as on AWS's own images for EFA"


def test_system_nodes_have_no_efa() -> None:
    assert "networkInterfaces" not in all_features_stack()[f"{SYSTEM}-template"].inputs
    assert "userData" not in all_features_stack()[f"{SYSTEM}-template"].inputs


def test_a_stack_without_efa_declares_nothing_for_it() -> None:
    assert not plain_stack().of_type("PlacementGroup")
    assert "networkInterfaces" not in plain_stack()[f"{SPOT}-template"].inputs


@pytest.mark.parametrize(
    ("machine", "interfaces", "first"),
    [
        ("g5.8xlarge", 1, "efa"),
        ("p4d.24xlarge", 4, "efa"),
        ("p5.48xlarge", 32, "efa"),
        ("p6-b300.48xlarge", 17, "interface"),
    ],
)
def test_interfaces_follow_the_network_cards_of_the_instance_type(
    machine: str, interfaces: int, first: str
) -> None:
    actual = efa_interfaces(machine)

    assert [interface.card_index for interface in actual] == list(range(interfaces))
    assert [interface.type for interface in actual] == [first, *["efa-only"] * (interfaces - 1)], (
        "the first needs an address"
    )


def test_an_instance_type_without_efa_is_refused() -> None:
    with pytest.raises(ValueError, match=r"g5\.xlarge has no EFA"):
        efa_interfaces("g5.xlarge")


def test_the_environment_states_how_many_adapters_a_worker_must_request() -> None:
    assert all_features_stack().outputs["efaInterfaces"] == 4, (
        "without a request, a worker gets no adapter"
    )
    assert plain_stack().outputs["efaInterfaces"] == 0
