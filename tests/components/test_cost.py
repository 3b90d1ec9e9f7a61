"""The cost of a stack: sums, unknown prices, and a price table with sources."""

import json
from typing import Any

import pytest
from cloudfacts.data import FOLDER
from cloudfacts.prices import HOURS_PER_MONTH
from hypothesis import given, settings
from hypothesis import strategies as st

from components.config import catalog, from_mapping
from components.cost import Cost, as_json, as_text, estimate
from components.docs import stack_table
from tests.components.config.bad_stacks import AKS, EKS
from tests.components.docs.test_stack_table import CLOUD_STACKS
from tests.effort import examples

# List prices in USD per month: a P6 for each system node and an E1 for each member of etcd.
PREMIUM_SSD_64, STANDARD_SSD_4 = 10.21, 0.3
TABLE = json.loads((FOLDER / "prices.json").read_text(encoding="utf-8"))


def cost_of(base: dict[str, Any], **sections: Any) -> Cost:
    cluster = base["cluster"] | sections.pop("cluster", {})
    return estimate(from_mapping(base | {"cluster": cluster} | sections))


def test_a_stack_on_azure_costs_the_sum_of_listed_prices() -> None:
    cost = cost_of(AKS)

    disks = (2 * PREMIUM_SSD_64 + 3 * STANDARD_SSD_4) / HOURS_PER_MONTH  # T4 machines hold theirs
    services = 2 * 0.192 + 0.1 + 0.045 + 0.005 + disks
    assert cost.total(spot=True).usd == pytest.approx(3 * 0.149174 + services, abs=1e-4)
    assert cost.total(spot=False).usd == pytest.approx(3 * 0.526 + services, abs=1e-4)
    assert cost.total(spot=True).unknown == ()


def disks_of(cost: Cost) -> dict[str, str]:
    """Return the name of the disk of each component that has one."""
    return {item.component: item.name for item in cost.items if "GiB" in item.name}


def test_an_os_disk_on_azure_is_free_only_where_the_machine_can_hold_it() -> None:
    cost = cost_of(AKS, cluster={"gpuPool": {"diskGib": 200}, "systemPool": {"diskGib": 100}})

    assert disks_of(cost) == {
        "GPU pool t4": "Premium SSD of 200 GiB",  # 176 GiB of its own
        "GPU pool a100": "ephemeral disk of 200 GiB",
        "system pool": "Premium SSD of 100 GiB",
        "etcd": "Standard SSD of 1 GiB",
    }
    prices = {item.name: item.on_demand for item in cost.items}
    assert prices["ephemeral disk of 200 GiB"] == 0
    assert prices["Premium SSD of 100 GiB"] == pytest.approx(19.71 / HOURS_PER_MONTH), (
        "billed as 128"
    )


def test_the_disk_of_a_size_that_the_facts_lack_is_unknown_and_no_key_sets_its_price() -> None:
    prices = {"Standard_L8s_v3": {"onDemand": 0.2}}
    cost = cost_of(
        AKS, cluster={"systemPool": {"vmSize": "Standard_L8s_v3"}}, cost={"prices": prices}
    )

    assert cost.total(spot=True).unknown == ("disk of 64 GiB",)
    assert "No price is known for disk of 64 GiB: it is not included." in as_text(cost)
    assert "everstep:cost.prices" not in as_text(cost)


def test_disks_of_etcd_have_the_price_of_their_storage_class() -> None:
    def item(base: dict[str, Any], **etcd: Any) -> tuple[str, int, object]:
        (disk,) = (item for item in cost_of(base, etcd=etcd).items if item.component == "etcd")
        return disk.name, disk.count, disk.on_demand

    standard = pytest.approx(STANDARD_SSD_4 / HOURS_PER_MONTH)
    assert item(AKS, members=5) == ("Standard SSD of 1 GiB", 5, standard)
    on_premium = item(AKS, storageClass="managed-csi-premium")
    assert on_premium == ("Premium SSD of 1 GiB", 3, None), "a P1 has no source"
    assert item(AKS, storageClass="fast")[2] is None
    assert item(EKS, persistence="disk", storageClass="ebs")[2] is None


def test_etcd_without_disks_has_none_to_pay_for() -> None:
    assert "etcd" not in disks_of(cost_of(AKS, etcd={"persistence": "memory"}))


@pytest.mark.parametrize(("scaling", "count"), [("fixed", 3), ("capacity", 6)])
def test_a_job_that_grows_with_capacity_trains_on_the_maximum_of_its_workers(
    scaling: str, count: int
) -> None:
    job = {"replicas": 3, "maxReplicas": 6, "scaling": scaling}
    pool = {"instanceTypes": ["g5.xlarge"], "maxNodes": 6}

    cost = cost_of(EKS, cluster={"gpuPool": pool}, job=job, controller={"kind": "maintained"})

    assert [item.count for item in cost.items if item.name == "g5.xlarge"] == [count, 0]


def test_a_stack_on_aws_costs_the_highest_price_of_its_types() -> None:
    cost = cost_of(EKS)

    disks = (3 * 100 + 2 * 50) * 0.08 / HOURS_PER_MONTH
    other_costs = 2 * 0.192 + 0.1 + 0.045 + 0.005 + 1200 * 0.14 / HOURS_PER_MONTH + disks
    assert cost.total(spot=False).usd == pytest.approx(3 * 2.0144 + other_costs, abs=1e-4)


def test_the_registry_of_the_stack_on_azure_costs_its_daily_fee() -> None:
    registry = {"kind": "acr", "name": "orgeverstepdev"}

    with_registry, without = cost_of(AKS, registry=registry), cost_of(AKS)

    for maximum in (False, True):
        totals = (cost.total(spot=True, maximum=maximum).usd for cost in (with_registry, without))
        assert next(totals) - next(totals) == pytest.approx(0.667 / 24, abs=1e-4)


CACHE = {"source": "s3://bucket/shards", "size": "1000Gi", "storageClass": "fast"}


def test_volumes_of_the_cache_have_no_price_and_are_named() -> None:
    cost = cost_of(EKS, data={"dataset": "imagefolder", "cache": CACHE})

    name = "volume of 1000Gi, StorageClass fast"
    assert [item.count for item in cost.items if item.name == name] == [3], "one for each worker"
    assert name in str(cost.total(spot=True))
    assert f"No price is known for {name}: it is not included." in as_text(cost)
    on_node = cost_of(EKS, data={"dataset": "imagefolder", "cache": CACHE | {"storageClass": None}})
    assert on_node.total(spot=True).unknown == (), "a cache on the node's disk is part of the node"


def test_a_spot_price_without_a_source_is_unknown_and_not_guessed() -> None:
    cost = cost_of(EKS, cluster={"gpuPool": {"instanceTypes": ["g5.2xlarge"]}})

    total = cost.total(spot=True)
    assert total.unknown == ("g5.2xlarge",)
    assert str(total) == f"at least {total.usd:.2f} without g5.2xlarge", "the actual sum is higher"
    assert "No price is known for g5.2xlarge" in as_text(cost)


def test_the_price_of_a_file_system_is_not_attributed_to_a_key() -> None:
    storage = {"kind": "fsx", "deploymentType": "PERSISTENT_2", "throughput": 500}
    text = as_text(cost_of(EKS, storage=storage))

    assert "FSx for Lustre PERSISTENT_2-500, 1200 GiB: it is not included." in text
    assert "cost.prices" not in text


@pytest.mark.parametrize("base", [EKS, AKS], ids=["eks", "aks"])
def test_without_autoscaling_there_are_no_further_nodes_to_pay_for(base: dict[str, Any]) -> None:
    cluster = {"autoscaling": {"enabled": False}, "gpuPool": {"nodes": 3, "maxNodes": 6}}
    cost = cost_of(base, cluster=cluster)

    assert {item.name: item.maximum for item in cost.items} == {
        item.name: item.count for item in cost.items
    }
    assert cost.total(spot=True, maximum=True) == cost.total(spot=True)


@pytest.mark.parametrize("name", CLOUD_STACKS)
def test_every_stack_in_the_repository_has_a_price_for_each_item(name: str) -> None:
    cost = estimate(stack_table.read(stack_table.STACKS / f"Pulumi.{name}.yaml"))

    assert cost.total(spot=True, maximum=True).unknown == ()
    assert cost.total(spot=False, maximum=True).unknown == ()


def test_the_estimate_has_the_date_of_its_oldest_price_and_names_undated_sources() -> None:
    cost = cost_of(EKS)

    text = as_text(cost)

    assert cost.as_of == "2026-02-01", "the control plane is as quoted from 2026-02 on"
    assert "Prices of 2026-02-01 or later." in text
    assert "The date of some prices is unknown; they are from SkyPilot catalog v8" in text


def test_sources_of_prices_that_are_not_used_are_not_named() -> None:
    prices = {"g5.xlarge": {"onDemand": 1, "spot": 0.4}}

    configured = cost_of(
        EKS, cluster={"gpuPool": {"instanceTypes": ["g5.xlarge"]}}, cost={"prices": prices}
    )

    assert cost_of(AKS).undated == configured.undated == ()
    assert "SkyPilot" not in as_text(configured)


def test_a_configured_price_replaces_the_listed_price() -> None:
    prices = {"g5.xlarge": {"onDemand": 1, "spot": 0.4}, "g6.xlarge": {"onDemand": 1, "spot": 0.3}}
    two_types = {"gpuPool": {"instanceTypes": ["g5.xlarge", "g6.xlarge"]}}

    configured_cost, listed_cost = (
        cost_of(EKS, cluster=two_types, cost={"prices": prices}),
        cost_of(EKS, cluster=two_types),
    )

    difference = configured_cost.total(spot=True).usd - listed_cost.total(spot=True).usd
    assert difference == pytest.approx(3 * (0.4 - 0.507), abs=1e-4), (
        "any of the types may be allocated, so the highest price counts"
    )
    assert configured_cost.total(spot=True).unknown == ()


def test_an_on_demand_pool_has_no_spot_discount() -> None:
    cost = cost_of(AKS, cluster={"gpuPool": {"capacity": "onDemand"}})

    assert cost.total(spot=True) == cost.total(spot=False)


def test_prices_of_one_region_do_not_apply_to_another() -> None:
    other_region = {"region": "us-west-2", "zones": ["us-west-2a", "us-west-2b"]}

    cost = cost_of(EKS, cluster=other_region)

    assert cost.total(spot=False).unknown == (
        "g5.xlarge or g6.xlarge or g6e.xlarge or g6.8xlarge",
        "m6i.xlarge",
    )
    assert "us-west-2 may differ" in as_text(cost)


def test_an_existing_cluster_costs_nothing() -> None:
    cost = estimate(from_mapping({}))

    assert cost.total(spot=False).usd == 0
    assert "existing ones" in as_text(cost)


def test_existing_resources_are_not_counted() -> None:
    subnets = {"us-east-1a": "subnet-0123456789abcdef0", "us-east-1b": "subnet-0123456789abcdef1"}
    existing_network = {"vpcId": "vpc-0123456789abcdef0", "privateSubnetIds": subnets}
    file_system = {
        "fileSystemId": "fs-0123456789abcdef0",
        "dnsName": "fs.example",
        "mountName": "fsx",
        "zone": "us-east-1a",
    }

    cost = cost_of(EKS, cluster={"network": existing_network}, storage={"existing": file_system})

    assert {item.component for item in cost.items if item.maximum} == {
        "GPU pool",
        "system pool",
        "control plane",
    }


def test_egress_through_a_firewall_has_no_gateway_to_pay_for() -> None:
    network = {"egress": "userDefinedRouting", "firewallIp": "10.100.0.4"}
    cost = cost_of(AKS, cluster={"network": network})

    assert {item.name: item.count for item in cost.items if item.component == "network"} == {
        "NAT gateway": 0,
        "public IPv4 address": 0,
    }


def test_a_gateway_in_every_zone_is_counted_in_every_zone() -> None:
    zones = ["us-east-1a", "us-east-1b", "us-east-1c"]

    cost = cost_of(EKS, cluster={"zones": zones, "network": {"natPerZone": True}})

    assert [item.count for item in cost.items if item.name == "NAT gateway"] == [3]


@settings(max_examples=examples(40))
@given(nodes=st.integers(0, 20), growth=st.integers(0, 20), fallback=st.integers(0, 5))
def test_neither_the_initial_cost_nor_the_spot_cost_exceeds_its_upper_bound(
    nodes: int, growth: int, fallback: int
) -> None:
    max_nodes = max(1, nodes + growth)
    pool = {"nodes": nodes, "maxNodes": max_nodes, "fallbackNodes": fallback}
    workers = {"minReplicas": 1, "replicas": 1, "maxReplicas": 1}

    cost = cost_of(AKS, cluster={"gpuPool": pool}, job=workers)

    for spot in (True, False):
        assert cost.total(spot=spot).usd <= cost.total(spot=spot, maximum=True).usd
    assert cost.total(spot=True).usd <= cost.total(spot=False).usd


def test_json_and_text_have_the_same_numbers() -> None:
    cost = cost_of(AKS)

    data = json.loads(json.dumps(as_json(cost)))

    totals = data["total"]["while_training"]
    assert totals["spot"]["usd"] == cost.total(spot=True).usd
    assert (
        f"While training: {totals['spot']['usd']:.2f} USD/hour with spot nodes, "
        f"{totals['on_demand']['usd']:.2f} on demand"
    ) in as_text(cost)
    assert [(item["component"], item["item"]) for item in data["items"]] == [
        (item.component, item.name) for item in cost.items
    ]


def test_every_price_has_a_source_and_a_known_region() -> None:
    entries = [
        *(price for region in TABLE["machines"].values() for price in region.values()),
        *TABLE["services"].values(),
        *TABLE["storage"].values(),
        *TABLE["disks"].values(),
    ]

    assert {entry["source"] for entry in entries} <= set(TABLE["sources"])
    assert set(TABLE["machines"]) <= set(catalog.AWS_REGIONS) | set(catalog.AZURE_LOCATIONS)


def test_no_listed_spot_price_exceeds_the_on_demand_price() -> None:
    for region in TABLE["machines"].values():
        for machine, price in region.items():
            assert price["spot"] is None or price["spot"] < price["onDemand"], machine


def reserved_cluster(**reservation: Any) -> dict[str, Any]:
    """Return the keys of a cluster with six reserved machines, of which the job uses three."""
    return {
        "gpuPool": {
            "instanceTypes": ["g5.xlarge"],
            "capacity": "onDemand",
            "maxNodes": 6,
            "reservation": {"id": "cr-0123456789abcdef0", **reservation},
        }
    }


def test_unused_machines_of_a_capacity_reservation_are_billed() -> None:
    reserved, on_demand = (
        cost_of(EKS, cluster=reserved_cluster()),
        cost_of(EKS, cluster={"gpuPool": {"instanceTypes": ["g5.xlarge"], "capacity": "onDemand"}}),
    )

    (item,) = [item for item in reserved.items if "reserved" in item.name]
    assert (item.count, item.maximum) == (6, 6)
    difference = reserved.total(spot=True).usd - on_demand.total(spot=True).usd
    assert difference == pytest.approx((6 - 3) * 1.006, abs=1e-4)
    assert reserved.total(spot=True, maximum=True) == on_demand.total(spot=True, maximum=True)
    assert "Capacity Reservation cr-0123456789abcdef0 of the GPU pool is billed" in as_text(
        reserved
    )


def test_a_capacity_block_was_paid_in_advance() -> None:
    cost = cost_of(EKS, cluster=reserved_cluster(capacityBlock=True))

    (item,) = [item for item in cost.items if "prepaid" in item.name]
    assert (item.count, item.maximum, item.on_demand, item.spot) == (3, 6, 0.0, 0.0)
    assert "Capacity Block cr-0123456789abcdef0 of the GPU pool was paid in advance" in as_text(
        cost
    )


def test_a_pool_above_its_price_ceiling_is_noted() -> None:
    pool = {"name": "t4", "zone": "1", "vmSize": "Standard_NC4as_T4_v3", "maxPrice": 0.1}

    notes = cost_of(AKS, cluster={"gpuPools": [pool]}).notes
    notes_below_ceiling = cost_of(AKS, cluster={"gpuPools": [pool | {"maxPrice": 0.2}]}).notes

    assert any("0.149174 USD an hour on spot, above its maxPrice 0.1" in note for note in notes)
    assert not any("maxPrice" in note for note in notes_below_ceiling)
