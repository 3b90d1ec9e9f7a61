"""Inputs of a plan, read from the stacks of the repository: machines, zones, prices."""

from pathlib import Path

import pytest

from components import cost
from components.config import StackConfig, from_mapping
from everstep.cli.engine.context import open_stack
from everstep.cli.plan_inputs import (
    desired_machines,
    job_model,
    machines_in,
    prices,
    prices_in,
    zones,
)
from everstep.errors import EverstepError
from tests.components.config.bad_stacks import AKS, EKS

REPOSITORY = Path(__file__).parents[3]
T4 = "Standard_NC4as_T4_v3"
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
    assert desired_machines(config) == config.job.max_replicas

    fixed_config = config.model_copy(
        update={"job": config.job.model_copy(update={"scaling": "fixed"})}
    )
    assert desired_machines(fixed_config) == config.job.replicas


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
        {"name": "two", "zone": "1", "vmSize": T4, "maxNodes": 4},
    ]
    config = from_mapping(AKS | {"cluster": AKS["cluster"] | {"gpuPools": pools}})

    assert [(zone.name, zone.machines) for zone in zones(config)] == [("2", 2), ("1", 4)]


def test_a_fallback_does_not_raise_the_price_of_spot_machines() -> None:
    sizes = [{"name": "t4", "vmSize": T4}]
    pool = {"vmSizes": sizes, "maxNodes": 6, "fallbackNodes": 2}
    config = from_mapping(AKS | {"cluster": AKS["cluster"] | {"gpuPool": pool}})

    machine_prices = prices(config, "aks-test")

    assert machine_prices.spot < machine_prices.on_demand
    assert zones(config)[0].machines == 6, "fallback machines are no spot machines"


def test_histories_of_other_zones_have_the_highest_price_and_no_limit() -> None:
    planned_zones = zones(EKS_POOLS)
    base = prices(EKS_POOLS, "eks-test")

    zone_prices = prices_in(base, planned_zones, ["mine", "us-east-1a"])

    assert zone_prices.spot_by_zone == (base.spot, planned_zones[1].price)
    assert machines_in(planned_zones, ["mine", "us-east-1a"], 5) == [5, 3]


def test_everything_but_the_gpu_machines_is_paid_as_long_as_the_job_runs(
    config: StackConfig,
) -> None:
    items = cost.estimate(config).items
    other_items = [item for item in items if not item.component.startswith("GPU")]

    assert prices(config, "eks-prod").fixed == pytest.approx(
        sum(item.count * (item.on_demand or 0) for item in other_items)
    )


def test_the_stacks_of_the_repository_have_prices(config: StackConfig) -> None:
    machine_prices = prices(config, "eks-prod")

    assert 0 < machine_prices.spot < machine_prices.on_demand
    assert machine_prices.fixed > 0


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
    assert job_model(config, "eks-prod", None).work == 12 * 3600 * desired_machines(config)
    assert job_model(config, "eks-prod", 5).work == 5 * 3600
