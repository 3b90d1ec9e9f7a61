"""Inputs of a plan, read from the stacks of the repository: machines, zones, prices."""

from pathlib import Path

import pytest

from components import cost
from components.config import StackConfig
from everstep.cli.engine.context import open_stack
from everstep.cli.plan_inputs import job_model, prices, wanted_machines, zone_names
from everstep.errors import EverstepError

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> StackConfig:
    monkeypatch.chdir(REPOSITORY)
    return open_stack("eks-prod").config


def test_a_job_that_follows_capacity_wants_its_maximum(config: StackConfig) -> None:
    assert config.job.scaling == "capacity"
    assert wanted_machines(config) == config.job.max_replicas

    fixed = config.model_copy(update={"job": config.job.model_copy(update={"scaling": "fixed"})})
    assert wanted_machines(fixed) == config.job.replicas


def test_zones_are_those_of_the_stack(config: StackConfig) -> None:
    assert zone_names(config) == ("us-east-1a", "us-east-1b", "us-east-1c")


def test_a_machine_has_the_highest_price_of_its_pool_and_its_disk(config: StackConfig) -> None:
    found = prices(config, "eks-prod")

    items = cost.estimate(config).items
    pool = [item for item in items if item.component == "GPU pool"]
    assert found.spot == pytest.approx(sum(item.spot or 0 for item in pool))
    assert found.on_demand == pytest.approx(sum(item.on_demand or 0 for item in pool))


def test_a_plan_and_everstep_cost_agree(config: StackConfig) -> None:
    """One hour with the machines of the estimate costs what the estimate says."""
    estimate = cost.estimate(config)
    machines = next(item.count for item in estimate.items if item.component == "GPU pool")

    found = prices(config, "eks-prod")

    assert machines * found.spot + found.fixed == pytest.approx(
        estimate.total(spot=True).usd, abs=1e-3
    )


def test_an_unknown_price_is_refused(config: StackConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = cost.CostItem(
        component="GPU pool", name="g9.xlarge", count=1, maximum=1, on_demand=1.0, spot=None
    )
    monkeypatch.setattr(cost, "estimate", lambda _: cost.Cost(items=(unknown,), as_of="", notes=()))

    with pytest.raises(EverstepError, match=r"no price is known for g9\.xlarge") as refused:
        prices(config, "eks-prod")

    assert "everstep:cost.prices" in refused.value.fix


def test_a_fixed_item_without_a_price_is_named(
    config: StackConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, storage = (
        cost.CostItem(component=name, name=name, count=1, maximum=1, on_demand=price, spot=price)
        for name, price in (("GPU pool", 1.0), ("storage", None))
    )
    monkeypatch.setattr(
        cost, "estimate", lambda _: cost.Cost(items=(pool, storage), as_of="", notes=())
    )

    assert prices(config, "eks-prod").unknown == ("storage",)


def test_the_default_work_is_twelve_hours_of_all_machines(config: StackConfig) -> None:
    assert job_model(config, "eks-prod", None).work == 12 * 3600 * wanted_machines(config)
    assert job_model(config, "eks-prod", 5).work == 5 * 3600
