"""Inputs of a plan from the configuration of a stack: machines, zones, prices, work."""

from pathlib import Path
from typing import Any

import pytest

from components import cost
from components.config import StackConfig, from_mapping
from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import Guaranteed
from everstep.capacity.on_demand import FallbackPolicy, OnDemand
from everstep.capacity.plan import Choice, JobLimits, generated_histories, replay
from everstep.cli.engine.context import open_stack
from everstep.cli.plan_inputs import (
    ceiling_warnings,
    job_model,
    machine_types,
    machines_in,
    prices,
    prices_in,
    unplanned_zones,
    work_of,
    zones,
)
from everstep.errors import EverstepError
from tests.components.config.bad_stacks import AKS, EKS

REPOSITORY = Path(__file__).parents[3]
T4, A100 = "Standard_NC4as_T4_v3", "Standard_NC24ads_A100_v4"
FASHION = "fashion-mnist"
DISK = cost.pool_prices(from_mapping(EKS))[0].disk or 0.0
EKS_POOLS = from_mapping(
    EKS
    | {
        "cluster": {
            "kind": "eks",
            "gpuPools": [
                {"name": "b", "zone": "us-east-1b", "instanceTypes": ["g5.xlarge"], "maxNodes": 4},
                {"name": "b2", "zone": "us-east-1b", "instanceTypes": ["g6.xlarge"], "maxNodes": 2},
                {"name": "a", "zone": "us-east-1a", "instanceTypes": ["g5.2xlarge"], "maxNodes": 3},
            ],
        },
        "cost": {
            "prices": {
                "g5.xlarge": {"onDemand": 1.0, "spot": 0.5},
                "g6.xlarge": {"onDemand": 1.2, "spot": 0.9},
                "g5.2xlarge": {"onDemand": 1.5, "spot": 0.4},
            }
        },
    }
)
"""Two pools in the preferred zone, one in another."""


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> StackConfig:
    monkeypatch.chdir(REPOSITORY)
    return open_stack("eks-prod").config


def test_a_job_that_follows_capacity_wants_its_maximum(config: StackConfig) -> None:
    assert config.job.scaling == "capacity"
    assert config.job.desired_workers == config.job.max_replicas

    fixed_config = config.model_copy(
        update={"job": config.job.model_copy(update={"scaling": "fixed"})}
    )
    assert fixed_config.job.desired_workers == config.job.replicas


def test_a_stack_with_one_pool_is_planned_for_all_zones_of_its_cluster(config: StackConfig) -> None:
    planned_zones = zones(config)

    assert [zone.name for zone in planned_zones] == ["us-east-1a", "us-east-1b", "us-east-1c"]
    assert {zone.machines for zone in planned_zones} == {6}
    assert len({zone.price for zone in planned_zones}) == 1


def test_zones_come_from_the_pools_with_their_machines_and_highest_price() -> None:
    planned_zones = zones(EKS_POOLS)

    assert [(zone.name, zone.machines) for zone in planned_zones] == [
        ("us-east-1b", 6),
        ("us-east-1a", 3),
    ]
    first_price, second_price = (zone.price for zone in planned_zones)
    assert first_price == pytest.approx(0.9 + DISK), (
        "the cloud may choose the more expensive pool of the zone"
    )
    assert second_price == pytest.approx(0.4 + DISK)


def test_pools_of_azure_have_the_zones_and_prices_of_their_sizes() -> None:
    pools = [
        {"name": "one", "zone": "2", "vmSize": T4, "maxNodes": 2, "fallbackNodes": 5},
        {"name": "two", "zone": "1", "vmSize": A100, "maxNodes": 4},
    ]
    cluster = AKS["cluster"] | {"gpuPools": pools, "minGpuMemoryGib": 15}
    table = {T4: {"onDemand": 0.6, "spot": 0.2}, A100: {"onDemand": 3.0, "spot": 1.0}}
    config = from_mapping(AKS | {"cluster": cluster, "cost": {"prices": table}})

    planned_zones = zones(config)

    assert [(zone.name, zone.machines) for zone in planned_zones] == [("2", 2), ("1", 4)]
    assert planned_zones[1].price - planned_zones[0].price == pytest.approx(1.0 - 0.2)


def test_a_fallback_does_not_raise_the_price_of_spot_machines() -> None:
    sizes = [{"name": "t4", "vmSize": T4}]
    pool = {"vmSizes": sizes, "maxNodes": 6, "fallbackNodes": 2}
    config = from_mapping(AKS | {"cluster": AKS["cluster"] | {"gpuPool": pool}})

    machine_prices = prices(config, "aks-test")

    assert machine_prices.spot < machine_prices.on_demand
    assert zones(config)[0].machines == 6, "fallback machines are not spot machines"


def test_histories_of_other_zones_have_the_highest_price_and_no_limit() -> None:
    planned_zones = zones(EKS_POOLS)
    base = prices(EKS_POOLS, "eks-test")

    zone_prices = prices_in(base, planned_zones, ["mine", "us-east-1a"])

    assert zone_prices.spot_by_zone == (base.spot, planned_zones[1].price)
    history = CapacityHistory(("mine", "us-east-1a"), 300.0, ((9, 9),))
    assert machines_in(history, planned_zones, 5).machines == ((5, 3),)


def test_everything_but_the_gpu_machines_is_paid_as_long_as_the_job_runs(
    config: StackConfig,
) -> None:
    items = cost.estimate(config).items
    other_items = [item for item in items if not item.component.startswith("GPU")]

    assert prices(config, "eks-prod").fixed == pytest.approx(
        sum(item.count * (item.on_demand or 0) for item in other_items)
    )


@pytest.mark.parametrize("stack", ["eks-dev", "eks-prod", "aks-dev", "aks-prod"])
def test_the_cloud_stacks_of_the_repository_have_prices(
    stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)

    machine_prices = prices(open_stack(stack).config, stack)

    assert 0 < machine_prices.spot < machine_prices.on_demand
    assert machine_prices.fixed > 0


def test_a_plan_buys_no_more_machines_than_the_pools_of_a_stack_allow(config: StackConfig) -> None:
    """The stack eks-prod has fallbackNodes 2 and maxReplicas 6."""
    job = job_model(config, "eks-prod", 72)
    limits = JobLimits(deadline_seconds=16 * 3600)
    histories = generated_histories(5, 0, 100, job.machines, ["a", "b", "c"])
    choices = [
        *(Choice(3, OnDemand.FALLBACK, policy) for policy in FallbackPolicy),
        Choice(1, OnDemand.ALWAYS),
    ]

    outcomes = [
        replay(history, choice, job, limits, record=True)
        for history in histories
        for choice in choices
    ]

    assert job.machines == 6
    assert max(tick.on_demand for outcome in outcomes for tick in outcome.ticks) == 2


def test_the_on_demand_machines_of_a_machine_type_are_in_its_own_pools() -> None:
    config = eks_pools(
        {"name": "a", "zone": "us-east-1a", "fallbackNodes": 2},
        {"name": "b", "zone": "us-east-1a", "instanceTypes": ["g6.xlarge"], "fallbackNodes": 1},
    )

    assert job_model(config, "eks-test", 1).max_on_demand == 3
    assert job_model(config, "eks-test", 1, "g6.xlarge").max_on_demand == 1


def test_an_unknown_price_is_refused() -> None:
    pool = {"instanceTypes": ["g4dn.2xlarge"]}
    config = from_mapping(EKS | {"cluster": {"kind": "eks", "region": "eu-north-1", "gpuPool": pool,
                                             "zones": ["eu-north-1a", "eu-north-1b"]}})  # fmt: skip

    with pytest.raises(EverstepError, match=r"no price is known for g4dn\.2xlarge") as error:
        prices(config, "eks-test")

    assert "everstep:cost.prices" in error.value.fix


def test_an_item_without_a_price_is_named(
    config: StackConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    item_without_price = cost.CostItem(component="storage", name="FSx", count=1, maximum=1, on_demand=None,
                            spot=None)  # fmt: skip
    monkeypatch.setattr(
        cost, "estimate", lambda _: cost.Cost(items=(item_without_price,), as_of="", notes=())
    )

    assert prices(config, "eks-prod").unknown == ("FSx",)


def test_the_default_work_is_twelve_hours_of_all_machines(config: StackConfig) -> None:
    assert job_model(config, "eks-prod", None).work == 12 * 3600 * config.job.desired_workers
    assert job_model(config, "eks-prod", 5).work == 5 * 3600


def eks_pools(*pools: dict[str, Any]) -> StackConfig:
    """Return a stack with pools of g5.xlarge, at 1 USD an hour on demand and 0.5 on spot."""
    defaults = {"instanceTypes": ["g5.xlarge"], "maxNodes": 4}
    return from_mapping(
        EKS
        | {
            "cluster": {"kind": "eks", "gpuPools": [defaults | pool for pool in pools]},
            "cost": {"prices": {"g5.xlarge": {"onDemand": 1.0, "spot": 0.5}}},
        }
    )


RESERVED = {
    "name": "r",
    "zone": "us-east-1a",
    "capacity": "onDemand",
    "reservation": {"id": "cr-0123456789abcdef0"},
}


def test_an_on_demand_pool_is_not_replayed_and_has_its_real_price() -> None:
    (zone,) = zones(eks_pools({"name": "d", "zone": "us-east-1a", "capacity": "onDemand"}))

    assert zone.machines == 0, "the histories of spot machines do not apply to it"
    assert zone.guaranteed.machines == 4
    assert zone.guaranteed.price == pytest.approx(1.0 + DISK)
    assert zone.kinds == ("on demand",)


def test_reserved_machines_cost_their_disks_and_are_paid_for_in_any_case() -> None:
    config = eks_pools({"name": "s", "zone": "us-east-1b"}, RESERVED)

    spot_zone, reserved_zone = zones(config)

    assert (spot_zone.machines, spot_zone.guaranteed.machines) == (4, 0)
    assert reserved_zone.kinds == ("reserved",)
    assert reserved_zone.guaranteed == Guaranteed(4, DISK)
    without_reservation = prices(eks_pools({"name": "s", "zone": "us-east-1b"}), "eks-test").fixed
    assert prices(config, "eks-test").fixed == pytest.approx(without_reservation + 4 * 1.0)


def test_a_capacity_block_costs_nothing_more() -> None:
    block = RESERVED | {"reservation": {"id": "cr-0123456789abcdef0", "capacityBlock": True}}
    config = eks_pools({"name": "s", "zone": "us-east-1b"}, block)

    without_block = prices(eks_pools({"name": "s", "zone": "us-east-1b"}), "eks-test").fixed

    assert prices(config, "eks-test").fixed == pytest.approx(without_block)
    assert zones(config)[1].guaranteed == Guaranteed(4, DISK)


def test_guaranteed_machines_are_added_to_the_spot_machines_of_a_zone() -> None:
    planned_zones = zones(eks_pools(RESERVED, {"name": "s", "zone": "us-east-1a", "maxNodes": 2}))

    history = machines_in(CapacityHistory(("us-east-1a",), 300.0, ((0,), (9,))), planned_zones, 9)

    assert planned_zones[0].kinds == ("reserved", "spot")
    assert history.machines == ((4,), (6,))
    zone_prices = prices_in(prices(EKS_POOLS, "eks-test"), planned_zones, ["us-east-1a"])
    assert zone_prices.usd_per_hour(0, 5) == pytest.approx(4 * DISK + 0.5 + DISK)


def test_a_single_on_demand_pool_is_planned_only_in_its_own_zone() -> None:
    pool = {"capacity": "onDemand", "instanceTypes": ["g5.xlarge"]}
    config = from_mapping(EKS | {"cluster": {"kind": "eks", "gpuPool": pool}})
    assert [zone.kinds for zone in zones(config)] == [("on demand",)]

    sizes = {"vmSizes": [{"name": "t4", "vmSize": T4}], "capacity": "onDemand"}
    aks = from_mapping(AKS | {"cluster": AKS["cluster"] | {"gpuPool": sizes}})
    assert [zone.kinds for zone in zones(aks)] == [("on demand",)]


def aks_with_ceilings(first: float, second: float) -> StackConfig:
    """Return a stack with two pools of one VM size, at 0.2 USD an hour on spot, with these values of `maxPrice`."""
    pools = [
        {"name": "one", "zone": "1", "vmSize": T4, "maxNodes": 3, "maxPrice": first},
        {"name": "two", "zone": "2", "vmSize": T4, "maxNodes": 2, "maxPrice": second},
    ]
    table = {"prices": {T4: {"onDemand": 0.6, "spot": 0.2}}}
    return from_mapping(AKS | {"cluster": AKS["cluster"] | {"gpuPools": pools}, "cost": table})


def test_a_pool_above_its_price_ceiling_has_no_machines_and_is_named() -> None:
    config = aks_with_ceilings(0.1, 0.2)

    assert [zone.machines for zone in zones(config)] == [0, 2], (
        "a price equal to the ceiling is allowed"
    )
    (warning,) = ceiling_warnings(config)
    assert "the pool one gets no machine" in warning
    assert "costs 0.2 USD an hour on spot, above its maxPrice 0.1" in warning
    assert ceiling_warnings(aks_with_ceilings(-1, 0.3)) == ()


def test_zones_without_a_history_are_named() -> None:
    assert unplanned_zones(zones(EKS_POOLS), ["us-east-1a", "mine"]) == ("us-east-1b",)


def test_a_machine_type_has_the_zones_prices_and_limits_of_its_pools() -> None:
    assert machine_types(EKS_POOLS) == ("g5.xlarge", "g6.xlarge", "g5.2xlarge")

    first_zone, second_zone = zones(EKS_POOLS, "g6.xlarge")

    assert first_zone.machines == 2
    assert first_zone.price == pytest.approx(0.9 + DISK)
    assert (second_zone.name, second_zone.machines) == ("us-east-1a", 0)
    assert prices(EKS_POOLS, "eks-test", "g6.xlarge").on_demand == pytest.approx(1.2 + DISK)


def test_the_work_follows_from_epochs_samples_and_a_measured_rate(config: StackConfig) -> None:
    job = config.job.model_copy(update={"epochs": 10})
    fashion = config.model_copy(
        update={"job": job, "data": config.data.model_copy(update={"dataset": FASHION})}
    )

    work = work_of(fashion, images_per_second=100)

    assert work.machine_hours == pytest.approx(10 * 60_000 / 100 / 3600)
    assert work.origin == "10 epochs of 60,000 samples at 100 per second and machine"
    assert work_of(fashion, images_per_second=100, samples=36_000).machine_hours == 1
    assert "--images-per-second" in work_of(fashion).origin


@pytest.mark.parametrize(
    ("job", "dataset", "options", "message"),
    [
        ({}, FASHION, {"work_hours": 1.0, "images_per_second": 1.0}, "both set the work"),
        ({}, FASHION, {"images_per_second": 0.0}, "is not a rate"),
        ({}, FASHION, {"images_per_second": 1e-9}, "--images-per-second 1e-09 gives"),
        ({}, "imagefolder", {"images_per_second": 1.0}, "samples of data.dataset"),
        ({"command": ("python3",)}, FASHION, {"images_per_second": 1.0}, "is not Everstep's"),
    ],
)
def test_work_that_cannot_be_derived_is_refused_with_a_fix(
    job: dict[str, Any], dataset: str, options: dict[str, Any], message: str, config: StackConfig
) -> None:
    changed_config = config.model_copy(
        update={
            "job": config.job.model_copy(update=job),
            "data": config.data.model_copy(update={"dataset": dataset}),
        }
    )

    with pytest.raises(EverstepError, match=message) as error:
        work_of(changed_config, **options)

    assert error.value.fix
