"""A mistyped image on real nodes: `up` reports it in bounded time, and the next `up` with the correct image continues.

The job that continues is a program of the user (`job.command`, `job.args`), which trains in its pod.

The machines belong to a twin, but the stack uses them as an existing cluster: on its own twin
`everstep up` finds the error before it starts anything (tests/everstep/cli/engine/test_stand_ins.py).
"""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from cloudtwin.kubernetes_api import ApiError
from cloudtwin.nodes import Twin
from cloudtwin.nodes.bring_up import admin_client

from everstep.catalog.names import JOB_NAMESPACE
from everstep.cli.images import OPTIONS
from everstep.cli.twin_settings import gpu_machine, system_machine
from everstep.progress import Lines
from tests.e2e.life_cycle import EVERSTEP, copy_project
from tests.waiting import wait_until

TWIN = f"images-{os.getpid()}"
STUCK_SECONDS = 6
UP_SECONDS = 400  # limit for a busy machine; the engine gives up after 600 s
TRAIN_SECONDS = 300

pytestmark = [pytest.mark.twin, pytest.mark.timeout(4 * UP_SECONDS + TRAIN_SECONDS)]

# Keys of Everstep's trainer, which are refused in a job with a command.
TRAINER_KEYS = ("model", "epochs", "globalBatch", "learningRate", "seed", "mode")
SCRIPT = """
import os, sys, torch
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset
from everstep import elastic

torch.manual_seed(0)
inputs = torch.randn(512, 8)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = elastic.Run(
    model, optimizer, dataset=TensorDataset(inputs, inputs.sum(1, keepdim=True)),
    global_batch=64, epochs=int(sys.argv[1]), checkpoint=os.environ["EVERSTEP_RUN"],
)
for batch in run:
    for x, y in batch.microbatches():
        (mse_loss(model(x), y) * batch.weight(x)).backward()
    batch.step()
if run.leads:
    print(f"{run.step} steps, mean weight {model.weight.mean():.2f}", flush=True)
"""
"""A program that learns to add eight numbers: all weights become 1."""


@dataclass(frozen=True)
class Project:
    """A copy of the project whose stack file may be changed."""

    folder: Path

    @property
    def stack_file(self) -> Path:
        return self.folder / "stacks" / "Pulumi.local.yaml"

    def up(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [EVERSTEP, "up", "--detach", "--yes"],
            cwd=self.folder,
            env={
                **os.environ,
                "EVERSTEP_TWIN": TWIN,
                "CLOUDTWIN_STUCK_SECONDS": str(STUCK_SECONDS),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=UP_SECONDS,
        )


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """Start a system machine and a GPU machine in a separate state root."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDTWIN_STATE", str(tmp_path_factory.mktemp("state") / "twins"))
        twin = Twin.open(TWIN, OPTIONS)
        try:
            twin.up([system_machine("system-0"), gpu_machine("gpu-0")], Lines())
            yield twin
        finally:
            twin.down(Lines())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(copy_project(tmp_path_factory.mktemp("project")))


def test_a_mistyped_image_is_reported_in_time_and_the_correct_image_continues(
    project: Project, twin: Twin
) -> None:
    stack_file = project.stack_file.read_text().replace(
        "kind: existing", f"kind: existing\n    kubeconfig: {twin.kubeconfig}", 1
    )
    stack_file = re.sub(
        r"^( +(?:replicas|maxReplicas|members):) 3", r"\1 1", stack_file, flags=re.MULTILINE
    )
    wrong_controller = stack_file.replace("everstep/controller:local", "everstep/contoller:local")
    wrong_job = stack_file.replace(
        "image: localhost/everstep/trainer", "image: localhost/everstep/trainr"
    )

    for text, image in (
        (wrong_controller, "localhost/everstep/contoller:local"),
        (wrong_job, "localhost/everstep/trainr:local"),
    ):
        project.stack_file.write_text(text)
        result = project.up()
        assert result.returncode == 1, result.stderr
        assert f"No node can pull the image {image}" in result.stderr
        assert str(project.stack_file) in result.stderr

    project.stack_file.write_text(with_program(stack_file))
    result = project.up()

    assert result.returncode == 0, result.stderr
    assert "created" in result.stderr or "replaced" in result.stderr
    wait_for_log(twin, "160 steps, mean weight 1.00")


def with_program(stack_file: str) -> str:
    """Return a stack file whose job runs the script instead of Everstep's trainer."""
    stack = yaml.safe_load(stack_file)
    config = stack["config"]
    del config["everstep:data"]
    for key in TRAINER_KEYS:
        del config["everstep:job"][key]
    config["everstep:job"] |= {"command": ["python3", "-c", SCRIPT], "args": [20]}
    return yaml.safe_dump(stack, width=1000)


def wait_for_log(twin: Twin, line: str) -> None:
    """Wait until the worker has written a line."""
    client = admin_client(twin.layout)

    def log() -> str:
        with contextlib.suppress(ApiError):  # its container has not started
            return client.text(f"/api/v1/namespaces/{JOB_NAMESPACE}/pods/fashion-worker-0/log")
        return ""

    wait_until(
        lambda: line in log(),
        f"the worker has written {line!r}",
        TRAIN_SECONDS,
        details=log,
        interval_seconds=0.5,
    )
