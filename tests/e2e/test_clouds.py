"""The stacks of both clouds on the twin, from preview until everything is destroyed.

    pytest -m e2e tests/e2e/test_clouds.py -k eks-dev     # or eks-prod, aks-dev, aks-prod

The repository's stack files are used, with a shorter training. One run of the commands takes minutes, so
all tests of a stack share it; each test checks one guarantee.
"""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout

from everstep.progress import Silent
from tests.e2e.life_cycle import (
    ALL_TRAIN_SECONDS,
    DOWN_SECONDS,
    JOB,
    NOTICE_SECONDS,
    QUERY_SECONDS,
    SHORT_TRAINING,
    STEPS_BETWEEN_CHECKPOINTS,
    TRAIN_SECONDS,
    UP_SECONDS,
    WORKERS,
    LifeCycle,
    copy_project,
    output,
)

STACKS = ("eks-dev", "aks-dev", "eks-prod", "aks-prod")
RETURN_SECONDS = 20
"""Seconds without GPU capacity after all GPU nodes were reclaimed."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(UP_SECONDS + TRAIN_SECONDS + 4 * QUERY_SECONDS + 2 * DOWN_SECONDS),
]


def reclaim_all_gpu_nodes(cycle: LifeCycle) -> None:
    """Reclaim the GPU nodes one by one, then all at once while the cloud has no capacity."""
    stack_options = ("--stack", cycle.stack)
    first_nodes = cycle.gpu_nodes()
    for notices, node in enumerate(first_nodes, start=1):
        cycle.run_checked(
            f"reclaim {node}", "node", "reclaim", node, f"--notice={NOTICE_SECONDS}", *stack_options
        )
        cycle.wait_until(
            "all workers train again", partial(cycle.has_recovered_from, notices), ALL_TRAIN_SECONDS
        )
    gpu_nodes = cycle.gpu_nodes()
    cycle.run_checked(
        "reclaim all",
        "node",
        "reclaim",
        *gpu_nodes,
        f"--notice={NOTICE_SECONDS}",
        f"--return-after={RETURN_SECONDS}",
        *stack_options,
    )
    cycle.wait_until(
        "all workers train again",
        lambda: cycle.has_recovered_from(len(first_nodes) + len(gpu_nodes)),
        ALL_TRAIN_SECONDS,
    )


@pytest.fixture(scope="module", params=STACKS)
def cycle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LifeCycle]:
    """Run the life cycle once; the twin is always taken down."""
    cycle = LifeCycle(request.param, copy_project(tmp_path_factory.mktemp(request.param)))
    cycle.change(**SHORT_TRAINING)
    options = ("--stack", cycle.stack, "--twin")
    try:
        cycle.run_checked("preview", "preview", *options)
        cycle.run_checked("up", "up", "--detach", *options, seconds=UP_SECONDS)
        cycle.wait_until("the job trains", lambda: cycle.progress().steps, ALL_TRAIN_SECONDS)
        reclaim_all_gpu_nodes(cycle)
        cycle.record("end", "report", "--wait", "--json", *options, seconds=TRAIN_SECONDS)
        cycle.report, cycle.status = cycle.query("report"), cycle.query("status")
        cycle.record("nothing to change", "preview", "--expect-no-changes", *options)
        cycle.record("again", "up", "--detach", *options, seconds=UP_SECONDS)
        cycle.record(
            "refresh", "pulumi", "refresh", "--yes", "--expect-no-changes", "--skip-preview"
        )
        if cycle.stack.endswith("-prod"):
            cycle.record("protected", "down", "--yes", *options, seconds=DOWN_SECONDS)
        yield cycle
    finally:
        cycle.run("down", "--yes", *options, seconds=DOWN_SECONDS)
        if cycle.twin.exists():  # the stack is protected, or `down` failed
            Twin(Layout(cycle.twin)).down(Silent())


def test_a_preview_lists_the_resources_to_create_and_uses_no_account(cycle: LifeCycle) -> None:
    assert "no account is used" in cycle.results["preview"].stderr
    assert "to create" in cycle.results["preview"].stdout


def test_the_files_of_the_training_are_on_the_clouds_volume(cycle: LifeCycle) -> None:
    volumes = json.loads((cycle.twin / "cloud" / "volumes.json").read_text()).values()
    runs = [cycle.twin / "shared" / volume["folder"] / "runs" for volume in volumes]

    assert any((folder / JOB / "result.json").exists() for folder in runs)


def test_the_job_finishes_although_gpu_nodes_were_reclaimed_one_by_one_and_all_at_once(
    cycle: LifeCycle,
) -> None:
    kinds = {condition["type"] for condition in cycle.status["job"]["conditions"]}

    assert "Succeeded" in kinds
    assert cycle.report["finished"]
    assert cycle.report["accuracy"] >= 0.8
    assert len([e for e in cycle.report["events"] if e["kind"] == "notice"]) >= 2 * WORKERS


def test_a_notice_costs_no_step_and_the_loss_of_all_nodes_costs_at_most_one_checkpoint_interval(
    cycle: LifeCycle,
) -> None:
    notices = [event for event in cycle.report["events"] if event["kind"] == "notice"]
    single_notices, joint_notices = notices[:WORKERS], notices[WORKERS:]

    assert [event["steps_lost"] for event in single_notices] == [0] * WORKERS
    assert all(event["steps_lost"] <= STEPS_BETWEEN_CHECKPOINTS for event in joint_notices)


def test_a_second_up_changes_nothing(cycle: LifeCycle) -> None:
    assert cycle.results["nothing to change"].returncode == 0, output(cycle, "nothing to change")
    assert cycle.results["again"].returncode == 0, output(cycle, "again")
    assert "created" not in cycle.results["again"].stderr


def test_a_refresh_finds_no_drift(cycle: LifeCycle) -> None:
    assert cycle.results["refresh"].returncode == 0, output(cycle, "refresh")


def test_a_changed_job_field_changes_only_the_job(cycle: LifeCycle) -> None:
    cycle.change(job={"learningRate": 0.1})
    preview = cycle.run("preview", "--stack", cycle.stack, "--twin", "--json")
    steps = {
        step["urn"].rsplit("::", 1)[-1]: step["op"]
        for step in json.loads(preview.stdout)["steps"]
        if step["op"] not in ("same", "read")
    }
    cycle.change(job={"learningRate": SHORT_TRAINING["job"]["learningRate"]})

    assert steps, preview.stderr
    assert all(name.startswith("training-job") for name in steps), steps


def test_down_leaves_the_cloud_and_the_machine_empty(cycle: LifeCycle) -> None:
    if cycle.stack.endswith("-prod"):
        result = cycle.results["protected"]
        assert result.returncode, "a protected stack must not be destroyed"
        assert "is protected; nothing was destroyed" in result.stderr
        cycle.unprotect()
        cycle.run_checked(
            "unprotect", "up", "--detach", "--stack", cycle.stack, "--twin", seconds=UP_SECONDS
        )

    cycle.run_checked(
        "down", "down", "--yes", "--stack", cycle.stack, "--twin", seconds=DOWN_SECONDS
    )

    assert "its state is removed instead" not in cycle.results["down"].stderr, (
        "resources must be destroyed, not only removed from the state"
    )
    assert not (cycle.folder / "state").exists()
    doctor = json.loads(cycle.run("doctor", "--json").stdout)
    traces = [
        leftover["what"]
        for leftover in doctor["leftovers"]
        if str(cycle.folder) in leftover["what"]
    ]
    assert traces == []
