"""Long waits of a group for a slow node, as reports show them."""

import json
from typing import Any

import pytest

from everstep.cli.report.follow import JobMonitor, _Lines
from everstep.cli.report.incidents import incidents
from everstep.cli.report.report import build
from everstep.cli.report.run_record import RunRecord, assemble
from everstep.cli.report.screens import follow_screen, report_screen
from everstep.cli.report.stalls import LongWait, slow_node_sentence, slow_nodes
from tests.everstep.cli.report.terminal import terminal_text

START = {"at": 100.0, "kind": "start", "node": "node-a", "total_steps": 9, "epochs": 1}
STALL = {
    "at": 107.0,
    "kind": "stall",
    "step": 3,
    "began_at": 102.0,
    "seconds": 5.0,
    "nodes": ["node-b"],
    "ranks": [1],
    "lost": False,
}
STEP = {
    "kind": "step",
    "step": 3,
    "seconds": 1.0,
    "images": 8,
    "world_size": 2,
    "generation": 1,
    "epoch": 1,
}


def record(*entries: dict[str, Any]) -> RunRecord:
    return assemble({"w0": "".join(json.dumps(entry) + "\n" for entry in (START, *entries))})


def stall_over(**values: Any) -> dict[str, Any]:
    return {**STALL, "at": 114.0, "kind": "stall_over", "seconds": 12.0, **values}


@pytest.mark.parametrize(
    ("entries", "expected", "sentence"),
    [
        (
            [STALL],
            LongWait(102.0, 3, ("node-b",), None),
            "slow node-b: the other workers are waiting in step 3",
        ),
        (
            [STALL, stall_over()],
            LongWait(102.0, 3, ("node-b",), 12.0),
            "slow node-b: the other workers waited 12.0 s in step 3",
        ),
        (
            [STALL, stall_over(lost=True)],
            LongWait(102.0, 3, ("node-b",), 12.0, lost=True),
            "slow node-b: the other workers waited 12.0 s in step 3, then aborted the group",
        ),
        (
            # The worker that records the wait was killed before the wait ended.
            [STALL, {**STEP, "at": 110.0}],
            LongWait(102.0, 3, ("node-b",), 8.0),
            "slow node-b: the other workers waited 8.0 s in step 3",
        ),
        (
            [{**STALL, "nodes": [], "ranks": []}, stall_over()],
            LongWait(102.0, 3, (), 12.0),
            "slow network: all workers waited 12.0 s in step 3",
        ),
    ],
    ids=["waiting", "over", "lost", "no end", "network"],
)
def test_a_wait_has_its_node_its_duration_and_a_sentence(
    entries: list[dict[str, Any]], expected: LongWait, sentence: str
) -> None:
    assert slow_nodes(record(*entries)) == (expected,)
    assert slow_node_sentence(expected) == sentence


def test_an_end_belongs_to_the_wait_that_began_at_the_same_time() -> None:
    later_stall = {**STALL, "at": 127.0, "began_at": 122.0, "nodes": ["node-c"]}

    waits = slow_nodes(record(STALL, stall_over(), later_stall))

    assert [(wait.nodes, wait.seconds) for wait in waits] == [
        (("node-b",), 12.0),
        (("node-c",), None),
    ]


def test_the_report_the_live_view_and_the_page_name_the_slow_node() -> None:
    run = record(STALL, stall_over(), {**STEP, "at": 115.0})
    report = build(run)

    for screen in (report_screen(report, run, 120.0, 100), follow_screen(report, run, 120.0, 100)):
        (row,) = (line for line in terminal_text(screen).splitlines() if "node-b" in line)
        assert row.split() == ["0:02", "node-b", "12.00", "s", "3"]

    (incident,) = incidents(run, report.events, (), report.slow_nodes)
    assert (incident.kind, incident.node, incident.cause) == (
        "slow node",
        "node-b",
        "The other workers waited 12.0 s in step 3.",
    )
    assert report.to_json()["slow_nodes"] == (
        {"at": 102.0, "step": 3, "nodes": ("node-b",), "seconds": 12.0, "lost": False},
    )


def test_lines_of_the_live_view_name_the_slow_node_once_and_then_the_duration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster: Any = None
    monitor, view = JobMonitor(cluster, "job"), _Lines(None)

    for entries in ([STALL], [STALL], [STALL, stall_over()]):
        view.show(record(*entries), monitor, "")

    lines = [line for line in capsys.readouterr().err.splitlines() if "slow" in line]
    assert lines == [
        "0:02  slow node-b: the other workers are waiting in step 3",
        "0:02  slow node-b: the other workers waited 12.0 s in step 3",
    ]
