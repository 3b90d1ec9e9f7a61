"""Steps in a run's journals."""

from tests.journals import completed_steps


def test_a_step_that_a_new_rank_0_records_again_counts_once() -> None:
    assert completed_steps([{"step": 1}, {"step": 2}, {"step": 2, "again": True}]) == [1, 2]


def test_a_step_that_only_the_new_rank_0_records_counts() -> None:
    lines = [{"step": 1}, {"step": 3}, {"step": 2, "again": True}, {"step": 2, "again": True}]

    assert completed_steps(lines) == [1, 2, 3]


def test_a_step_that_was_computed_twice_appears_twice() -> None:
    assert completed_steps([{"step": 1}, {"step": 2}, {"step": 2}]) == [1, 2, 2]
