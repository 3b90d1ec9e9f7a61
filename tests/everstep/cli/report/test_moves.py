"""Moves of a group between zones: recorded from the job's status, and their cost."""

import json
from pathlib import Path
from typing import Any

import pytest

from everstep.cli.report.moves import MoveLog, move_costs, moves_file, moves_in
from everstep.cli.report.readers import KEPT_EVENTS, FolderReader, copy_result
from everstep.cli.report.run_record import Move, parse_moves
from tests.everstep.cli.recorded_run import STEP_SECONDS, RecordedRun, two_zones

BEGAN = "2026-11-23T12:00:00Z"
BEGAN_SECONDS = 1795435200.0


def status(**fields: object) -> dict[str, Any]:
    move = {"began": BEGAN, "from": "zone-a", "to": "zone-b", "target": 3, "reason": "why"}
    return {"placement": {"zone": "zone-b", "moves": [move | fields]}}


def test_a_move_in_the_status_has_unix_times() -> None:
    (move,) = moves_in(status(ended="2026-11-23T12:01:30Z"))

    assert move == Move(BEGAN_SECONDS, BEGAN_SECONDS + 90, "zone-a", "zone-b", "why")


def test_a_job_that_has_not_moved_has_no_moves() -> None:
    assert moves_in({}) == moves_in({"placement": {"zone": "zone-a"}}) == ()


def test_a_move_that_ends_replaces_the_one_under_way(tmp_path: Path) -> None:
    log = MoveLog(tmp_path / "moves.json")
    log.add(status())
    log.add(status(ended="2026-11-23T12:00:10Z", abandoned=True))

    (move,) = parse_moves(log.path.read_text())
    assert (move.ended, move.abandoned) == (BEGAN_SECONDS + 10, True)


def test_moves_that_the_status_no_longer_has_are_kept(tmp_path: Path) -> None:
    log = MoveLog(tmp_path / "moves.json")
    log.add(status())
    log.add({})
    second_log = MoveLog(log.path)
    second_log.add(status(began="2026-11-23T13:00:00Z"))

    assert [move.began for move in parse_moves(log.path.read_text())] == [
        BEGAN_SECONDS,
        BEGAN_SECONDS + 3600,
    ]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'[{"began": 1}]', b'{"a": 1}', b"\xff"])
def test_a_damaged_log_of_moves_is_treated_as_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "moves.json"
    path.write_bytes(content)

    assert MoveLog(path).observed == {}


def test_a_job_that_never_moves_has_no_file(tmp_path: Path) -> None:
    MoveLog(tmp_path / "moves.json").add({})

    assert not (tmp_path / "moves.json").exists()


def test_the_copy_of_a_run_has_its_moves(tmp_path: Path) -> None:
    (tmp_path / "run" / "journal").mkdir(parents=True)
    events = tmp_path / "events.jsonl"
    events.write_text(json.dumps({"at": 1.0, "kind": "drain", "node": "gpu-0"}) + "\n")
    moves = moves_file(tmp_path, "fashion")
    MoveLog(moves).add(status())

    copy_result(tmp_path / "run", tmp_path / "kept", events, moves)

    copied_run = FolderReader(tmp_path / "kept", tmp_path / "kept" / KEPT_EVENTS).read()
    assert (
        copied_run.moves == FolderReader(tmp_path / "run", events, moves=moves).read().moves != ()
    )


def test_a_move_costs_the_pauses_of_the_group_without_the_steps_that_end_them() -> None:
    (cost,) = move_costs(two_zones().run())

    assert cost.seconds == pytest.approx(2.0 + 1.0)
    assert cost.steps_lost == 0
    assert (cost.origin, cost.to, cost.reason) == ("zone-a", "zone-b", "zone-b offers 2 machines")


def test_pauses_before_and_after_a_move_are_not_its_cost() -> None:
    recorded_run = RecordedRun(("gpu-0", "gpu-1", "gpu-2", "gpu-3"))
    recorded_run.form("gpu-0", "gpu-1").train(10).regroup("gpu-0").wait(7.0).train(10)
    recorded_run.begin_move().train(10).regroup("gpu-0", "gpu-2").wait(2.0).train(10).end_move()
    recorded_run.train(10).regroup("gpu-2").wait(9.0).train(10)

    (cost,) = move_costs(recorded_run.run())

    assert cost.seconds == pytest.approx(2.0)


def test_without_overlap_a_move_costs_the_time_since_its_decision_and_the_repeated_steps(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form("gpu-0").train(10).event("vanish", "gpu-0").wait(100.0).begin_move()
    recorded_run.wait(1.0).end_move().wait(20.0).form("gpu-1", resume_from=6).train(5)

    (cost,) = move_costs(recorded_run.run())

    assert cost.steps_lost == 4
    assert cost.seconds == pytest.approx(1.0 + 20.0 + 4 * STEP_SECONDS)


def test_a_move_under_way_has_no_cost_yet(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(10).begin_move()
    running_moves = move_costs(recorded_run.run())
    ended_moves = move_costs(recorded_run.wait(1.0).end_move().run())

    assert [cost.seconds for cost in (*running_moves, *ended_moves)] == [None, None], (
        "without a step since the end of the move the group still waits"
    )


def test_the_end_of_the_run_ends_a_move_under_way(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(10).begin_move().train(2).finish()

    (cost,) = move_costs(recorded_run.wait(1.0).end_move().run())

    assert cost.seconds == 0.0
