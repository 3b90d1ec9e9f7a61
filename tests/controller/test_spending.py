"""The deadline and the budget of a job: costs, purchases and the status."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects import Node, Pod
from controller.spending import (
    JOIN_SECONDS,
    PASS_SECONDS,
    ObservedSpending,
    SpendingPlan,
    plan_spending,
)
from controller.spending_settings import PoolPrice, SpendingSettings, read_spending
from controller.spending_state import BilledMachine, CompletedShare, ObservedShare, SpendingState
from everstep.capacity.on_demand import FALLBACK_AFTER_SECONDS, OnDemand
from everstep.catalog.names import CAPACITY_LABEL, GPU_POOL_LABEL, ON_DEMAND
from tests.controller.builders import NOW, pod

HOUR = 3600.0
PRICES = (
    PoolPrice(pool="g5-a", on_demand=False, usd_per_hour=1.0),
    PoolPrice(pool="g5-a", on_demand=True, usd_per_hour=3.0),
    PoolPrice(pool="g5-b", on_demand=False, usd_per_hour=2.0),
)
NODES = {
    "spot-a": Node(name="spot-a", labels={GPU_POOL_LABEL: "g5-a"}),
    "spot-b": Node(name="spot-b", labels={GPU_POOL_LABEL: "g5-b"}),
    "on-demand": Node(name="on-demand", labels={GPU_POOL_LABEL: "g5-a", CAPACITY_LABEL: ON_DEMAND}),
    "other": Node(name="other"),
}
POOL = {"capacity": "spot", "usdPerHour": 1}
BUDGET = SpendingSettings(budget_usd=100.0, pools=PRICES)
DEADLINE = SpendingSettings(on_demand=OnDemand.FALLBACK, deadline_seconds=10 * HOUR, pools=PRICES)


def worker(index: int, node: str | None = "spot-a", **fields: Any) -> Pod:
    started = None if node is None else NOW
    phase = "Pending" if node is None else "Running"
    defaults = {"node": node, "bound_since": started, "started": started}
    return pod(index, **{"phase": phase, **defaults, **fields})


def on_demand_worker(index: int, node: str | None = "on-demand", **fields: Any) -> Pod:
    return worker(index, node, **{"on_demand": True, **fields})


def decide(
    pods: Sequence[Pod] = (),
    previous: SpendingState | None = None,
    settings: SpendingSettings = BUDGET,
    *,
    after: float = 0,
    share: float | None = None,
    share_age: float = 0,
    wanted: int = 4,
    min_workers: int = 1,
    runs: bool = True,
) -> SpendingPlan:
    """Return the result of one pass; the status goes through its JSON, as after a restart."""
    stored_state = (
        SpendingState.from_json(json.loads(json.dumps(previous.to_json()))) if previous else None
    )
    now = NOW + timedelta(seconds=after)
    observed = ObservedSpending(
        settings=settings,
        created=NOW,
        desired_workers=wanted,
        min_workers=min_workers,
        grace_seconds=30,
        pods=pods,
        nodes=NODES,
        share=None
        if share is None
        else ObservedShare(value=share, read_at=now - timedelta(seconds=share_age)),
        runs=runs,
        now=now,
    )
    return plan_spending(observed, stored_state)


def test_each_machine_is_billed_at_the_price_of_its_pool_while_a_pod_occupies_it() -> None:
    pods = [worker(0), worker(1, "spot-b"), on_demand_worker(2), worker(3, None)]
    first_pass = decide(pods).state

    later_state = decide(pods, first_pass, after=HOUR).state

    assert first_pass.usd == 0
    assert later_state.usd == pytest.approx(1 + 2 + 3)
    assert (later_state.spot_seconds, later_state.on_demand_seconds) == (2 * HOUR, HOUR)
    assert later_state.usd_per_hour == 6


def test_a_machine_of_an_unknown_pool_has_the_highest_price_of_its_capacity() -> None:
    assert decide([worker(0, "other")]).state.usd_per_hour == 2
    assert BUDGET.usd_per_hour({CAPACITY_LABEL: ON_DEMAND}) == 3


def test_a_pod_is_billed_from_its_binding_to_its_end_even_if_no_controller_runs() -> None:
    empty = decide().state
    recent_pod = replace(worker(0), bound_since=NOW + timedelta(hours=1))
    ended_pod = worker(
        1,
        phase="Failed",
        bound_since=NOW + timedelta(hours=1),
        finished=NOW + timedelta(hours=2),
    )

    state = decide([recent_pod, ended_pod], empty, after=3 * HOUR).state

    assert state.usd == pytest.approx(2 * 1 + 1 * 1)
    assert [machine.pod for machine in state.machines] == ["uid-0"]
    assert decide([recent_pod, ended_pod], state, after=4 * HOUR).state.usd == pytest.approx(4)


def test_a_missing_pod_is_billed_until_its_absence_is_observed_and_an_ended_pod_until_its_end() -> (
    None
):
    before = decide([worker(0), worker(1)]).state
    failed_pod = worker(1, phase="Failed", finished=NOW + timedelta(hours=1))

    assert decide([failed_pod], before, after=2 * HOUR).state.usd == pytest.approx(2 + 1)


@given(gaps=st.lists(st.integers(1, 5000), min_size=1, max_size=20))
def test_the_total_does_not_depend_on_the_times_at_which_it_is_computed(gaps: list[int]) -> None:
    pods = [worker(0), on_demand_worker(1)]
    settings = replace(BUDGET, fixed_usd_per_hour=0.5, budget_usd=None)
    state, seconds = decide(pods, settings=settings).state, 0
    for gap in gaps:
        seconds += gap
        state = decide(pods, state, settings, after=seconds).state

    uncounted_time = NOW + timedelta(seconds=seconds) - state.counted_at
    total = state.usd + state.usd_per_hour * (uncounted_time / timedelta(hours=1))
    assert total == pytest.approx((1 + 3 + 0.5) * seconds / HOUR, abs=1e-3)


def test_the_state_is_written_once_a_minute_or_when_the_machines_change() -> None:
    first = decide([worker(0)]).state

    assert decide([worker(0)], first, after=PASS_SECONDS - 1).state == first
    assert decide([worker(0)], first, after=PASS_SECONDS).state.usd > 0
    assert decide([worker(0), worker(1)], first, after=1).state.workers == 2


def test_the_rest_of_the_stack_is_billed_while_the_job_is_not_suspended() -> None:
    settings = replace(BUDGET, fixed_usd_per_hour=0.5)
    first_pass = decide(settings=settings).state
    suspended = decide((), first_pass, settings, after=HOUR, runs=False).state

    assert suspended.usd == pytest.approx(0.5)
    assert decide((), suspended, settings, after=2 * HOUR, runs=False).state.usd == suspended.usd


def test_the_budget_is_used_up_when_another_pass_and_the_grace_period_would_exceed_it() -> None:
    pods = [worker(index, "spot-b") for index in range(4)]
    settings = replace(BUDGET, budget_usd=8.0, on_demand=OnDemand.NEVER)
    first_pass = decide(pods, settings=settings)
    reserve = 8.0 * (PASS_SECONDS + 30) / HOUR

    early_plan = decide(pods, first_pass.state, settings, after=HOUR - PASS_SECONDS - 30)
    later_plan = decide(pods, first_pass.state, settings, after=HOUR - PASS_SECONDS - 29)

    (wake,) = [
        time for time in first_pass.wake_times if time > NOW + timedelta(seconds=JOIN_SECONDS)
    ]
    assert (wake - NOW).total_seconds() == pytest.approx((8 - reserve) / 8 * HOUR + 1)
    assert not early_plan.state.used_up
    assert later_plan.state.used_up
    assert later_plan.state.reason == (
        "the budget of 8.00 USD is used up; raise job.budgetUsd, and training resumes from its checkpoint"
    )


def test_a_budget_that_lasts_beyond_the_latest_datetime_does_not_fail_the_pass() -> None:
    """Users may set a huge budget instead of none, and before its first machine a job costs little."""
    settings = replace(BUDGET, budget_usd=9e8, fixed_usd_per_hour=1e-6)

    (wake_time,) = decide(settings=settings).wake_times

    assert wake_time > NOW


def test_a_budget_that_is_used_up_stays_used_up_until_it_is_raised() -> None:
    settings = replace(BUDGET, budget_usd=1.0, fixed_usd_per_hour=0.01)
    used_up = decide([worker(0)], SpendingState(counted_at=NOW, usd=0.99), settings).state
    later = decide((), used_up, settings, after=HOUR).state

    assert used_up.used_up
    assert later.used_up
    assert later.fixed_usd_per_hour == 0
    assert not decide((), later, replace(settings, budget_usd=3.0), after=HOUR).state.used_up


def test_without_a_policy_nothing_is_decided_about_on_demand_machines() -> None:
    assert decide([worker(0)]).purchase is None


def state_with_share(share: float, hours: float) -> SpendingState:
    """Return the state of a job that has trained for some hours with four machines."""
    return SpendingState(
        counted_at=NOW + timedelta(hours=hours),
        workers=4,
        completed_share=CompletedShare(
            first_share=0.0, newest_share=share, machine_seconds=4 * hours * HOUR
        ),
    )


def test_the_remaining_work_is_estimated_from_the_share_and_the_machine_time() -> None:
    # All machines took 2 h for half of the training; 8 h are left. A quarter after 3.9 h is too little.
    early_plan = decide((), state_with_share(0.5, 2), DEADLINE, after=2 * HOUR, share=0.5)
    late_plan = decide((), state_with_share(0.25, 2), DEADLINE, after=3.9 * HOUR, share=0.25)

    assert early_plan.purchase is not None
    assert early_plan.purchase.on_demand == 0
    assert late_plan.purchase is not None
    assert late_plan.purchase.on_demand == 4
    assert late_plan.state.on_demand == 4


def test_with_few_on_demand_machines_they_are_bought_earlier() -> None:
    """Half of the training took 2 h of 4 machines: with one on-demand machine, the other half takes 8 h."""
    one_machine = replace(DEADLINE, max_on_demand=1)

    unlimited = decide((), state_with_share(0.5, 2), DEADLINE, after=3 * HOUR).purchase
    limited = decide((), state_with_share(0.5, 2), one_machine, after=3 * HOUR).purchase

    assert unlimited is not None
    assert unlimited.on_demand == 0
    assert limited is not None
    assert (limited.on_demand, limited.use_spot) == (1, True)


def test_progress_before_the_first_observation_does_not_make_the_training_seem_faster() -> None:
    first_state = decide([worker(index) for index in range(4)], None, DEADLINE, share=0.8).state
    later = decide(
        [worker(index) for index in range(4)], first_state, DEADLINE, after=HOUR, share=0.85
    ).state

    assert later.completed_share == CompletedShare(
        first_share=0.8, newest_share=0.85, machine_seconds=4 * HOUR
    )


def test_the_estimated_work_is_the_same_while_no_share_is_read() -> None:
    # With 4 machines, half of the training took 2 h. The other half takes as long: after 3 h, 5 h of margin are left.
    state_without_share = decide((), state_with_share(0.5, 2), DEADLINE, after=3 * HOUR).state

    assert state_without_share.completed_share == CompletedShare(
        first_share=0.0, newest_share=0.5, machine_seconds=8 * HOUR, pending_seconds=4 * HOUR
    )
    assert state_without_share.reason.startswith(f"{5 * HOUR:.0f} s of margin are left")


def test_workers_that_start_next_to_a_complete_group_do_not_make_the_training_seem_slower() -> None:
    group = [on_demand_worker(index) for index in range(4)]
    starting = [worker(index) for index in range(4, 8)]
    before = decide([*group, *starting], state_with_share(0.5, 2), DEADLINE, after=2 * HOUR).state

    state = decide([*group, *starting], before, DEADLINE, after=3 * HOUR, share=0.75).state

    assert state.completed_share == CompletedShare(
        first_share=0.0, newest_share=0.75, machine_seconds=12 * HOUR
    )


def test_machine_time_without_a_known_share_counts_when_the_next_share_is_read() -> None:
    pods = [worker(index) for index in range(4)]
    state_without_share = decide(pods, state_with_share(0.5, 2), DEADLINE, after=3 * HOUR).state

    state = decide(pods, state_without_share, DEADLINE, after=4 * HOUR, share=0.75).state

    assert state.completed_share == CompletedShare(
        first_share=0.0, newest_share=0.75, machine_seconds=16 * HOUR
    )


def test_a_share_that_was_read_before_the_last_count_is_counted_once() -> None:
    pods = [worker(index) for index in range(4)]
    first_pass = decide(
        pods, state_with_share(0.5, 2), DEADLINE, after=3 * HOUR, share=0.75, share_age=600
    ).state

    state = decide(
        pods, first_pass, DEADLINE, after=4 * HOUR, share=0.75, share_age=HOUR + 600
    ).state

    assert first_pass.completed_share is not None
    assert state.completed_share == replace(
        first_pass.completed_share, pending_seconds=4 * (HOUR + 600)
    )


@given(
    passes=st.lists(
        st.tuples(st.integers(60, 5000), st.none() | st.floats(0, 1), st.integers(0, 59)),
        max_size=20,
    ),
    workers=st.integers(1, 4),
)
def test_machine_time_is_counted_from_the_first_share_to_the_newest_one_and_pending_afterwards(
    passes: list[tuple[int, float | None, int]], workers: int
) -> None:
    pods = [worker(index) for index in range(workers)]
    state, seconds, newest_read = decide(pods, None, DEADLINE, share=0.1).state, 0, 0
    for gap, share, share_age in passes:
        seconds += gap
        state = decide(pods, state, DEADLINE, after=seconds, share=share, share_age=share_age).state
        newest_read = newest_read if share is None else seconds - share_age

    assert state.completed_share is not None
    assert state.completed_share.machine_seconds == pytest.approx(workers * newest_read, abs=1e-3)
    assert state.completed_share.pending_seconds == pytest.approx(
        workers * (seconds - newest_read), abs=1e-3
    )


def test_without_progress_the_smallest_group_is_bought_after_a_while_without_spot() -> None:
    first_pass = decide((), None, DEADLINE, min_workers=2).state
    waiting = decide((), first_pass, DEADLINE, after=FALLBACK_AFTER_SECONDS - 1, min_workers=2)
    later_plan = decide((), waiting.state, DEADLINE, after=FALLBACK_AFTER_SECONDS, min_workers=2)

    assert waiting.state.on_demand == 0
    assert later_plan.state.on_demand == 2
    assert later_plan.state.reason.startswith("0 of at least 2 spot machines train")


def test_a_job_that_reports_no_progress_gets_on_demand_machines_after_half_of_its_time() -> None:
    pods = [worker(0, started=NOW)]

    assert decide(pods, None, DEADLINE, after=4.9 * HOUR).state.on_demand == 0
    assert decide(pods, None, DEADLINE, after=5 * HOUR).state.on_demand == 4


def test_an_on_demand_worker_stays_until_the_spot_worker_that_replaces_it_has_joined() -> None:
    counted_at = NOW + timedelta(hours=3.5)
    later_state = replace(state_with_share(0.25, 2), counted_at=counted_at)
    running = [on_demand_worker(index) for index in range(4)]
    spot = worker(4, started=counted_at, bound_since=counted_at)

    def on_demand_workers(seconds: float, *pods: Pod) -> int:
        plan = decide(pods, later_state, DEADLINE, after=3.5 * HOUR + seconds, share=0.25)
        assert plan.purchase is not None
        return plan.purchase.on_demand

    assert on_demand_workers(0, *running) == 4
    assert on_demand_workers(JOIN_SECONDS - 1, *running, spot) == 4
    assert on_demand_workers(JOIN_SECONDS, *running, spot) == 3


def test_never_and_always_do_not_depend_on_progress() -> None:
    for policy, number in ((OnDemand.NEVER, 0), (OnDemand.ALWAYS, 4)):
        settings = replace(DEADLINE, on_demand=policy)
        assert (
            decide([worker(0)], state_with_share(0.1, 9), settings, after=9 * HOUR).state.on_demand
            == number
        )


def test_nothing_is_bought_for_a_job_that_is_suspended_or_has_no_budget_left() -> None:
    always = replace(DEADLINE, on_demand=OnDemand.ALWAYS)
    settings_without_budget = replace(always, budget_usd=1.0)

    assert decide((), None, always, runs=False).state.on_demand == 0
    assert (
        decide((), SpendingState(counted_at=NOW, usd=1.0), settings_without_budget).state.on_demand
        == 0
    )


def test_the_reason_states_that_the_deadline_has_passed() -> None:
    state = decide((), state_with_share(0.5, 9), DEADLINE, after=10 * HOUR).state

    assert state.deadline == NOW + timedelta(hours=10)
    assert state.reason.startswith("the deadline has passed; ")


def test_the_spending_survives_serialization() -> None:
    state = SpendingState(
        counted_at=NOW,
        usd=1.5,
        spot_seconds=60.0,
        on_demand_seconds=30.0,
        machines=(
            BilledMachine(pod="a", pool="g5-a", on_demand=True, usd_per_hour=3.0),
            BilledMachine(pod="b", pool="", on_demand=False, usd_per_hour=1.0),
        ),
        fixed_usd_per_hour=0.5,
        workers=2,
        on_demand=1,
        use_spot=False,
        reason="why",
        deadline=NOW,
        completed_share=CompletedShare(
            first_share=0.1, newest_share=0.2, machine_seconds=10.0, pending_seconds=5.0
        ),
        starved_since=NOW,
        used_up=True,
    )

    assert SpendingState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert SpendingState.from_json(None) is None


def test_settings_are_read_with_their_prices() -> None:
    settings, errors = read_spending(
        {
            "deadline": "2026-01-02T00:00:00Z",
            "budgetUsd": 5,
            "onDemand": "fallback",
            "maxOnDemand": 2,
            "fixedUsdPerHour": 0.25,
            "pools": [{"capacity": "spot", "usdPerHour": 1}, {"pool": "x", "capacity": "onDemand", "usdPerHour": 2}],
        }
    )  # fmt: skip

    assert errors == ()
    assert settings == SpendingSettings(
        on_demand=OnDemand.FALLBACK,
        deadline=NOW + timedelta(hours=12),
        budget_usd=5.0,
        fixed_usd_per_hour=0.25,
        max_on_demand=2,
        pools=(
            PoolPrice(pool="", on_demand=False, usd_per_hour=1.0),
            PoolPrice(pool="x", on_demand=True, usd_per_hour=2.0),
        ),
    )
    assert settings.deadline_of(NOW) == NOW + timedelta(hours=12)
    assert read_spending(None) == (None, ())


def test_the_stack_may_have_no_fixed_price() -> None:
    """The schema of ElasticJobs allows 0, too."""
    assert read_spending({"fixedUsdPerHour": 0}) == (SpendingSettings(), ())


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("soon", "set it to an object"),
        ({"deadlineSeconds": -1}, "deadlineSeconds is -1; set it to a number above 0"),
        ({"budgetUsd": "much", "pools": [POOL]}, "budgetUsd is 'much'"),
        ({"budgetUsd": 1e9, "pools": [POOL]}, "set it to a number above 0 and below 1e9"),
        ({"fixedUsdPerHour": -1}, "fixedUsdPerHour is -1; set it to 0 or a number above 0"),
        ({"fixedUsdPerHour": False}, "fixedUsdPerHour is False"),
        ({"onDemand": "sometimes"}, "use one of never, fallback, always"),
        ({"maxOnDemand": -1}, "maxOnDemand is -1; set it to a whole number from 0"),
        ({"maxOnDemand": True}, "maxOnDemand is True"),
        ({"deadline": "tomorrow"}, "write it as 2026-12-24T18:00:00Z"),
        ({"deadline": "2026-01-02T00:00:00Z", "deadlineSeconds": 5}, "remove one of them"),
        ({"budgetUsd": 5}, "add spec.spending.pools"),
        ({"pools": "cheap"}, "set it to a list"),
        ({"pools": [{"capacity": "spot", "usdPerHour": True}]}, "pools[0] is"),
        ({"pools": [{"usdPerHour": 1}]}, "set capacity to spot or onDemand"),
    ],
)
def test_an_invalid_key_is_named_with_its_value_and_a_fix(source: object, words: str) -> None:
    settings, errors = read_spending(source)

    assert settings is None
    assert len(errors) == 1
    assert words in errors[0]
