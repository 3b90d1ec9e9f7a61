"""Decisions about restarts of a worker after crashes."""

from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.membership.crashes import MAX_CRASHES_WITHOUT_STEP, CrashAction, Crashes


def test_torchrun_restarts_a_worker_that_crashes_in_its_warm_up() -> None:
    assert Crashes().judge(1) is CrashAction.WITH_ALL


def test_a_reused_process_id_starts_a_new_history() -> None:
    crashes = Crashes()
    crashes.record_assignment([7])
    crashes.judge(7)

    assert crashes.judge(7) is CrashAction.WITH_ALL


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_a_worker_restarts_alone_until_the_limit_of_crashes_since_the_last_step_of_its_node(
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
        is_at_limit = count >= MAX_CRASHES_WITHOUT_STEP
        expected = CrashAction.GIVE_UP if is_at_limit else CrashAction.ALONE
        assert crashes.judge(worker) is expected
