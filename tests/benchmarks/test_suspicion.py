"""The figures for false suspicions, from step journals and logs."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from benchmarks.suspicion import (
    Change,
    Figures,
    between_steps,
    combine,
    find_changes,
    sentences,
)
from tests.trainer.elastic.nodes import JournalEntry

FIGURES = Figures(
    minutes=3,
    loads=(8.0, 12.0, 10.0),
    steps=40,
    false_suspicions=1,
    changes=(Change(0.25, ("+1.500 w0 joins",)),),
    provoked=(),
    silent_agents=0,
    verified="every sample once",
)


def step(at: float, generation: int, world_size: int = 3, seconds: float = 1.0) -> JournalEntry:
    return {"at": at, "generation": generation, "world_size": world_size, "seconds": seconds}


def costs(steps: list[JournalEntry], logs: Path, after: float) -> list[float]:
    return [change.cost for change in find_changes(steps, logs, after)]


def log_line(at: float, text: str) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S},{round(at % 1 * 1000):03d} {text}"


def test_a_change_of_the_group_costs_the_time_between_steps_until_all_train_again(
    tmp_path: Path,
) -> None:
    steps = [step(10, 1), step(11, 1), step(12.25, 2, world_size=2), step(13.75, 3), step(14.75, 3)]

    assert costs(steps, tmp_path, after=0) == pytest.approx([0.75])


def test_the_cost_of_a_provoked_suspicion_begins_when_the_node_continues() -> None:
    steps = [step(10, 1), step(14, 2, seconds=0.5)]

    assert between_steps(steps, 13.25, 14) == pytest.approx(0.25)


def test_a_group_that_does_not_change_has_no_cost(tmp_path: Path) -> None:
    assert costs([step(at, 1) for at in range(10)], tmp_path, after=0) == []


def test_changes_before_the_observation_do_not_count(tmp_path: Path) -> None:
    steps = [step(10, 1), step(12, 2), step(13, 2)]

    assert costs(steps, tmp_path, after=11) == []


def test_a_late_entry_of_an_earlier_group_counts_as_the_same_change(tmp_path: Path) -> None:
    steps = [step(10, 1), step(12, 2), step(12.1, 1), step(13, 2)]

    assert len(costs(steps, tmp_path, after=0)) == 1


def test_a_change_has_the_log_lines_around_it_in_order(tmp_path: Path) -> None:
    lines = {
        "w0": [log_line(8.5, "long before"), log_line(11.5, "joins"), log_line(20, "long after")],
        "w1": [log_line(11.25, "no heartbeat from w0")],
    }
    for name, log in lines.items():
        (tmp_path / f"{name}.log").write_text("\n".join(log))

    (change,) = find_changes([step(10, 1), step(12, 2)], tmp_path, after=0)

    assert change.lines == ("+1.250 w1 no heartbeat from w0", "+1.500 w0 joins")


def test_the_sentences_contain_each_cost_and_the_range_of_loads() -> None:
    text = sentences(FIGURES, with_lines=False)

    assert "load 8.0 to 12.0, median 10.0: 1 false suspicions, 1 unnecessary changes" in text
    assert "a change cost 0.250 s" in text
    assert "joins" not in text


def test_the_lines_of_the_logs_are_printed_on_request() -> None:
    assert "    +1.500 w0 joins" in sentences(FIGURES, with_lines=True).splitlines()


def test_combined_figures_contain_the_provoked_suspicions_of_all_runs() -> None:
    later = replace(FIGURES, steps=2, provoked=(Change(0.5, ()),), verified="twice")

    figures = combine([FIGURES, later])

    assert (figures.steps, figures.provoked) == (42, (Change(0.5, ()),))
    assert figures.verified == "every sample once; twice"
    assert (figures.minutes, figures.false_suspicions) == (3, 1)


def test_silent_agents_are_reported_with_the_changes_that_they_caused() -> None:
    figures = replace(FIGURES, minutes=0.0, silent_agents=3)

    assert "3 agents were silent for 1 s: 1 changes of the group" in sentences(
        figures, with_lines=False
    )
