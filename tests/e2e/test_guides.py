"""The commands of docs/eks.md and docs/aks.md from the first to the last, on machines of the twin.

    pytest -m e2e tests/e2e/test_guides.py -k eks-dev     # or eks-prod, aks-dev, aks-prod

`pulumi` and `everstep` work as in a real account: with the user's own backend, and with the kubeconfig that the
guide writes; the twin is the cloud. One run takes minutes, so all tests of a stack share it; each test checks one
guarantee. The job trains for longer than in the stack file, so that it outlasts the upgrade. It has three workers
in production, too, where it would otherwise use all machines.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from cloudtwin.facade import kubeconfig_path, remaining_resources
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes import Twin
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.nodes.layout import Layout

from everstep.progress import Silent
from tests.guides.account import PROVIDERS, UserMachine, user_machine
from tests.guides.guide import ROOT, GuideCommand, guide_commands
from tests.waiting import wait_until

STACKS = ("eks-dev", "aks-dev", "eks-prod", "aks-prod")
WORKERS, EPOCHS = 3, 50
COMMAND_SECONDS, TRAIN_SECONDS, REGION_SECONDS = 1800, 900, 900
PODS = "/api/v1/namespaces/elastic-job/pods"
STEP = re.compile(r"step \d+/")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(9000)]


@dataclass(frozen=True)
class Observation:
    """A cluster and its training at one moment.

    Attributes:
        nodes: names of the ready and schedulable nodes by pool.
        steps: trained steps.
        world_size: workers of the newest step.
        images: images in the specifications of the job's pods.
        pulled_images: images that nodes pulled for them.
    """

    nodes: dict[str, set[str]]
    steps: int
    world_size: int
    images: set[str]
    pulled_images: set[str]

    @property
    def gpu_nodes(self) -> set[str]:
        """Names of the GPU nodes."""
        return self.nodes.get("gpu-spot", set())


@dataclass
class GuideRun:
    """The run of one guide: the output of each command, and observations between commands."""

    stack: str
    machine: UserMachine
    outputs: list[tuple[GuideCommand, str]] = field(default_factory=list)
    observations: dict[str, Observation] = field(default_factory=dict)

    def run_all(self) -> None:
        """Run every command of the guide."""
        for command in guide_commands(self.stack.partition("-")[0], self.stack):
            if not command.text_on_twin:
                continue
            self.outputs.append((command, self.run(command.text_on_twin)))
            self.prepare_next(command)

    def run(self, command: str) -> str:
        """Run a command and return its output; stop `everstep follow` at the first step."""
        if command.startswith("everstep follow"):
            return self.follow(command)
        node = min(self.observations["training"].gpu_nodes) if "NODE" in command else ""
        return self.machine.shell.run(command.replace("NODE", node), COMMAND_SECONDS)

    def follow(self, command: str) -> str:
        """Follow the training until it shows a step, then press Ctrl-C."""
        process, lines = self.machine.shell.start(command), []
        interrupt = threading.Timer(TRAIN_SECONDS, os.killpg, (process.pid, signal.SIGINT))
        interrupt.start()
        with process:
            for line in process.stdout or ():
                lines.append(line)
                if STEP.search(line) and interrupt.is_alive():
                    interrupt.cancel()
                    os.killpg(process.pid, signal.SIGINT)
        interrupt.cancel()
        output = "".join(lines)
        self.machine.shell.record(command, output)
        assert STEP.search(output), f"no step within {TRAIN_SECONDS} s\n{output[-4000:]}"
        return output

    def prepare_next(self, command: GuideCommand) -> None:
        """Prepare the next command, or observe the effect of the last one."""
        words = command.text_on_twin
        if words.startswith("everstep init"):
            self.change_job()
        elif words.startswith("everstep follow"):
            self.observe("training")
        elif words.startswith("everstep node reclaim"):
            self.observe("reclaimed")
        elif words.startswith("pulumi up") and command.section == "Upgrade":
            self.observe("upgraded")

    def change_job(self) -> None:
        """Let the job train for longer, with the number of workers that the tests expect."""
        path = self.machine.project / f"stacks/Pulumi.{self.stack}.yaml"
        content = path.read_text()
        for key, value in {"epochs": EPOCHS, "maxReplicas": WORKERS}.items():
            content, changes = re.subn(rf"(?m)^(    {key}:) \d+$", rf"\1 {value}", content)
            assert changes == 1, f"{path} has {changes} keys {key}"
        path.write_text(content)

    def observe(self, name: str) -> None:
        """Wait until all workers train, for more steps than before, and record the observation."""
        steps_before = max((run.steps for run in self.observations.values()), default=0)
        self.observations[name] = self.wait_until(
            "all workers train again",
            lambda now: now.world_size == WORKERS and now.steps > steps_before + 1,
        )

    def wait_until(self, description: str, holds: Callable[[Observation], bool]) -> Observation:
        """Return the first observation for which a condition holds."""

        def matching_observation() -> Observation | None:
            now = self.observation()
            return now if holds(now) else None

        return wait_until(
            matching_observation,
            description,
            TRAIN_SECONDS,
            details=self.observation,
            interval_seconds=2,
        )

    def observation(self) -> Observation:
        """Return the current state, as the user's own commands and the cluster show it."""
        output = self.machine.shell.run(f"everstep status --stack {self.stack} --json", 120)
        status: dict[str, Any] = json.JSONDecoder().raw_decode(output[output.index("{") :])[0]
        nodes: dict[str, set[str]] = {}
        for node in status["nodes"]:
            if node["ready"] and node["schedulable"]:
                nodes.setdefault(node["pool"], set()).add(node["name"])
        pods = self.cluster().get(PODS)["items"]
        containers = [container for pod in pods for container in pod["spec"]["containers"]]
        container_statuses = [
            container_status
            for pod in pods
            for container_status in pod["status"].get("containerStatuses", ())
        ]
        return Observation(
            nodes=nodes,
            steps=status["training"]["step"],
            world_size=status["training"]["world_size"],
            images={container["image"] for container in containers},
            pulled_images={status["imageID"] for status in container_statuses if status["imageID"]},
        )

    def cluster(self) -> KubernetesClient:
        return admin_client(Layout(self.machine.twin))

    def output_of(self, beginning: str, section: str = "Steps") -> str:
        """Return the output of the last command of a section with this beginning."""
        outputs = [
            output
            for command, output in self.outputs
            if command.section == section and command.text_on_twin.startswith(beginning)
        ]
        assert outputs, f"no command of {section} begins with {beginning}"
        return outputs[-1]


def start_region(machine: UserMachine, stack: str) -> None:
    """Start the cloud, and publish the third-party images."""
    code = f"from tests.guides.region import prepare; prepare({stack!r})"
    environment = {**machine.shell.environment, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=machine.shell.folder, env=environment,
        capture_output=True, text=True, check=False, timeout=REGION_SECONDS,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-4000:]


@pytest.fixture(scope="module", params=STACKS)
def guide_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GuideRun]:
    """Run the guide once; the twin is always taken down."""
    stack = request.param
    with user_machine(tmp_path_factory.mktemp(stack), stack, offline=False) as machine:
        try:
            start_region(machine, stack)
            guide_run = GuideRun(stack, machine)
            guide_run.run_all()
            yield guide_run
        finally:
            Twin(Layout(machine.twin)).down(Silent())


def test_the_job_trains_from_the_users_images_pulled_by_digest(guide_run: GuideRun) -> None:
    stack_file = guide_run.machine.project / f"stacks/Pulumi.{guide_run.stack}.yaml"
    image = yaml.safe_load(stack_file.read_text())["config"]["everstep:job"]["image"]
    training = guide_run.observations["training"]

    (registry,) = re.findall(r'registry: "([^"]+)"', guide_run.output_of("EVERSTEP_PART=registry"))
    assert image.startswith(f"{registry}/trainer@sha256:")
    assert image in training.images, "pods name the digest that the push wrote"
    assert image in training.pulled_images, "nodes pulled that digest"


def test_the_reclaimed_node_is_lost_and_the_training_continues(guide_run: GuideRun) -> None:
    before, after = guide_run.observations["training"], guide_run.observations["reclaimed"]

    assert len(before.gpu_nodes) == WORKERS
    assert min(before.gpu_nodes) not in after.gpu_nodes, "the machine was reclaimed"
    assert after.world_size == WORKERS
    assert guide_run.output_of("everstep report")


def test_the_preview_of_the_upgrade_replaces_no_resource(guide_run: GuideRun) -> None:
    preview = guide_run.output_of("pulumi preview", "Upgrade")

    assert "1.36" in preview
    assert "1.37" in preview
    assert "to update" in preview
    assert "to replace" not in preview, preview[-3000:]


def test_the_upgrade_replaces_every_node_while_the_training_continues(guide_run: GuideRun) -> None:
    before, after = guide_run.observations["reclaimed"], guide_run.observations["upgraded"]

    for pool, names in before.nodes.items():
        assert not names & after.nodes[pool], f"{pool} has nodes of the old version"
        assert len(after.nodes[pool]) >= len(names), pool
    assert after.steps > before.steps
    assert after.world_size == WORKERS


def test_the_teardown_leaves_neither_resources_nor_machines(guide_run: GuideRun) -> None:
    cloud = PROVIDERS[guide_run.stack.partition("-")[0]]

    assert " deleted" in guide_run.output_of("pulumi destroy", "Teardown")
    assert remaining_resources(guide_run.machine.twin, cloud) == []
    assert Twin(Layout(guide_run.machine.twin)).status().machines == ()
    assert kubeconfig_path(guide_run.machine.twin).exists(), (
        "the twin itself stays until the test ends"
    )
