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


def item(component: str, name: str, count: int, price: float | None) -> cost.CostItem:
    """Return an item whose spot price is half of the price on demand."""
    spot = None if price is None else price / 2
    return cost.CostItem(
        component=component, name=name, count=count, maximum=9, on_demand=price, spot=spot
    )


def estimated(monkeypatch: pytest.MonkeyPatch, *items: cost.CostItem) -> None:
    monkeypatch.setattr(cost, "estimate", lambda _: cost.Cost(items=items, as_of="", notes=()))


def test_a_machine_has_the_highest_price_of_all_pools_and_its_disk(
    config: StackConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimated(
        monkeypatch,
        item("GPU pool a", "g5.xlarge", 3, 1.0),
        item("GPU pool a", "disk of 100 GiB", 3, 0.02),
        item("GPU pool b", "g6.xlarge", 0, 2.0),
        item("GPU fallback a", "p5.48xlarge", 0, 50.0),
        item("GPU pool fallback", "p5.48xlarge", 0, 50.0),
    )

    found = prices(config, "eks-prod")

    assert (found.spot, found.on_demand) == (1.02, 2.02)
    assert found.fixed == 0


def test_everything_but_the_gpu_machines_is_paid_as_long_as_the_job_runs(
    config: StackConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimated(
        monkeypatch,
        item("GPU pool", "g5.xlarge", 3, 1.0),
        item("system pool", "m6i.large", 2, 0.1),
        item("storage", "FSx", 1, 0.3),
    )

    assert prices(config, "eks-prod").fixed == pytest.approx(0.5)


def test_the_stacks_of_the_repository_have_prices(config: StackConfig) -> None:
    found = prices(config, "eks-prod")

    assert 0 < found.spot < found.on_demand
    assert found.fixed > 0


def test_an_unknown_price_is_refused(config: StackConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    estimated(monkeypatch, item("GPU pool", "g9.xlarge", 1, None))

    with pytest.raises(EverstepError, match=r"no price is known for g9\.xlarge") as refused:
        prices(config, "eks-prod")

    assert "everstep:cost.prices" in refused.value.fix


def test_a_fixed_item_without_a_price_is_named(
    config: StackConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimated(monkeypatch, item("GPU pool", "g5.xlarge", 1, 1.0), item("storage", "FSx", 1, None))

    assert prices(config, "eks-prod").unknown == ("FSx",)


def test_the_default_work_is_twelve_hours_of_all_machines(config: StackConfig) -> None:
    assert job_model(config, "eks-prod", None).work == 12 * 3600 * wanted_machines(config)
    assert job_model(config, "eks-prod", 5).work == 5 * 3600
