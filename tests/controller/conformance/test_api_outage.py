"""The API server does not respond for a while: the workers keep training, and the controller continues afterwards."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest
from cloudtwin.nodes import Twin
from cloudtwin.nodes.control_plane.components import API_SERVER
from cloudtwin.nodes.linux import processes

from tests.controller.conformance.job_namespace import Job, JobNamespace
from tests.controller.conformance.real_pods import IMAGE, Kubelet

OUTAGE_SECONDS = 20  # a node of the twin is marked as not Ready after 8 s
MIN_STEPS = 10  # during the outage; an idle machine takes about a hundred

TRAINING = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
while True:
    print(time.time(), flush=True)
    time.sleep(0.2)
"""
"""A worker that writes the time of each step to its log."""


@contextlib.contextmanager
def api_server_frozen(twin: Twin) -> Iterator[None]:
    """Freeze the process of the API server: it accepts connections and sends no response."""
    process = processes.load(twin.layout.process(API_SERVER))
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def steps(job: Job, index: int) -> list[float]:
    """Return the times of a worker's steps."""
    log = job.job_namespace.core.read_namespaced_pod_log(
        f"{job.name}-worker-{index}", job.job_namespace.namespace
    )
    return [float(line) for line in log.split()]


@pytest.mark.only_on("pods", "it needs processes that run without the API server")
def test_workers_continue_to_train_while_the_api_server_does_not_respond(
    job_namespace: JobNamespace, kubelet: Kubelet, twin: Twin | None, name: str
) -> None:
    if twin is None:
        pytest.skip("the API server of an external cluster cannot be frozen")
    worker = {
        "name": "elasticjob-worker", "image": IMAGE, "command": ["python3", "-c", TRAINING],
    }  # fmt: skip
    job = job_namespace.job(name, replicas=2, pod={"containers": [worker]})
    job.wait_until_running({0, 1})
    uids_before, outage_start = job.uids(), time.time()

    with api_server_frozen(twin):
        time.sleep(OUTAGE_SECONDS)
        outage_end = time.time()
    job.scale(3)
    job.wait_until_running({0, 1, 2})

    pods = job.pods()
    assert {index: pods[index].metadata.uid for index in uids_before} == uids_before, (
        "a worker was deleted"
    )
    for index in uids_before:
        assert pods[index].status.container_statuses[0].restart_count == 0
        outage_steps = [step for step in steps(job, index) if outage_start < step < outage_end]
        assert len(outage_steps) >= MIN_STEPS, f"worker {index} stopped"
