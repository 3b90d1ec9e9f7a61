"""Rates of the report: reserved machines, fallbacks and machines that no command has observed."""

from typing import Any

import pytest

from components.config import StackConfig, from_mapping
from components.cost import estimate, machine_prices
from everstep.cli.report.billing import billing_of
from everstep.cli.report.machines import MachineKind, ReportedMachine
from everstep.cli.report.money import Rates, cost_of_run
from tests.components.config.bad_stacks import EKS
from tests.everstep.cli.recorded_run import STEP_SECONDS, RecordedRun

G5 = "g5.xlarge"
SPOT, ON_DEMAND = (MachineKind(G5, "", on_demand=on_demand) for on_demand in (False, True))
HOURS = 10
DISK = machine_prices(from_mapping(EKS))[0].disk or 0.0


def stack_with(**gpu_pool: Any) -> StackConfig:
    """Return a stack on EKS with one type of GPU machine."""
    pool = {"instanceTypes": [G5], **gpu_pool}
    return from_mapping(EKS | {"cluster": EKS["cluster"] | {"gpuPool": pool}})


def reserved(**reservation: Any) -> StackConfig:
    """Return a stack with six reserved machines, of which its job uses three."""
    return stack_with(
        capacity="onDemand",
        maxNodes=6,
        reservation={"id": "cr-0123456789abcdef0", **reservation},
    )


def rates(config: StackConfig) -> Rates:
    """Return the rates of a stack."""
    stack_rates = billing_of(config, "").rates
    assert stack_rates is not None
    return stack_rates


@pytest.fixture
def ten_hours(recorded_run: RecordedRun) -> RecordedRun:
    """Return a run of ten hours on three machines."""
    recorded_run.form("gpu-0", "gpu-1", "gpu-2").train(10)
    return recorded_run.wait(HOURS * 3600.0 - 11 * STEP_SECONDS).train(1)


def test_a_machine_of_a_capacity_block_has_the_price_of_its_disk_and_the_name_on_demand() -> None:
    rate = rates(reserved(capacityBlock=True)).machines[ON_DEMAND]

    assert (rate.pool, rate.price) == ("on demand", DISK)
    assert rate.on_demand == DISK, "the advance payment is not included, so no saving can be stated"


def test_an_on_demand_pool_is_not_called_a_fallback() -> None:
    machines = rates(stack_with(capacity="onDemand")).machines

    assert {kind: rate.pool for kind, rate in machines.items()} == {ON_DEMAND: "on demand"}


@pytest.mark.parametrize("reservation", [{}, {"capacityBlock": True}], ids=["open", "block"])
def test_reserved_machines_are_reported_at_the_cost_of_the_stack(
    ten_hours: RecordedRun, reservation: dict[str, Any]
) -> None:
    config = reserved(**reservation)
    machines = {node: ReportedMachine(ON_DEMAND) for node in ten_hours.nodes}

    costs = cost_of_run(ten_hours.run(), ten_hours.now, billing_of(config, "", machines))

    hourly_usd = estimate(config).total(spot=True).usd
    assert costs.spent_usd == pytest.approx(HOURS * hourly_usd, rel=1e-4)
    assert costs.saved_usd == pytest.approx(0.0)


def test_a_machine_that_no_command_observed_may_have_been_a_fallback() -> None:
    fallback = rates(stack_with(fallbackNodes=2))

    assert fallback.most_expensive.price == pytest.approx(1.006 + DISK)
    assert rates(stack_with()).most_expensive.price == pytest.approx(0.507 + DISK)
