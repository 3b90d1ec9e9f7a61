"""Every cloud's stack, from preview to nothing left, on the twin's clouds.

    pytest -m e2e tests/e2e/test_clouds.py -k eks-dev     # or eks-prod, aks-dev, aks-prod

The stacks are their own files, with a training that is short enough. One walk serves all the tests
of a stack, since it takes minutes; each test looks at one promise.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.progress import Silent
from twin.nodes import Twin
from twin.nodes.layout import Layout

REPOSITORY = Path(__file__).parents[2]
EVERSTEP = str(Path(sys.executable).parent / "everstep")
STACKS = ("eks-dev", "aks-dev", "eks-prod", "aks-prod")
WORKERS = 3

UP_SECONDS, DOWN_SECONDS, ASK_SECONDS, TRAIN_SECONDS = 600, 300, 240, 1800
WHOLE_SECONDS = 300
"""How long the group may take to be whole again, on a machine that has other things to do too."""

STEPS_BETWEEN_CHECKPOINTS = 15
"""What the workers train at most in the five seconds between two checkpoints."""

NOTICE_SECONDS = 20
RETURN_SECONDS = 20
"""After all GPU nodes are gone the cloud has none for so long."""

SHORT: dict[str, dict[str, Any]] = {
    "job": {
        "model": "resnet18",
        "replicas": WORKERS,
        "maxReplicas": WORKERS,
        "epochs": 1,
        "globalBatch": 256,
        "learningRate": 0.15,
    },
}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(UP_SECONDS + TRAIN_SECONDS + 4 * ASK_SECONDS + 2 * DOWN_SECONDS),
]


@dataclass
class Walk:
    """One stack's way from nothing to nothing, and what each command of it said."""

    stack: str
    folder: Path
    said: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)

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

    def run(self, *words: str, seconds: float = ASK_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run the command on this stack."""
        return subprocess.run(
            [EVERSTEP, *words],
            cwd=self.folder,
            env={**self.environment, "PULUMI_STACK": self.stack},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    def do(self, name: str, *words: str, seconds: float = ASK_SECONDS) -> None:
        """Run the command and remember what it said under a name."""
        self.said[name] = self.run(*words, seconds=seconds)

    def must(self, name: str, *words: str, seconds: float = ASK_SECONDS) -> None:
        """The same where nothing further makes sense unless it succeeds."""
        self.do(name, *words, seconds=seconds)
        done = self.said[name]
        assert not done.returncode, f"{name}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"

    def ask(self, verb: str) -> dict[str, Any]:
        """What `status` or `report` says as JSON; empty where it has nothing to say yet."""
        done = self.run(verb, "--stack", self.stack, "--twin", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def gpu_nodes(self) -> list[str]:
        """The GPU nodes that take part now."""
        nodes = self.ask("status").get("nodes", ())
        return [n["name"] for n in nodes if n["pool"] == "gpu-spot" and n["ready"]]

    def until(self, what: str, true: Callable[[], object], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                shown = self.run("status", "--stack", self.stack, "--twin")
                raise AssertionError(
                    f"not within {seconds} s: {what}\n{shown.stdout}{shown.stderr}"
                )
            time.sleep(1)

    def is_whole_since(self, count: int) -> bool:
        """Whether every loss so far was answered by a step, and all workers train."""
        report = self.ask("report")
        losses = [event for event in report.get("events", ()) if event["kind"] == "notice"]
        answered = all(event["seconds_to_next_step"] is not None for event in losses)
        return (
            len(losses) >= count and answered and report["world_sizes"][-1]["world_size"] == WORKERS
        )


def take_everything_away(walk: Walk) -> None:
    """Take every GPU node in turn, then all of them at once while the cloud has no others."""
    on_twin = ("--stack", walk.stack)
    first = walk.gpu_nodes()
    for taken, node in enumerate(first, start=1):
        walk.must(
            f"reclaim {node}", "node", "reclaim", node, f"--notice={NOTICE_SECONDS}", *on_twin
        )
        walk.until("all train again", lambda n=taken: walk.is_whole_since(n), WHOLE_SECONDS)
    every = walk.gpu_nodes()
    walk.must(
        "reclaim all",
        "node",
        "reclaim",
        *every,
        f"--notice={NOTICE_SECONDS}",
        f"--return-after={RETURN_SECONDS}",
        *on_twin,
    )
    walk.until(
        "all train again", lambda: walk.is_whole_since(len(first) + len(every)), WHOLE_SECONDS
    )


@pytest.fixture(scope="module", params=STACKS)
def walk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Walk]:
    """Walk the whole way once; whatever happens, the twin is taken down."""
    folder = tmp_path_factory.mktemp(request.param)
    shutil.copytree(REPOSITORY / "stacks", folder / "stacks")
    shutil.copy(REPOSITORY / "Pulumi.yaml", folder)
    for name in ("components", "__main__.py", "manifests"):
        (folder / name).symlink_to(REPOSITORY / name)
    walk = Walk(request.param, folder)
    walk.change(**SHORT)
    place = ("--stack", walk.stack, "--twin")
    try:
        walk.must("preview", "preview", *place)
        walk.must("up", "up", "--detach", *place, seconds=UP_SECONDS)
        walk.until("it trains", lambda: walk.ask("report").get("steps"), WHOLE_SECONDS)
        take_everything_away(walk)
        walk.do("end", "report", "--wait", "--json", *place, seconds=TRAIN_SECONDS)
        walk.report, walk.status = walk.ask("report"), walk.ask("status")
        walk.do("nothing to change", "preview", "--expect-no-changes", *place)
        walk.do("again", "up", "--detach", *place, seconds=UP_SECONDS)
        walk.do("refresh", "pulumi", "refresh", "--yes", "--expect-no-changes", "--skip-preview")
        if walk.stack.endswith("-prod"):
            walk.do("protected", "down", "--yes", *place, seconds=DOWN_SECONDS)
        yield walk
    finally:
        walk.run("down", "--yes", *place, seconds=DOWN_SECONDS)
        if (state := walk.folder / "state" / walk.stack).exists():  # protected, or half taken down
            Twin(Layout(state)).down(Silent())


def said(walk: Walk, name: str) -> str:
    done = walk.said[name]
    return f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_a_preview_says_what_it_proves_and_what_it_would_create(walk):
    assert "no account is used" in walk.said["preview"].stderr
    assert "to create" in walk.said["preview"].stdout


def test_the_training_runs_on_the_gpu_pool_and_its_files_are_on_the_clouds_volume(walk):
    (volume,) = (walk.folder / "state" / walk.stack / "cloud").glob("volumes.json")
    folders = {entry["folder"] for entry in json.loads(volume.read_text()).values()}

    shared = walk.folder / "state" / walk.stack / "shared"
    assert any((shared / name / "runs" / "fashion" / "result.json").exists() for name in folders)


def test_the_job_finishes_though_every_gpu_node_was_taken_in_turn_and_all_at_once(walk):
    kinds = {condition["type"] for condition in walk.status["job"]["conditions"]}

    assert "Succeeded" in kinds
    assert walk.report["finished"]
    assert walk.report["accuracy"] >= 0.8
    assert len([e for e in walk.report["events"] if e["kind"] == "notice"]) >= 2 * WORKERS


def test_a_notice_in_time_costs_no_step_and_all_at_once_at_most_what_no_checkpoint_holds(walk):
    notices = [event for event in walk.report["events"] if event["kind"] == "notice"]
    in_turn, at_once = notices[:WORKERS], notices[WORKERS:]

    assert [event["steps_lost"] for event in in_turn] == [0] * WORKERS
    assert all(event["steps_lost"] <= STEPS_BETWEEN_CHECKPOINTS for event in at_once)


def test_right_after_there_is_nothing_to_change(walk):
    assert walk.said["nothing to change"].returncode == 0, said(walk, "nothing to change")
    assert walk.said["again"].returncode == 0, said(walk, "again")
    assert "created" not in walk.said["again"].stderr


def test_a_refresh_finds_no_drift(walk):
    assert walk.said["refresh"].returncode == 0, said(walk, "refresh")


def test_a_changed_field_updates_or_replaces_as_it_must(walk):
    walk.change(job={"learningRate": 0.1})
    planned = walk.run("preview", "--stack", walk.stack, "--twin", "--json")
    steps = {
        step["urn"].rsplit("::", 1)[-1]: step["op"]
        for step in json.loads(planned.stdout)["steps"]
        if step["op"] not in ("same", "read")
    }
    walk.change(job={"learningRate": SHORT["job"]["learningRate"]})

    assert steps, planned.stderr
    assert all(name.startswith("training-job") for name in steps), steps


def test_down_leaves_the_cloud_and_the_machine_empty(walk):
    if walk.stack.endswith("-prod"):
        refused = walk.said["protected"]
        assert refused.returncode, "what is protected must not go unasked"
        assert "is protected; nothing was destroyed" in refused.stderr
        walk.change(tags={"environment": "dev"})
        content = yaml.safe_load(walk.stack_file.read_text())
        content["config"]["everstep:protect"] = False
        walk.stack_file.write_text(yaml.safe_dump(content, sort_keys=False))
        walk.must(
            "unprotect", "up", "--detach", "--stack", walk.stack, "--twin", seconds=UP_SECONDS
        )

    walk.must("down", "down", "--yes", "--stack", walk.stack, "--twin", seconds=DOWN_SECONDS)

    assert "instead" not in walk.said["down"].stderr, "all was destroyed, not only forgotten"
    assert not (walk.folder / "state").exists()
    doctor = json.loads(walk.run("doctor", "--json").stdout)
    traces = [one["what"] for one in doctor["leftovers"] if str(walk.folder) in one["what"]]
    assert traces == []
