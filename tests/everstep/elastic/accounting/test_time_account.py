"""The attribution of a worker's time to activities."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Literal

from hypothesis import given
from hypothesis.strategies import floats, lists, sampled_from, tuples

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.accounting.time_account import Activity, TimeAccount


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_is_attributed_to_the_activity_that_began_last() -> None:
    clock = Clock()
    account = TimeAccount(clock)
    clock.now += 2
    account.begin(Activity.IDLE)
    clock.now += 3

    assert account.total_seconds() == {"start_up": 2, "idle": 3}


def test_the_first_activity_contains_the_age_of_the_account() -> None:
    clock = Clock()
    account = TimeAccount(clock, age_seconds=8)
    clock.now += 2
    account.begin(Activity.IDLE)

    assert account.total_seconds()["start_up"] == 10


def account_in_a_new_process(agent: str) -> float:
    """Return the start-up time of a process that computes for half a second before it creates its account."""
    program = (
        "import time; time.sleep(0.5)\n"
        "from everstep.elastic.accounting.time_account import TimeAccount\n"
        "print(TimeAccount.of_process().total_seconds()['start_up'])"
    )
    environment = {**os.environ, AGENT_VARIABLE: agent} if agent else {**os.environ}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return float(result.stdout)


def test_the_account_of_a_worker_begins_with_its_process() -> None:
    # The kernel counts in hundredths of a second.
    assert account_in_a_new_process("/agent") >= 0.48
    assert account_in_a_new_process("") < 0.48, "a notebook may have been open for hours"


def test_a_failed_step_counts_as_repeated_work_and_detection() -> None:
    clock = Clock()
    account = TimeAccount(clock)
    for is_complete in (True, False):
        account.begin_step()
        clock.now += 1
        account.begin(Activity.COMPUTE)
        clock.now += 2
        account.begin(Activity.EXCHANGE)
        clock.now += 4
        if is_complete:
            account.end_step()
    account.break_step(gradients_valid=False)

    assert account.total_seconds() == {
        "data": 1, "compute": 2, "exchange": 4, "redo": 3, "detect": 4,
    }  # fmt: skip


def test_kept_results_of_a_failed_step_do_not_count_as_repeated_work() -> None:
    clock = Clock()
    account = TimeAccount(clock)
    account.begin_step()
    clock.now += 1
    account.begin(Activity.COMPUTE)
    clock.now += 3
    account.begin(Activity.EXCHANGE)
    clock.now += 2
    account.break_step(gradients_valid=True)

    assert account.total_seconds() == {"data": 1, "compute": 3, "detect": 2}


def test_a_completed_step_does_not_count_as_repeated_work_if_the_group_fails_after_it() -> None:
    clock = Clock()
    account = TimeAccount(clock)
    account.begin_step()
    clock.now += 5
    account.end_step()
    account.break_step(gradients_valid=False)

    assert account.total_seconds() == {"data": 5}


def test_a_recovery_lasts_from_the_start_of_the_wait_to_the_next_step() -> None:
    clock = Clock()
    account = TimeAccount(clock, Activity.START_UP)
    for name in (Activity.IDLE, Activity.FORM, Activity.COPY):
        account.begin(name)
        clock.now += 1
    account.begin_step()
    assert account.last_recovery is None, "there was no loss to recover from"
    clock.now += 1
    account.begin(Activity.EXCHANGE)
    clock.now += 2
    account.break_step(gradients_valid=False)
    clock.now += 0.5
    account.begin(Activity.COPY)
    clock.now += 0.25
    account.begin_step()

    assert account.last_recovery == 2.75


def test_a_recovery_after_a_completed_step_starts_when_the_group_is_abandoned() -> None:
    clock = Clock()
    account = TimeAccount(clock)
    account.begin_step()
    account.begin(Activity.COMPUTE)
    clock.now += 3
    account.end_step()
    account.begin(Activity.FORM)
    clock.now += 0.5
    account.begin_step()

    assert account.last_recovery == 0.5


def test_all_activities_of_the_warm_up_count_as_start_up() -> None:
    clock = Clock()
    account = TimeAccount(clock)
    with account.attribute_all_to(Activity.START_UP):
        account.begin(Activity.DATA)
        clock.now += 2
        account.begin(Activity.COMPUTE)
        clock.now += 3
    account.begin(Activity.IDLE)
    clock.now += 1

    assert account.total_seconds() == {"start_up": 5, "idle": 1}


def test_a_worker_reports_its_times_periodically_and_only_after_a_step() -> None:
    clock, reported_at = Clock(), []
    account = TimeAccount(clock)
    account.on_report(lambda: reported_at.append(clock.now))
    clock.now += 60
    for seconds in (1, 4, 4, 2):
        account.begin_step()
        clock.now += seconds
        account.end_step()

    assert reported_at == [161, 169], "after the first step, and then not before 5 s have passed"


Operation = Activity | Literal["begin_step", "end_step", "break_step"]
OPERATIONS = lists(
    tuples(sampled_from([*Activity, "begin_step", "end_step", "break_step"]), floats(0, 100)),
    max_size=40,
)


def apply(account: TimeAccount, operation: Operation) -> None:
    match operation:
        case Activity():
            account.begin(operation)
        case "begin_step":
            account.begin_step()
        case "end_step":
            account.end_step()
        case "break_step":
            account.break_step(gradients_valid=False)


@given(operations=OPERATIONS)
def test_the_times_always_sum_to_the_wall_clock_time(
    operations: list[tuple[Operation, float]],
) -> None:
    clock = Clock()
    account = TimeAccount(clock)
    for operation, seconds in operations:
        apply(account, operation)
        clock.now += seconds

    times = account.total_seconds()

    assert abs(sum(times.values()) - (clock.now - 100)) < 0.01
    assert all(seconds >= 0 for seconds in times.values())


@given(operations=OPERATIONS)
def test_prometheus_counters_never_decrease(operations: list[tuple[Operation, float]]) -> None:
    clock = Clock()
    account = TimeAccount(clock)
    previous_seconds: Mapping[str, float] = {}
    for operation, seconds in operations:
        apply(account, operation)
        clock.now += seconds
        current_seconds = account.final_seconds()
        assert all(current_seconds[name] >= value for name, value in previous_seconds.items())
        previous_seconds = current_seconds
