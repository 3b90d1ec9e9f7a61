"""Cost of a run: hours of the machines that were present times their prices; unknown prices stay unknown."""

from dataclasses import replace
from typing import Any

import pytest

from components.config import from_mapping
from everstep.cli.report.billing import rates_of
from everstep.cli.report.machines import MachineKind, ReportedMachine
from everstep.cli.report.money import (
    Billing,
    MachineRate,
    Rates,
    TrafficSpending,
    cost_of_run,
    cost_so_far,
    traffic_sentence,
    usd,
)
from everstep.cli.report.run_record import RunRecord
from tests.components.config.bad_stacks import AKS, EKS
from tests.everstep.cli.recorded_run import (
    STATE_BYTES,
    STEP_SECONDS,
    SUMMED_BYTES,
    RecordedRun,
    two_zones,
)

MOST_EXPENSIVE = MachineRate("unknown pool", 1.2, 3.6)
RATES = Rates(most_expensive=MOST_EXPENSIVE, fixed=0.6, as_of="2026-11-01")
T4_SPOT, T4_ON_DEMAND, A100 = (
    MachineKind("t4", "a", on_demand=False),
    MachineKind("t4", "a", on_demand=True),
    MachineKind("a100", "b", on_demand=False),
)
BY_POOL = Rates(
    most_expensive=MOST_EXPENSIVE,
    machines={
        T4_SPOT: MachineRate("a, spot", 0.2, 0.5),
        T4_ON_DEMAND: MachineRate("a, on-demand fallback", 0.5, 0.5),
        A100: MachineRate("b, spot", 1.2, 3.6),
    },
    fixed=0.6,
    as_of="2026-11-01",
)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.0, "$0.00"),
        (0.25, "$0.250"),
        (0.9996, "$1.00"),
        (1234.5, "$1,234.50"),
        (-12.5, "-$12.50"),
        (-0.25, "-$0.250"),
    ],
)
def test_an_amount_has_more_digits_if_it_is_small(amount: float, text: str) -> None:
    assert usd(amount) == text


def test_a_machine_costs_nothing_while_it_is_gone(recorded_run: RecordedRun) -> None:
    start = recorded_run.now
    recorded_run.form("gpu-0", "gpu-1").train(20).event("vanish", "gpu-1").wait(5.0)
    recorded_run.form("gpu-0").train(90)
    seconds = recorded_run.now - start

    costs = cost_of_run(recorded_run.run(), recorded_run.now, Billing(billed=True, rates=RATES))

    assert costs.machine_hours == pytest.approx((seconds + 10.0) / 3600)
    assert costs.spent_usd == pytest.approx(1.2 * costs.machine_hours + 0.6 * seconds / 3600)
    assert costs.saved_usd == pytest.approx(2.4 * costs.machine_hours)
    assert costs.hourly_usd == pytest.approx(1.2 + 0.6), "one machine is left"


@pytest.mark.parametrize("leaves", [True, False], ids=["leave", "killed"])
def test_a_wait_without_machines_costs_only_the_rest_of_the_stack(leaves: bool) -> None:
    """A cloud records no machine events, and new machines have new names."""
    recorded_run = RecordedRun(("a-0", "a-1", "b-0", "b-1")).form("a-0", "a-1").train(150)
    if leaves:
        leave(recorded_run, "a-0", "a-1")
    recorded_run.wait(36_000.0).form("b-0", "b-1").train(150).finish()

    costs = cost_of_run(recorded_run.run(), recorded_run.now, Billing(billed=True, rates=RATES))

    trained_hours = 2 * 300 * STEP_SECONDS / 3600
    assert costs.machine_hours == pytest.approx(trained_hours)
    run_hours = (36_000.0 + 300 * STEP_SECONDS) / 3600
    assert costs.spent_usd == pytest.approx(1.2 * trained_hours + 0.6 * run_hours)
    assert costs.saved_usd == pytest.approx(2.4 * trained_hours)


def test_a_machine_that_is_lost_before_a_wait_costs_nothing_during_it() -> None:
    recorded_run = RecordedRun(("a-0", "a-1", "b-1")).form("a-0", "a-1").train(10)
    recorded_run.wait(3600.0).form("a-0", "b-1").train(10)

    costs = cost_of_run(recorded_run.run(), recorded_run.now, Billing(billed=True, rates=RATES))

    assert costs.machine_hours == pytest.approx(1.0, abs=0.01), "only the survivor waited"


def test_machines_that_a_suspended_job_has_left_cost_nothing_more() -> None:
    recorded_run = RecordedRun().form("gpu-0", "gpu-1").train(20)
    leave(recorded_run, "gpu-0", "gpu-1")
    billing = Billing(billed=True, rates=RATES)

    costs = cost_of_run(recorded_run.run(), recorded_run.now, billing)
    soon = cost_of_run(recorded_run.run(), recorded_run.now + 60.0, billing)

    assert costs.hourly_usd == soon.hourly_usd == pytest.approx(0.6), "no machine is present"
    assert soon.machine_hours == pytest.approx(costs.machine_hours)


def test_a_machine_is_billed_again_from_the_next_start_of_a_worker(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form("gpu-0", "gpu-1").train(20)
    leave(recorded_run, "gpu-1")
    recorded_run.regroup("gpu-0").train(20).wait(1.0).regroup("gpu-0", "gpu-1").train(20)

    costs = cost_of_run(recorded_run.run(), recorded_run.now, Billing(billed=True, rates=RATES))

    assert costs.machine_hours * 3600 == pytest.approx((60 + 40) * STEP_SECONDS + 1.0)
    assert costs.hourly_usd == pytest.approx(2 * 1.2 + 0.6)


def leave(recorded_run: RecordedRun, *nodes: str) -> None:
    for node in nodes:
        recorded_run.write(node, "leave", step=recorded_run.step, reason="SIGTERM")


def test_each_machine_has_the_price_of_its_pool(recorded_run: RecordedRun) -> None:
    start = recorded_run.now
    recorded_run.form("gpu-0", "gpu-1", "gpu-2").train(60)
    hours = (recorded_run.now - start) / 3600
    # gpu-2 is missing: no command has observed it.
    machines = {"gpu-0": ReportedMachine(T4_SPOT), "gpu-1": ReportedMachine(T4_ON_DEMAND)}
    billing = Billing(billed=True, rates=BY_POOL, machines=machines)

    costs = cost_of_run(recorded_run.run(), recorded_run.now, billing)

    assert {pool.pool: pool.spent_usd for pool in costs.pools} == {
        "a, on-demand fallback": pytest.approx(0.5 * hours),
        "a, spot": pytest.approx(0.2 * hours),
        "unknown pool": pytest.approx(1.2 * hours),
    }
    assert costs.spent_usd == pytest.approx((0.5 + 0.2 + 1.2 + 0.6) * hours)
    assert costs.saved_usd == pytest.approx((0.3 + 2.4) * hours)
    assert costs.hourly_usd == pytest.approx(0.5 + 0.2 + 1.2 + 0.6)


@pytest.mark.parametrize(
    ("seconds_early", "seconds"), [(None, 0.0), (8.0, 8.0), (1e6, 20 * STEP_SECONDS)]
)
def test_a_machine_is_billed_from_the_time_at_which_it_joined_the_cluster(
    recorded_run: RecordedRun, seconds_early: float | None, seconds: float
) -> None:
    recorded_run.form("gpu-0").train(20)
    joined_at = None if seconds_early is None else recorded_run.now - seconds_early
    recorded_run.form("gpu-0", "gpu-1").train(10)
    billing = Billing(
        billed=True,
        rates=BY_POOL,
        machines={
            "gpu-0": ReportedMachine(A100),
            "gpu-1": ReportedMachine(T4_SPOT, since=joined_at),
        },
    )

    pools = {
        pool.pool: pool for pool in cost_of_run(recorded_run.run(), recorded_run.now, billing).pools
    }

    assert pools["a, spot"].machine_hours * 3600 == pytest.approx(seconds + 10 * STEP_SECONDS)


def test_a_move_costs_the_machines_that_did_not_train() -> None:
    recorded_run = two_zones()
    (move,) = recorded_run.moves
    machine_a, machine_b = ReportedMachine(T4_SPOT), ReportedMachine(A100, since=move.began + 10.0)
    machines = {"gpu-0": machine_a, "gpu-1": machine_a, "gpu-2": machine_b, "gpu-3": machine_b}
    billing = Billing(billed=True, rates=BY_POOL, machines=machines)

    (costs,) = cost_of_run(recorded_run.run(), recorded_run.now, billing).moves

    # The first step of each group is part of the machines' pause; machines of zone b wait 20 s before the pause.
    # The machines of zone a are gone in the second pause, from which the group continues without them.
    first_pause, second_pause = 2.0 + STEP_SECONDS, 1.0 + STEP_SECONDS
    a_seconds, b_seconds = 2 * first_pause, 2 * (20.0 + first_pause + second_pause)
    assert costs.machine_hours == pytest.approx((a_seconds + b_seconds) / 3600)
    assert costs.usd == pytest.approx((0.2 * a_seconds + 1.2 * b_seconds) / 3600)


def test_data_between_zones_is_priced_by_the_gigabyte() -> None:
    recorded_run = two_zones()
    zones = ("zone-a", "zone-a", "zone-b", "zone-b")
    machines = {f"gpu-{n}": ReportedMachine(T4_SPOT, zone) for n, zone in enumerate(zones)}
    rates = replace(BY_POOL, between_zones=0.02)
    billing = Billing(billed=True, rates=rates, machines=machines)

    costs = cost_of_run(recorded_run.run(), recorded_run.now, billing)

    traffic = costs.between_zones
    assert traffic is not None
    # 120 steps of four ranks: two links of the ring cross zones, each with 2 x 3/4 of the gradients.
    gradient_gb, state_gb = 120 * 2 * 2 * 3 / 4 * SUMMED_BYTES / 1e9, 2 * STATE_BYTES / 1e9
    assert (traffic.gradient_gb, traffic.state_gb) == pytest.approx((gradient_gb, state_gb))
    assert traffic.usd == pytest.approx(0.02 * (gradient_gb + state_gb))
    assert traffic_sentence(traffic) == (
        "Between zones: 14.40 GB of gradients and 0.16 GB of state, $0.291."
    )
    costs_without_price = cost_of_run(
        recorded_run.run(), recorded_run.now, replace(billing, rates=BY_POOL)
    )
    assert costs_without_price.spent_usd == costs.spent_usd, "`spent_usd` excludes traffic"


def test_a_run_in_one_zone_has_no_traffic_to_mention(drill_run: RecordedRun) -> None:
    machines = {node: ReportedMachine(T4_SPOT, "zone-a") for node in drill_run.nodes}
    billing = Billing(billed=True, rates=BY_POOL, machines=machines)

    traffic = cost_of_run(drill_run.run(), drill_run.now, billing).between_zones

    assert traffic == TrafficSpending(gradient_gb=0, state_gb=0, unknown_steps=0, usd=0)
    assert traffic_sentence(traffic) == ""


def test_steps_in_unknown_zones_are_named_as_not_counted() -> None:
    traffic = TrafficSpending(gradient_gb=1, state_gb=0, unknown_steps=1200, usd=0.02)

    assert traffic_sentence(traffic).endswith(
        " 1,200 steps on machines of unknown zones are not counted."
    )


def test_traffic_between_zones_has_the_price_of_the_cloud() -> None:
    assert rates_for(EKS).between_zones == 0.02
    assert rates_for(AKS).between_zones == 0.0


def test_a_move_under_way_has_no_price_yet(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(10).begin_move().train(10)

    (costs,) = cost_of_run(
        recorded_run.run(), recorded_run.now, Billing(billed=True, rates=RATES)
    ).moves

    assert (costs.machine_hours, costs.usd) == (None, None)


def test_the_machine_hours_of_the_pools_add_up(drill_run: RecordedRun) -> None:
    billing = Billing(billed=True, rates=BY_POOL, machines={"gpu-0": ReportedMachine(A100)})

    costs = cost_of_run(drill_run.run(), drill_run.now, billing)

    assert len(costs.pools) == 2
    assert sum(pool.machine_hours for pool in costs.pools) == pytest.approx(costs.machine_hours)


def test_a_pool_without_a_price_makes_the_sum_unknown(drill_run: RecordedRun) -> None:
    rates = replace(BY_POOL, machines={A100: MachineRate("b, spot", None, 3.6)})
    billing = Billing(billed=True, rates=rates, machines={"gpu-0": ReportedMachine(A100)})

    costs = cost_of_run(drill_run.run(), drill_run.now, billing)

    assert costs.spent_usd is None
    assert {pool.pool for pool in costs.pools if pool.spent_usd is None} == {"b, spot"}


def test_a_finished_run_costs_no_more_as_time_passes(drill_run: RecordedRun) -> None:
    billing = Billing(billed=True, rates=RATES)

    assert cost_of_run(drill_run.run(), drill_run.now, billing) == cost_of_run(
        drill_run.run(), drill_run.now + 86_400, billing
    )


def test_a_run_that_has_stopped_costs_no_more_as_time_passes(recorded_run: RecordedRun) -> None:
    run, billing = (
        recorded_run.form("gpu-0", "gpu-1").train(50).run(),
        Billing(billed=True, rates=RATES),
    )

    now, soon, later = (
        cost_of_run(run, recorded_run.now + seconds, billing) for seconds in (0.0, 300.0, 36_000.0)
    )

    assert now.machine_hours == pytest.approx(2 * 50 * STEP_SECONDS / 3600)
    assert now == soon == later


def test_an_unknown_price_is_not_counted_as_zero(drill_run: RecordedRun) -> None:
    rates = replace(RATES, most_expensive=MachineRate("unknown pool", None, 3.6))

    costs = cost_of_run(drill_run.run(), drill_run.now, Billing(billed=True, rates=rates))

    assert (costs.spent_usd, costs.saved_usd) == (None, None)
    assert costs.on_demand_usd is not None


def test_nothing_is_billed_without_a_cloud(drill_run: RecordedRun) -> None:
    costs = cost_of_run(drill_run.run(), drill_run.now, Billing(billed=False, reason="it ran here"))

    assert (costs.billed, costs.spent_usd, costs.reason) == (False, 0.0, "it ran here")


def test_a_run_that_has_not_started_costs_nothing() -> None:
    costs = cost_of_run(RunRecord(), 1000.0, Billing(billed=True, rates=RATES))

    assert (costs.machine_hours, costs.spent_usd) == (0.0, 0.0)


def rates_for(base: dict[str, Any], **cluster: Any) -> Rates:
    config = from_mapping(base | {"cluster": base["cluster"] | cluster})
    rates = rates_of(config)
    assert rates is not None
    return rates


def test_each_machine_type_has_its_price_and_an_unknown_machine_the_highest() -> None:
    types = ["g5.xlarge", "g6.xlarge"]
    prices = {name: {"onDemand": 1.0 + n, "spot": 0.5 + n} for n, name in enumerate(types)}
    base = EKS | {"cost": {"prices": prices}}
    rates = rates_for(base, gpuPool={"instanceTypes": types, "fallbackNodes": 1})

    small_rate, large_rate = (
        rates.machines[MachineKind(name, "", on_demand=False)] for name in types
    )
    assert small_rate.pool == large_rate.pool == "spot"
    assert (small_rate.price or 0) < (large_rate.price or 0)
    assert rates.most_expensive.price == large_rate.on_demand, "it may have been a fallback"
    fallback = rates.machines[MachineKind("g6.xlarge", "", on_demand=True)]
    assert (fallback.pool, fallback.price) == ("on-demand fallback", large_rate.on_demand)


def test_a_fallback_on_azure_belongs_to_its_pool() -> None:
    t4 = "Standard_NC4as_T4_v3"
    rates = rates_for(
        AKS, gpuPools=[{"name": "one", "zone": "1", "vmSize": t4, "fallbackNodes": 2}]
    )

    spot_rate, fallback_rate = (
        rates.machines[MachineKind(t4, "one", on_demand=on_demand)] for on_demand in (False, True)
    )
    assert (spot_rate.pool, fallback_rate.pool) == ("one, spot", "one, on-demand fallback")
    assert (spot_rate.price or 0) < (fallback_rate.price or 0) == spot_rate.on_demand


def test_an_item_without_a_price_is_named() -> None:
    rates = rates_for(
        EKS,
        region="eu-north-1",
        zones=["eu-north-1a", "eu-north-1b"],
        gpuPool={"instanceTypes": ["g4dn.2xlarge"]},
    )

    assert rates.most_expensive.price is None
    assert "g4dn.2xlarge" in rates.unknown


def test_a_stack_that_buys_nothing_has_no_prices() -> None:
    assert rates_of(from_mapping({})) is None


def test_the_cost_so_far_is_an_amount_or_states_why_there_is_none(drill_run: RecordedRun) -> None:
    run, now = drill_run.run(), drill_run.now
    unknown_rates = replace(RATES, most_expensive=MachineRate("unknown pool", None, None))

    assert cost_so_far(cost_of_run(run, now, Billing(billed=True, rates=RATES))) == "$0.188 so far"
    assert (
        cost_so_far(cost_of_run(run, now, Billing(billed=True, rates=unknown_rates))) == "unknown"
    )
    assert (
        cost_so_far(cost_of_run(run, now, Billing(billed=False, reason="here")))
        == "nothing is billed"
    )
