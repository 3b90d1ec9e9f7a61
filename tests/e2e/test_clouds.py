"""The stacks of both clouds on the twin, from preview until everything is destroyed.

    pytest -m e2e tests/e2e/test_clouds.py -k eks-dev     # or eks-prod, aks-dev, aks-prod

The repository's stack files are used, with a shorter training. One run of the commands takes minutes, so
all tests of a stack share it; each test checks one guarantee.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from cloudtwin.facade import shared_volume
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes import Twin
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.nodes.layout import Layout

from everstep.catalog.names import (
    ELASTICJOB_API_VERSION,
    ELASTICJOB_PLURAL,
    JOB_NAME_LABEL,
    JOB_NAMESPACE,
)
from everstep.cli.report.readers import FolderReader
from everstep.cli.report.report import Report, build
from everstep.progress import Silent

REPOSITORY = Path(__file__).parents[2]
EVERSTEP = str(Path(sys.executable).parent / "everstep")
STACKS = ("eks-dev", "aks-dev", "eks-prod", "aks-prod")
WORKERS = 3
JOB = "fashion"
JOB_PATH = f"/apis/{ELASTICJOB_API_VERSION}/namespaces/{JOB_NAMESPACE}/{ELASTICJOB_PLURAL}/{JOB}"

UP_SECONDS, DOWN_SECONDS, QUERY_SECONDS, TRAIN_SECONDS = 600, 300, 240, 1800
ALL_TRAIN_SECONDS = 300
"""Time limit for all workers to train again, in seconds; generous because the host may be busy."""

STEPS_BETWEEN_CHECKPOINTS = 15
"""Maximum number of steps trained in the five seconds between two checkpoints."""

NOTICE_SECONDS = 20
RETURN_SECONDS = 20
"""Seconds without GPU capacity after all GPU nodes were reclaimed."""

SHORT_TRAINING: dict[str, dict[str, Any]] = {
    "job": {
        "model": "resnet18",
        "replicas": WORKERS,
        "maxReplicas": WORKERS,
        "epochs": 2,  # all evictions happen before its end, even on a busy machine
        "globalBatch": 256,
        "learningRate": 0.15,
    },
}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(UP_SECONDS + TRAIN_SECONDS + 4 * QUERY_SECONDS + 2 * DOWN_SECONDS),
]


@dataclass
class LifeCycle:
    """The life cycle of one stack, with the result of each command by name."""

    stack: str
    folder: Path
    results: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def twin(self) -> Path:
        """Folder of the twin."""
        return self.folder / "state" / self.stack

    @property
    def run_folder(self) -> Path:
        """Folder of the run on the twin's volume."""
        return (shared_volume(self.twin) or self.twin / "shared") / "runs" / JOB

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "EVERSTEP_STATE": str(self.folder / "state")}

    @property
    def stack_file(self) -> Path:
        return self.folder / "stacks" / f"Pulumi.{self.stack}.yaml"

    def change(self, **sections: dict[str, Any]) -> None:
        """Change keys of sections of the stack file."""
        content = yaml.safe_load(self.stack_file.read_text())
        for name, values in sections.items():
            content["config"].setdefault(f"everstep:{name}", {}).update(values)
        self.stack_file.write_text(yaml.safe_dump(content, sort_keys=False))

    def unprotect(self) -> None:
        """Let `down` destroy the stack; only a stack outside of production may be without protection."""
        self.change(tags={"environment": "dev"})
        content = yaml.safe_load(self.stack_file.read_text())
        content["config"]["everstep:protect"] = False
        self.stack_file.write_text(yaml.safe_dump(content, sort_keys=False))

    def run(
        self, *arguments: str, seconds: float = QUERY_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run the command on this stack."""
        return subprocess.run(
            [EVERSTEP, *arguments],
            cwd=self.folder,
            env={**self.environment, "PULUMI_STACK": self.stack},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    def record(self, name: str, *arguments: str, seconds: float = QUERY_SECONDS) -> None:
        """Run the command and record its result under a name."""
        self.results[name] = self.run(*arguments, seconds=seconds)

    def run_checked(self, name: str, *arguments: str, seconds: float = QUERY_SECONDS) -> None:
        """Run the command, record its result, and fail if the command fails."""
        self.record(name, *arguments, seconds=seconds)
        result = self.results[name]
        assert not result.returncode, f"{name}\n{result.stdout[-2000:]}\n{result.stderr[-6000:]}"

    def query(self, verb: str) -> dict[str, Any]:
        """Return the JSON of `status` or `report`; empty if the command fails."""
        result = self.run(verb, "--stack", self.stack, "--twin", "--json")
        return json.loads(result.stdout) if result.returncode == 0 else {}

    def progress(self) -> Report:
        """Return the output of `report`, without the seconds that a command takes to start."""
        return build(FolderReader(self.run_folder, self.twin / "events.jsonl").read())

    def api(self) -> KubernetesClient:
        """Return a client of the cluster."""
        return admin_client(Layout(self.twin))

    def worker_nodes(self) -> dict[str, dict[str, str]]:
        """Return the labels of the running workers' nodes, by name."""
        labels = {
            node["metadata"]["name"]: node["metadata"]["labels"]
            for node in self.api().get("/api/v1/nodes")["items"]
        }
        pods = self.api().get(f"/api/v1/namespaces/{JOB_NAMESPACE}/pods")["items"]
        names = {
            pod["spec"]["nodeName"]
            for pod in pods
            if JOB_NAME_LABEL in pod["metadata"]["labels"] and pod["status"]["phase"] == "Running"
        }
        return {name: labels[name] for name in names & labels.keys()}

    def verify(self) -> None:
        """Recompute the samples of all checkpoints."""
        self.results["verify"] = subprocess.run(
            [sys.executable, "-m", "trainer.verify", str(self.run_folder)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=QUERY_SECONDS,
        )

    def gpu_nodes(self) -> list[str]:
        """Return the names of the ready GPU nodes."""
        nodes = self.query("status").get("nodes", ())
        return [n["name"] for n in nodes if n["pool"] == "gpu-spot" and n["ready"]]

    def wait_until(self, description: str, holds: Callable[[], object], seconds: float) -> None:
        """Wait until a condition holds; fail with the status of the stack after `seconds`."""
        end = time.monotonic() + seconds
        while not holds_now(holds):
            if time.monotonic() > end:
                status = self.run("status", "--stack", self.stack, "--twin")
                raise AssertionError(
                    f"not within {seconds} s: {description}\n{status.stdout}{status.stderr}"
                )
            time.sleep(1)

    def has_recovered_from(self, count: int) -> bool:
        """Return True if `count` losses are each followed by a step and all workers train."""
        report = self.progress()
        losses = [event for event in report.events if event.kind == "notice"]
        recovered = all(event.seconds_to_next_step is not None for event in losses)
        return len(losses) >= count and recovered and report.world_sizes[-1].world_size == WORKERS


def holds_now(condition: Callable[[], object]) -> bool:
    """Return True if a condition holds; False if the API server of a busy machine does not respond in time."""
    try:
        return bool(condition())
    except OSError:
        return False


def reclaim_all_gpu_nodes(cycle: LifeCycle) -> None:
    """Reclaim the GPU nodes one by one, then all at once while the cloud has no capacity."""
    stack_options = ("--stack", cycle.stack)
    first_nodes = cycle.gpu_nodes()
    for losses, node in enumerate(first_nodes, start=1):
        cycle.run_checked(
            f"reclaim {node}", "node", "reclaim", node, f"--notice={NOTICE_SECONDS}", *stack_options
        )
        cycle.wait_until(
            "all workers train again", partial(cycle.has_recovered_from, losses), ALL_TRAIN_SECONDS
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


def copy_project(folder: Path) -> Path:
    """Fill an empty folder with the project, and return it: the program, and stack files to change."""
    shutil.copytree(REPOSITORY / "stacks", folder / "stacks")
    shutil.copy(REPOSITORY / "Pulumi.yaml", folder)
    for name in ("components", "__main__.py", "manifests"):
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


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
        state = cycle.folder / "state" / cycle.stack
        if state.exists():  # the stack is protected, or `down` failed
            Twin(Layout(state)).down(Silent())


def output(cycle: LifeCycle, name: str) -> str:
    result = cycle.results[name]
    return f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"


def test_a_preview_lists_the_resources_to_create_and_uses_no_account(cycle: LifeCycle) -> None:
    assert "no account is used" in cycle.results["preview"].stderr
    assert "to create" in cycle.results["preview"].stdout


def test_the_training_runs_on_the_gpu_pool_and_its_files_are_on_the_clouds_volume(
    cycle: LifeCycle,
) -> None:
    (volume,) = (cycle.folder / "state" / cycle.stack / "cloud").glob("volumes.json")
    folders = {entry["folder"] for entry in json.loads(volume.read_text()).values()}

    shared = cycle.folder / "state" / cycle.stack / "shared"
    assert any((shared / name / "runs" / "fashion" / "result.json").exists() for name in folders)


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
