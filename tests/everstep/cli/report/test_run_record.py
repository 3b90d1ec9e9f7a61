"""Records of runs, assembled from journals and files of moves."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.report.eta import remaining_seconds
from everstep.cli.report.report import build
from everstep.cli.report.run_record import JournalEntry, assemble, parse_moves, without_copies
from tests.everstep.cli.recorded_run import RecordedRun


def step(generation: int, number: int, *, is_copy: bool = False) -> JournalEntry:
    values: dict[str, Any] = {"generation": generation, "step": number}
    return JournalEntry(0.0, "step", "gpu-0", {**values, "again": True} if is_copy else values)


def computations(entries: list[JournalEntry]) -> list[tuple[int, int]]:
    return [(entry.number("generation"), entry.number("step")) for entry in entries]


def test_a_step_that_was_computed_again_by_a_later_generation_counts_twice() -> None:
    entries = [step(1, 7), step(2, 7)]

    assert without_copies(entries) == entries


@given(st.permutations([(1, 1), (1, 2), (2, 2), (2, 3)]), st.data())
def test_each_computation_counts_once_whichever_lines_are_lost_and_copied(
    computed: list[tuple[int, int]], data: st.DataObject
) -> None:
    lines = []
    for generation, number in computed:
        copies = data.draw(st.integers(0, 2))
        is_recorded = not copies or data.draw(st.booleans())
        lines += [step(generation, number)] * is_recorded
        lines += [step(generation, number, is_copy=True)] * copies
    shuffled = data.draw(st.permutations(lines))

    assert sorted(computations(without_copies(shuffled))) == sorted(computed)


def test_a_complete_run_that_continues_for_more_epochs_is_not_finished_until_their_end() -> None:
    run = RecordedRun().form("gpu-0", "gpu-1").train(100).finish()
    assert run.run().finished

    run.wait(60).form("gpu-0", "gpu-1").train(100)
    run.result = {}  # only the trainer writes a result, and with more epochs it starts a new run
    assert run.run().finished is None
    last_step = run.now
    run.wait(1).finish()

    finished = run.run().finished
    assert finished is not None
    assert finished.at == last_step + 1


def test_a_run_that_was_stopped_early_has_no_steps_left() -> None:
    run = RecordedRun().form("gpu-0", "gpu-1").train(100)
    assert run.run().total_steps == 300

    run.write("gpu-0", "early_stop", step=100)
    run.finish()

    assert run.run().total_steps == 100
    assert build(run.run()).total_steps == 100
    assert remaining_seconds(run.run()) == 0


def test_a_worker_without_a_recorded_node_has_an_empty_node_name() -> None:
    journal = '{"at": 1.0, "kind": "start", "node": null}\n{"at": 2.0, "kind": "start"}\n'

    run = assemble({"gpu-0": journal})

    assert run.nodes == ()
    assert run.starts_on("None") == ()
    assert run.starts_on("") == (1.0, 2.0)


@pytest.mark.parametrize(
    "change", [{}, {"began": "noon"}, {"began": None}, {"ended": "x"}, {"x": 1}]
)
def test_a_damaged_record_has_no_moves(change: dict[str, object]) -> None:
    move = {
        "began": 2.0,
        "ended": 3.0,
        "origin": "us-east-1a",
        "to": "us-east-1b",
        "reason": "price",
    }

    assert len(parse_moves(json.dumps([move, move | change]))) == (0 if change else 2)
