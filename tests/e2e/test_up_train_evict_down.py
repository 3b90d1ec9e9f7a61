"""The whole life cycle on the local twin: up, training through evictions, report, down.

One run of the commands takes minutes, so all tests share it; each test checks one guarantee.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from everstep.cli.engine.context import open_stack
from everstep.cli.engine.workspace import DEFAULT_STACK
from everstep.cli.report.final_record import final_record
from everstep.cli.report.readers import PodReader
from everstep.cli.report.report import Report, build
from everstep.cli.twin_settings import configure_twin
from tests.e2e.life_cycle import EVERSTEP

TWIN = "e2e"
UP_SECONDS, DOWN_SECONDS, QUERY_SECONDS = 1500, 300, 300

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(UP_SECONDS + 2 * DOWN_SECONDS)]


def everstep(*arguments: str, seconds: float = QUERY_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run the command on a separate twin."""
    return subprocess.run(
        [EVERSTEP, *arguments],
        env={**os.environ, "EVERSTEP_TWIN": TWIN},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@dataclass(frozen=True)
class CommandResults:
    """The results of the commands."""

    up: subprocess.CompletedProcess[str]
    follow: subprocess.CompletedProcess[str]
    preview: subprocess.CompletedProcess[str]
    report: dict[str, Any]
    status: dict[str, Any]
    api_report: Report
    down: subprocess.CompletedProcess[str]
    doctor: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def results() -> CommandResults:
    """Run the life cycle once; the twin is always taken down."""
    try:
        up = everstep("up", "--drill", seconds=UP_SECONDS)
        follow = everstep("follow")
        preview = everstep("pulumi", "preview", "--expect-no-changes", "--non-interactive")
        report = everstep("report", "--json")
        status = everstep("status", "--json")
        api_report = report_through_the_api_server()
    finally:
        down = everstep("down", "--yes", seconds=DOWN_SECONDS)
    doctor = everstep("doctor", "--json")
    assert up.returncode == 0, up.stderr[-4000:]
    values = json.loads(report.stdout), json.loads(status.stdout)
    return CommandResults(up, follow, preview, *values, api_report, down, doctor)


def report_through_the_api_server() -> Report:
    """Return the report as a command reads it on a cluster whose volume is elsewhere."""
    with mock.patch.dict(os.environ, EVERSTEP_TWIN=TWIN):
        configure_twin()
        context = open_stack(DEFAULT_STACK)
        reader = PodReader(context.connect(), context.job, context.workspace.events)
        return build(final_record(reader, ended=True))


def events(results: CommandResults, kind: str) -> list[dict[str, Any]]:
    return [event for event in results.report["events"] if event["kind"] == kind]


def test_the_job_succeeds_and_the_model_reaches_85_percent(results: CommandResults) -> None:
    kinds = {condition["type"] for condition in results.status["job"]["conditions"]}

    assert "Succeeded" in kinds
    assert results.report["finished"]
    assert results.report["accuracy"] >= 0.85


def test_a_drained_node_costs_at_most_ten_seconds(results: CommandResults) -> None:
    (drain,) = events(results, "drain")

    assert drain["seconds_to_next_step"] <= 10


def test_a_node_that_vanishes_costs_at_most_twenty_seconds(results: CommandResults) -> None:
    (vanish,) = events(results, "vanish")

    assert vanish["seconds_to_next_step"] <= 20


def test_both_nodes_return_and_train_again(results: CommandResults) -> None:
    lost_nodes = {event["node"] for event in results.report["events"] if event["kind"] != "return"}
    returns = events(results, "return")

    assert {event["node"] for event in returns} == lost_nodes
    assert all(event["joined_at"] is not None for event in returns)
    sizes = [size["world_size"] for size in results.report["world_sizes"]]
    assert max(sizes) == 3
    assert sizes[-1] == 3, "all workers train at the end"


def test_the_report_is_printed_at_the_end(results: CommandResults) -> None:
    for text in ("fashion", "accuracy", "drain", "vanish", "gpu-0", "finished"):
        assert text in results.up.stdout


def test_a_pod_reads_the_same_report_after_the_workers_have_ended(results: CommandResults) -> None:
    assert results.api_report.finished
    assert results.api_report.steps == results.report["steps"]
    assert results.api_report.accuracy == results.report["accuracy"]


def test_following_an_ended_training_says_so_and_repeats_the_report(
    results: CommandResults,
) -> None:
    assert results.follow.returncode == 0, results.follow.stderr
    assert "This training run has already ended." in results.follow.stderr
    assert "This training run has already ended." not in results.up.stderr
    assert "finished" in results.follow.stdout


def test_a_preview_after_up_finds_no_changes(results: CommandResults) -> None:
    assert results.preview.returncode == 0, results.preview.stdout + results.preview.stderr


def test_down_leaves_nothing(results: CommandResults) -> None:
    assert results.down.returncode == 0, results.down.stderr
    leftovers = [
        leftover
        for leftover in json.loads(results.doctor.stdout)["leftovers"]
        if TWIN in leftover["what"]
    ]
    assert leftovers == []


@pytest.mark.usefixtures("results")
def test_the_stack_file_gets_no_encryption_salt() -> None:
    assert "encryptionsalt" not in Path("stacks/Pulumi.local.yaml").read_text()
