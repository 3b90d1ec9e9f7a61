"""The whole path, as a user walks it: up, train through evictions, report, down, nothing left.

One run of the command serves all the tests here, since it takes minutes; each test looks at one promise.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

EVERSTEP = str(Path(sys.executable).parent / "everstep")
TWIN = "e2e"
UP_SECONDS, DOWN_SECONDS, ASK_SECONDS = 1500, 180, 120

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(UP_SECONDS + 2 * DOWN_SECONDS)]


def everstep(*arguments: str, seconds: float = ASK_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run the command on a twin of our own."""
    return subprocess.run(
        [EVERSTEP, *arguments],
        env={**os.environ, "EVERSTEP_TWIN": TWIN},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@dataclass(frozen=True)
class Walk:
    """What each command of the walk said."""

    up: subprocess.CompletedProcess[str]
    preview: subprocess.CompletedProcess[str]
    report: dict
    status: dict
    down: subprocess.CompletedProcess[str]
    doctor: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def walk() -> Walk:
    """Walk the whole path once; whatever happens, the twin is taken down."""
    try:
        up = everstep("up", "--drill", seconds=UP_SECONDS)
        preview = everstep("pulumi", "preview", "--expect-no-changes", "--non-interactive")
        report = everstep("report", "--json")
        status = everstep("status", "--json")
    finally:
        down = everstep("down", "--yes", seconds=DOWN_SECONDS)
    doctor = everstep("doctor", "--json")
    assert up.returncode == 0, up.stderr[-4000:]
    return Walk(up, preview, json.loads(report.stdout), json.loads(status.stdout), down, doctor)


def events(walk: Walk, kind: str) -> list[dict]:
    return [event for event in walk.report["events"] if event["kind"] == kind]


def test_the_job_ends_succeeded_and_the_model_is_good(walk):
    kinds = {condition["type"] for condition in walk.status["job"]["conditions"]}

    assert "Succeeded" in kinds
    assert walk.report["finished"]
    assert walk.report["accuracy"] >= 0.85


def test_a_drained_node_costs_at_most_ten_seconds(walk):
    (drain,) = events(walk, "drain")

    assert drain["seconds_to_next_step"] <= 10


def test_a_node_that_vanishes_costs_at_most_twenty_seconds(walk):
    (vanish,) = events(walk, "vanish")

    assert vanish["seconds_to_next_step"] <= 20


def test_both_nodes_come_back_and_train_again(walk):
    lost = {event["node"] for event in walk.report["events"] if event["kind"] != "return"}
    back = events(walk, "return")

    assert {event["node"] for event in back} == lost
    assert all(event["joined_at"] is not None for event in back)
    sizes = [size["world_size"] for size in walk.report["world_sizes"]]
    assert max(sizes) == 3
    assert sizes[-1] == 3, "the group is whole again at the end"


def test_the_report_is_printed_at_the_end(walk):
    for word in ("fashion", "accuracy", "drain", "vanish", "gpu-0", "finished"):
        assert word in walk.up.stdout


def test_right_after_up_there_is_nothing_to_change(walk):
    assert walk.preview.returncode == 0, walk.preview.stdout + walk.preview.stderr


def test_down_leaves_nothing(walk):
    assert walk.down.returncode == 0, walk.down.stderr
    left = [one for one in json.loads(walk.doctor.stdout)["leftovers"] if TWIN in one["what"]]
    assert left == []


def test_the_clone_is_as_clean_as_before(walk):
    del walk
    changed = subprocess.run(
        ["git", "status", "--short", "stacks"], capture_output=True, text=True, check=True
    )

    assert "encryptionsalt" not in Path("stacks/Pulumi.local.yaml").read_text(), changed.stdout
