"""The life cycle of one stack on the twin, from its files to its removal, for tests that each change a part of it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from cloudtwin.facade import shared_volume
from cloudtwin.kubernetes_api import KubernetesClient
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
from tests.trainer.verification import run_verify
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
EVERSTEP = str(Path(sys.executable).parent / "everstep")
WORKERS = 3
JOB = "fashion"
JOB_PATH = f"/apis/{ELASTICJOB_API_VERSION}/namespaces/{JOB_NAMESPACE}/{ELASTICJOB_PLURAL}/{JOB}"

UP_SECONDS, DOWN_SECONDS, QUERY_SECONDS, TRAIN_SECONDS = 600, 300, 240, 1800
ALL_TRAIN_SECONDS = 300
"""Time limit for all workers to train again, in seconds; generous because the host may be busy."""

STEPS_BETWEEN_CHECKPOINTS = 15
"""Maximum number of steps trained in the five seconds between two checkpoints."""

NOTICE_SECONDS = 20

SHORT_TRAINING: dict[str, dict[str, Any]] = {
    "job": {
        "model": "resnet18",
        "replicas": WORKERS,
        "maxReplicas": WORKERS,
        "epochs": 2,  # all evictions happen before the training ends, even on a busy machine
        "globalBatch": 256,
        "learningRate": 0.15,
    },
}


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
        """Return the report of the run, built in this process: a command takes seconds to start."""
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
        self.results["verify"] = run_verify(self.run_folder, QUERY_SECONDS)

    def gpu_nodes(self) -> list[str]:
        """Return the names of the ready GPU nodes."""
        nodes = self.query("status").get("nodes", ())
        return [n["name"] for n in nodes if n["pool"] == "gpu-spot" and n["ready"]]

    def wait_until(self, description: str, holds: Callable[[], object], seconds: float) -> None:
        """Wait until a condition holds; fail with the status of the stack after `seconds`."""

        def show_status() -> str:
            status = self.run("status", "--stack", self.stack, "--twin")
            return f"{status.stdout}{status.stderr}"

        wait_until(
            lambda: holds_now(holds), description, seconds, details=show_status, interval_seconds=1
        )

    def has_recovered_from(self, count: int) -> bool:
        """Return True if there are `count` notices, a step follows each of them, and all workers train."""
        report = self.progress()
        notices = [event for event in report.events if event.kind == "notice"]
        recovered = all(event.seconds_to_next_step is not None for event in notices)
        return len(notices) >= count and recovered and report.world_sizes[-1].world_size == WORKERS


def holds_now(condition: Callable[[], object]) -> bool:
    """Return True if a condition holds; False if the API server of a busy machine does not respond in time."""
    try:
        return bool(condition())
    except OSError:
        return False


def copy_project(folder: Path) -> Path:
    """Fill a new or empty folder with links to the program and copies of the stack files, and return it."""
    shutil.copytree(REPOSITORY / "stacks", folder / "stacks")
    shutil.copy(REPOSITORY / "Pulumi.yaml", folder)
    for name in ("components", "__main__.py", "manifests"):
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


def output(cycle: LifeCycle, name: str) -> str:
    """Return the end of a command's standard output and standard error."""
    result = cycle.results[name]
    return f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
