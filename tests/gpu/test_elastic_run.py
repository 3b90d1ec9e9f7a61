"""Runs of the trainer on GPUs with the real launcher, agents and etcd, in which workers are killed."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from cloudtwin.toolchain import ensure_tools

from everstep.progress import Silent
from tests.gpu.machine import gpu_count
from tests.trainer.elastic.nodes import Nodes, running_etcd, small_data
from tests.waiting import wait_until
from trainer.settings import any_result

STEPS = 24
KILLED_AFTER_STEPS = 6
RUN_SECONDS = 600.0
ARGUMENTS = (
    *("--model", "resnet18", "--dataset", "fashion-mnist", "--global-batch", "24"),
    *("--mode", "exact", "--shard-size", "4", "--max-steps", str(STEPS), "--epochs", "1000"),
    *("--checkpoint-seconds", "0.2", "--checkpoint-steps", "1"),
)


@pytest.fixture(scope="module")
def etcd_program() -> None:
    """Provide etcd, or skip the tests with the reason."""
    if os.environ.get("EVERSTEP_TEST_ETCD"):
        return
    try:
        ensure_tools(["etcd"], Silent())
    except Exception as error:  # no Go or no network, for example: the report contains the reason
        pytest.skip(f"no etcd ({error}): elastic runs on GPUs not tested; set EVERSTEP_TEST_ETCD")


@pytest.mark.gpu
@pytest.mark.usefixtures("etcd_program")
def test_a_run_on_one_gpu_with_a_killed_worker_is_bitwise_equal_to_an_undisturbed_run(
    tmp_path: Path,
) -> None:
    check_killed_worker(tmp_path, [gpu_environment(0)])


@pytest.mark.gpu(count=2, purpose="an elastic run over two GPUs, with a killed worker")
@pytest.mark.usefixtures("etcd_program")
def test_a_run_on_two_gpus_with_a_killed_worker_is_bitwise_equal_to_an_undisturbed_run(
    tmp_path: Path,
) -> None:
    check_killed_worker(tmp_path, [gpu_environment(0), gpu_environment(1)])


def gpu_environment(number: int) -> Mapping[str, str]:
    """Return the environment of a node with one GPU of this machine."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpu_count()))))
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("CUDA_", "NVIDIA_", "LD_LIBRARY_PATH"))
    }
    return {**inherited, "CUDA_VISIBLE_DEVICES": visible.split(",")[number]}


def check_killed_worker(folder: Path, nodes: Sequence[Mapping[str, str]]) -> None:
    """Compare a run with a killed worker on these nodes with an undisturbed run on the first of them."""
    data = small_data(folder, samples=600)
    with running_etcd(folder) as etcd:
        digests = [
            run_job(folder, etcd, data, "undisturbed", nodes[:1], kill=False),
            run_job(folder, etcd, data, "killed", nodes, kill=True),
        ]
    assert digests[0] == digests[1]


def run_job(
    folder: Path,
    etcd: str,
    data: Path,
    job: str,
    environments: Sequence[Mapping[str, str]],
    *,
    kill: bool,
) -> str:
    """Run a job to its end and return the digest of its state."""
    (folder / job).mkdir()
    arguments = [*ARGUMENTS, "--data", str(data)]
    nodes = Nodes(folder / job, etcd, arguments, job=job, max_members=len(environments))
    try:
        for number, environment in enumerate(environments):
            nodes.start(f"w{number}", environment=environment)
        if kill:
            nodes.next_step_where(
                lambda step: (
                    step["step"] >= KILLED_AFTER_STEPS and step["world_size"] == len(environments)
                ),
                RUN_SECONDS,
                "all workers train",
            )
            killed_at = time.time()
            os.kill(nodes.worker("w0"), signal.SIGKILL)
            nodes.next_step(killed_at, len(environments), RUN_SECONDS)
        wait_until(lambda: any_result(nodes.run), f"{job} ends", RUN_SECONDS, details=nodes.logs)
    finally:
        nodes.close()
    result = any_result(nodes.run)
    assert result is not None
    return str(result["sha256"])
