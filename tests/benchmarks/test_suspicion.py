"""The figures of false suspicions, from journals of steps."""

import pytest

from benchmarks.suspicion import Figures, costs_of_changes, sentences
from tests.trainer.elastic.nodes import JournalEntry


def step(at: float, generation: int, world_size: int = 3, seconds: float = 1.0) -> JournalEntry:
    return {"at": at, "generation": generation, "world_size": world_size, "seconds": seconds}


def test_a_change_of_the_group_costs_the_time_between_steps_until_all_train_again() -> None:
    steps = [step(10, 1), step(11, 1), step(12.25, 2, world_size=2), step(13.75, 3), step(14.75, 3)]

    assert list(costs_of_changes(steps, after=0)) == pytest.approx([0.75])


def test_a_group_that_does_not_change_has_no_cost() -> None:
    assert list(costs_of_changes([step(at, 1) for at in range(10)], after=0)) == []


def test_changes_before_the_observation_do_not_count() -> None:
    steps = [step(10, 1), step(12, 2), step(13, 2)]

    assert list(costs_of_changes(steps, after=11)) == []


def test_a_late_entry_of_an_earlier_group_counts_as_the_same_change() -> None:
    steps = [step(10, 1), step(12, 2), step(12.1, 1), step(13, 2)]

    assert len(list(costs_of_changes(steps, after=0))) == 1


def test_the_sentences_contain_each_cost_and_the_range_of_loads() -> None:
    figures = Figures(3, (8.0, 12.0, 10.0), 40, 1, (0.25,), (), "every sample once")

    text = sentences(figures)

    assert "load 8.0 to 12.0, median 10.0: 1 false suspicions, 1 unneeded changes" in text
    assert "a change cost 0.250 s" in text
