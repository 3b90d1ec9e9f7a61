from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis.strategies import floats, lists, sampled_from, tuples

from everstep.elastic.accounting.time_account import Activity, TimeAccount


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_is_attributed_to_the_innermost_activity() -> None:
    clock = Clock()
    accounting = TimeAccount(clock)
    clock.now += 2
    accounting.begin(Activity.IDLE)
    clock.now += 3

    assert accounting.spent() == {"start_up": 2, "idle": 3}


def test_a_failed_step_counts_as_repeated_work_and_detection() -> None:
    clock = Clock()
    accounting = TimeAccount(clock)
    for first in (True, False):
        accounting.begin_step()
        clock.now += 1
        accounting.begin(Activity.COMPUTE)
        clock.now += 2
        accounting.begin(Activity.EXCHANGE)
        clock.now += 4
        if first:
            accounting.end_step()
    accounting.break_step(gradients_valid=False)

    assert accounting.spent() == {
        "data": 1, "compute": 2, "exchange": 4, "redo": 3, "detect": 4,
    }  # fmt: skip


def test_kept_results_of_a_failed_step_do_not_count_as_repeated_work() -> None:
    clock = Clock()
    accounting = TimeAccount(clock)
    accounting.begin_step()
    clock.now += 1
    accounting.begin(Activity.COMPUTE)
    clock.now += 3
    accounting.begin(Activity.EXCHANGE)
    clock.now += 2
    accounting.break_step(gradients_valid=True)

    assert accounting.spent() == {"data": 1, "compute": 3, "detect": 2}


def test_a_completed_step_does_not_count_as_repeated_work_if_the_group_fails_after_it() -> None:
    clock = Clock()
    accounting = TimeAccount(clock)
    accounting.begin_step()
    clock.now += 5
    accounting.end_step()
    accounting.break_step(gradients_valid=False)

    assert accounting.spent() == {"data": 5}


def test_a_recovery_lasts_from_the_detection_to_the_next_step() -> None:
    clock = Clock()
    accounting = TimeAccount(clock, Activity.START_UP)
    for name in (Activity.IDLE, Activity.FORM, Activity.COPY):
        accounting.begin(name)
        clock.now += 1
    accounting.begin_step()
    assert accounting.last_recovery is None, "there was no loss to recover from"
    clock.now += 1
    accounting.begin(Activity.EXCHANGE)
    clock.now += 2
    accounting.break_step(gradients_valid=False)
    clock.now += 0.5
    accounting.begin(Activity.COPY)
    clock.now += 0.25
    accounting.begin_step()

    assert accounting.last_recovery == 2.75


def test_a_recovery_after_a_completed_step_starts_when_the_group_is_abandoned() -> None:
    clock = Clock()
    accounting = TimeAccount(clock)
    accounting.begin_step()
    accounting.begin(Activity.COMPUTE)
    clock.now += 3
    accounting.end_step()
    accounting.begin(Activity.FORM)
    clock.now += 0.5
    accounting.begin_step()

    assert accounting.last_recovery == 0.5


def test_all_activities_of_the_warm_up_count_as_start_up() -> None:
    clock = Clock()
    accounting = TimeAccount(clock)
    with accounting.attribute_all_to(Activity.START_UP):
        accounting.begin(Activity.DATA)
        clock.now += 2
        accounting.begin(Activity.COMPUTE)
        clock.now += 3
    accounting.begin(Activity.IDLE)
    clock.now += 1

    assert accounting.spent() == {"start_up": 5, "idle": 1}


def test_a_worker_reports_its_times_periodically_and_only_after_a_step() -> None:
    clock, reported_at = Clock(), []
    accounting = TimeAccount(clock)
    accounting.on_report(lambda: reported_at.append(clock.now))
    clock.now += 60
    for seconds in (1, 4, 4, 2):
        accounting.begin_step()
        clock.now += seconds
        accounting.end_step()

    assert reported_at == [161, 169], "after the first step, and then 5 s after the last report"


MOVES = lists(
    tuples(sampled_from([*Activity, "step", "void"]), floats(0, 100, allow_nan=False)), max_size=40
)


def apply(accounting: TimeAccount, move: Any) -> None:
    if move == "step":
        accounting.begin_step()
    elif move == "void":
        accounting.break_step(gradients_valid=False)
    else:
        accounting.begin(move)


@given(moves=MOVES)
def test_the_times_always_sum_to_the_wall_clock_time(
    moves: list[tuple[Any, float]],
) -> None:
    clock = Clock()
    accounting = TimeAccount(clock)
    for move, seconds in moves:
        apply(accounting, move)
        clock.now += seconds

    spent = accounting.spent()

    assert abs(sum(spent.values()) - (clock.now - 100)) < 0.01
    assert all(seconds >= 0 for seconds in spent.values())


@given(moves=MOVES)
def test_prometheus_counters_never_decrease(moves: list[tuple[Any, float]]) -> None:
    clock = Clock()
    accounting = TimeAccount(clock)
    before: Mapping[str, float] = {}
    for move, seconds in moves:
        apply(accounting, move)
        clock.now += seconds
        after = accounting.final_seconds()
        assert all(after[name] >= counted for name, counted in before.items())
        before = after
