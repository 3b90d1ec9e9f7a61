"""Decisions about restarts of a worker after crashes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.membership.crashes import MAX_CRASHES_WITHOUT_STEP, CrashAction, Crashes


@pytest.fixture
def crashes() -> Crashes:
    return Crashes()


def test_a_worker_that_has_trained_may_always_restart_alone(
    crashes: Crashes,
) -> None:
    for worker in range(3 * MAX_CRASHES_WITHOUT_STEP):
        crashes.record_assignment([worker])
        crashes.record_step(worker)
        assert crashes.judge(worker) is CrashAction.ALONE


def test_a_worker_that_crashes_in_its_first_step_may_restart_alone(crashes: Crashes) -> None:
    crashes.record_assignment([1, 2])

    assert crashes.judge(1) is CrashAction.ALONE


def test_torchrun_restarts_a_worker_that_crashes_in_its_warm_up(crashes: Crashes) -> None:
    assert crashes.judge(1) is CrashAction.WITH_ALL


def test_a_node_gives_up_if_its_workers_only_crash(crashes: Crashes) -> None:
    verdicts = []
    for worker in range(MAX_CRASHES_WITHOUT_STEP):
        crashes.record_assignment([worker])
        verdicts.append(crashes.judge(worker))

    assert verdicts == [CrashAction.ALONE] * (MAX_CRASHES_WITHOUT_STEP - 1) + [CrashAction.GIVE_UP]


def test_a_reused_process_id_starts_a_new_history(crashes: Crashes) -> None:
    crashes.record_assignment([7])
    crashes.judge(7)

    assert crashes.judge(7) is CrashAction.WITH_ALL


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_a_node_does_not_give_up_below_the_limit_of_crashes_since_the_last_step(
    history: list[tuple[int, bool]],
) -> None:
    crashes, count = Crashes(), 0
    for worker, trains in history:
        crashes.record_assignment([worker])
        if trains:
            crashes.record_step(worker)
            count = 0
        else:
            count += 1
        gives_up = crashes.judge(worker) is CrashAction.GIVE_UP
        assert gives_up == (count >= MAX_CRASHES_WITHOUT_STEP)
