"""Decisions about restarts of a worker after crashes."""

from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.membership.crashes import MAX_CRASHES_WITHOUT_STEP, CrashAction, Crashes


def test_torchrun_restarts_a_worker_that_crashes_in_its_warm_up() -> None:
    assert Crashes().judge(1) is CrashAction.RESTART_ALL


def test_a_reused_process_id_starts_a_new_history() -> None:
    crashes = Crashes()
    crashes.record_assignment([7])
    crashes.judge(7)

    assert crashes.judge(7) is CrashAction.RESTART_ALL


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_a_worker_restarts_alone_until_the_limit_of_crashes_since_the_last_new_step_of_its_node(
    history: list[tuple[int, bool]],
) -> None:
    crashes, count = Crashes(), 0
    for step, (worker, trains) in enumerate(history, 1):
        crashes.record_assignment([worker])
        if trains:
            crashes.record_step(worker, step)
            count = 0
        else:
            count += 1
        is_at_limit = count >= MAX_CRASHES_WITHOUT_STEP
        expected = CrashAction.GIVE_UP if is_at_limit else CrashAction.RESTART_WORKER
        assert crashes.judge(worker) is expected


def test_steps_that_are_repeated_do_not_reset_the_limit() -> None:
    """Otherwise an error in a later step would restart all workers forever, since their state is lost with them."""
    crashes, actions = Crashes(), []
    for worker in range(1, 5):
        crashes.record_assignment([worker])
        for step in range(1, 5):
            crashes.record_step(worker, step)
        actions.append(crashes.judge(worker))

    assert actions == [CrashAction.RESTART_WORKER] * MAX_CRASHES_WITHOUT_STEP + [
        CrashAction.GIVE_UP
    ]


def test_workers_that_crash_together_count_once() -> None:
    crashes = Crashes()
    crashes.record_assignment(range(8))

    assert {crashes.judge(worker) for worker in range(8)} == {CrashAction.RESTART_WORKER}


def test_crashes_of_workers_that_have_completed_the_same_new_step_do_not_count() -> None:
    crashes = Crashes()
    crashes.record_assignment([1, 2])
    for worker in (1, 2):
        crashes.record_step(worker, 1)

    crashes.judge(1)
    crashes.judge(2)
    for worker in range(3, 5):  # two more crashes without a step
        crashes.record_assignment([worker])
        assert crashes.judge(worker) is CrashAction.RESTART_WORKER
