"""What a stack costs: sums done by hand, unknown prices that stay unknown, and a table with its sources."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.config import catalog, from_mapping
from components.cost import HOURS_A_MONTH, PRICES, Cost, as_json, as_text, estimate
from tests.unit.components.bad_stacks import AKS, EKS

TABLE = json.loads(PRICES.read_text(encoding="utf-8"))


def cost_of(base: dict[str, Any], **sections: Any) -> Cost:
    cluster = base["cluster"] | sections.pop("cluster", {})
    return estimate(from_mapping(base | {"cluster": cluster} | sections))


def test_a_stack_on_azure_costs_what_its_price_list_says() -> None:
    cost = cost_of(AKS)

    disks = (3 * 128 + 2 * 64) * 0.075 / HOURS_A_MONTH
    services = 2 * 0.192 + 0.1 + 0.045 + 0.005 + disks
    assert cost.total(spot=True).usd == pytest.approx(3 * 0.149174 + services, abs=1e-4)
    assert cost.total(spot=False).usd == pytest.approx(3 * 0.526 + services, abs=1e-4)
    assert cost.total(spot=True).unknown == ()


def test_a_stack_on_aws_costs_the_dearest_of_its_types_on_demand() -> None:
    cost = cost_of(EKS)

    disks = (3 * 100 + 2 * 50) * 0.08 / HOURS_A_MONTH
    rest = 2 * 0.192 + 0.1 + 0.045 + 0.005 + 1200 * 0.14 / HOURS_A_MONTH + disks
    assert cost.total(spot=False).usd == pytest.approx(3 * 1.006 + rest, abs=1e-4)


def test_a_spot_price_that_nobody_told_is_unknown_and_not_guessed() -> None:
    cost = cost_of(EKS)

    total = cost.total(spot=True)
    assert total.unknown == ("g5.xlarge or g6.xlarge",)
    assert str(total).startswith("at least "), "the true sum is higher"
    assert "No price is known for g5.xlarge or g6.xlarge" in as_text(cost)


def test_a_price_of_the_stacks_own_replaces_the_tables() -> None:
    prices = {"g5.xlarge": {"onDemand": 1, "spot": 0.4}, "g6.xlarge": {"onDemand": 1, "spot": 0.3}}

    with_own, without = cost_of(EKS, cost={"prices": prices}), cost_of(EKS)

    difference = with_own.total(spot=True).usd - without.total(spot=True).usd
    assert difference == pytest.approx(3 * 0.4, abs=1e-4), "the dearest of the types may come"
    assert with_own.total(spot=True).unknown == ()


def test_a_pool_that_is_bought_on_demand_is_never_reckoned_at_a_discount() -> None:
    cost = cost_of(AKS, cluster={"gpuPool": {"capacity": "onDemand"}})

    assert cost.total(spot=True) == cost.total(spot=False)


def test_another_region_has_no_prices_of_this_one() -> None:
    elsewhere = {"region": "us-west-2", "zones": ["us-west-2a", "us-west-2b"]}

    cost = cost_of(EKS, cluster=elsewhere)

    assert cost.total(spot=False).unknown == ("g5.xlarge or g6.xlarge", "m6i.xlarge")
    assert "us-west-2 may differ" in as_text(cost)


def test_a_cluster_that_is_there_already_costs_nothing_more() -> None:
    cost = estimate(from_mapping({}))

    assert cost.total(spot=False).usd == 0
    assert "those that are there already" in as_text(cost)


def test_what_is_the_users_own_is_not_paid_twice() -> None:
    subnets = {"us-east-1a": "subnet-0123456789abcdef0", "us-east-1b": "subnet-0123456789abcdef1"}
    own = {"vpcId": "vpc-0123456789abcdef0", "privateSubnetIds": subnets}
    file_system = {
        "fileSystemId": "fs-0123456789abcdef0",
        "dnsName": "fs.example",
        "mountName": "fsx",
        "zone": "us-east-1a",
    }

    cost = cost_of(EKS, cluster={"network": own}, storage={"existing": file_system})

    assert {line.part for line in cost.lines if line.most} == {
        "GPU pool",
        "system pool",
        "control plane",
    }


def test_a_gateway_in_every_zone_is_counted_in_every_zone() -> None:
    zones = ["us-east-1a", "us-east-1b", "us-east-1c"]

    cost = cost_of(EKS, cluster={"zones": zones, "network": {"natPerZone": True}})

    assert [line.count for line in cost.lines if line.what == "NAT gateway"] == [3]


@settings(max_examples=40, deadline=None)
@given(nodes=st.integers(0, 20), more=st.integers(0, 20), fallback=st.integers(0, 5))
def test_more_nodes_never_cost_less_and_the_start_never_more_than_the_most(
    nodes: int, more: int, fallback: int
) -> None:
    most = max(1, nodes + more)
    pool = {"nodes": nodes, "maxNodes": most, "fallbackNodes": fallback}
    workers = {"minReplicas": 1, "replicas": 1, "maxReplicas": 1}

    cost = cost_of(AKS, cluster={"gpuPool": pool}, job=workers)

    for spot in (True, False):
        assert cost.total(spot=spot).usd <= cost.total(spot=spot, most=True).usd
    assert cost.total(spot=True).usd <= cost.total(spot=False).usd


def test_the_plain_data_says_the_same_as_the_table() -> None:
    cost = cost_of(AKS)

    data = json.loads(json.dumps(as_json(cost)))

    assert data["total"]["start"]["spot"]["usd"] == cost.total(spot=True).usd
    assert f"{data['total']['start']['onDemand']['usd']:.2f} on demand" in as_text(cost)
    assert len(data["parts"]) == len(cost.lines)


def test_every_price_names_a_source_and_a_place_that_is_known() -> None:
    entries = [
        *(price for region in TABLE["machines"].values() for price in region.values()),
        *TABLE["services"].values(),
        *TABLE["storage"].values(),
    ]

    assert {entry["source"] for entry in entries} <= set(TABLE["sources"])
    assert set(TABLE["machines"]) <= set(catalog.AWS_ZONES) | set(catalog.AZURE_LOCATIONS)


def test_no_spot_price_of_the_table_is_above_the_price_it_is_a_discount_on() -> None:
    for region in TABLE["machines"].values():
        for machine, price in region.items():
            assert price["spot"] is None or price["spot"] < price["onDemand"], machine
