"""A job that follows capacity has as many workers as fit on the machines, within its bounds."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.controller.conformance.job_namespace import Job, JobNamespace
from tests.controller.conformance.real_pods import Kubelet

pytestmark = pytest.mark.known_upstream_failure("it always uses the replicas of the spec")

ANNOTATIONS = {"everstep.dev/scaling": "capacity"}
HOSTNAME = "kubernetes.io/hostname"


def one_per_node(name: str) -> dict[str, Any]:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"job-name": name}}}
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


@pytest.fixture
def create_job(job_namespace: JobNamespace, name: str) -> Callable[..., Job]:
    """Return a function that creates a job which follows capacity, with one worker per machine."""
    return lambda **fields: job_namespace.job(
        name, annotations=ANNOTATIONS, pod=one_per_node(name), **fields
    )


def test_a_job_follows_its_machines_without_disturbing_other_workers(
    create_job: Callable[..., Job], kubelet: Kubelet
) -> None:
    job = create_job(replicas=3, max_replicas=3)
    job.wait_until_running({0, 1, 2})
    uids_before = job.uids()
    machine = job.pods()[1].spec.node_name

    kubelet.lose(machine)
    try:
        job.wait_until("two workers are desired", lambda: job.desired_workers() == 2)
        job.wait_until_running({0, 2})
        job.wait_until("the job is still running", lambda: job.is_true("Running"))
        assert {index: job.uids()[index] for index in (0, 2)} == {
            0: uids_before[0],
            2: uids_before[2],
        }
        assert job.read()["spec"]["replicaSpecs"]["Worker"]["replicas"] == 3, (
            "the controller must not change the spec"
        )
    finally:
        kubelet.boot(machine)

    job.wait_until("three workers are desired", lambda: job.desired_workers() == 3)
    job.wait_until_running({0, 1, 2})
    assert {index: job.uids()[index] for index in (0, 2)} == {0: uids_before[0], 2: uids_before[2]}


def test_a_job_grows_beyond_its_initial_size_up_to_its_maximum(
    create_job: Callable[..., Job],
) -> None:
    job = create_job(replicas=1, max_replicas=2)
    job.wait_until_running({0})
    uids_before = job.uids()

    job.wait_until_running({0, 1})

    assert job.uids()[0] == uids_before[0]
    job.check_holds(
        "the maximum is two workers, although there is a third machine",
        lambda: job.running_workers() == {0, 1},
    )


def test_without_machines_a_job_is_suspended_and_resumes_when_they_join(
    create_job: Callable[..., Job], kubelet: Kubelet
) -> None:
    job = create_job(replicas=2, max_replicas=3)
    job.wait_until("there is one worker per machine", lambda: len(job.running_workers()) == 3)
    machines = {pod.spec.node_name for pod in job.pods().values()}

    for machine in machines:
        kubelet.lose(machine)
    try:
        job.wait_until("the job is suspended", lambda: job.is_true("Suspended") and not job.pods())
        condition = job.conditions()["Suspended"]
        assert condition["reason"] == "NoCapacity"
        assert "found no node" in condition["message"]
        assert not job.is_true("Failed")
    finally:
        for machine in machines:
            kubelet.boot(machine)

    job.wait_until("the workers run again", lambda: len(job.running_workers()) == 3)
    job.wait_until(
        "the conditions are updated",
        lambda: job.is_true("Running") and not job.is_true("Suspended"),
    )


def test_edits_of_replicas_and_bounds_apply_together_and_keep_the_remaining_workers(
    create_job: Callable[..., Job],
) -> None:
    job = create_job(replicas=1, max_replicas=1)
    job.wait_until_running({0})
    uid_before = job.uids()[0]

    job.patch({"maxReplicas": 3})
    job.wait_until_running({0, 1, 2})
    job.patch({"minReplicas": 2, "replicaSpecs": {"Worker": {"replicas": 2}}})
    job.wait_until_running({0, 1})
    job.patch({"minReplicas": 1, "maxReplicas": 1, "replicaSpecs": {"Worker": {"replicas": 1}}})
    job.wait_until_running({0})

    assert job.uids()[0] == uid_before
    job.wait_until("the worker has the new bounds", lambda: job.annotated_bounds() == {0: "1:1"})


@pytest.mark.only_on("stand-in", "it does not depend on processes")
def test_a_cordoned_machine_gets_no_worker(
    create_job: Callable[..., Job], kubelet: Kubelet
) -> None:
    kubelet.cordon(on=True)
    try:
        job = create_job(replicas=1, max_replicas=3)
        job.wait_until("the job is suspended", lambda: job.is_true("Suspended") and not job.pods())
        job.check_holds("no worker is created", lambda: not job.pods(), 3)
    finally:
        kubelet.cordon(on=False)

    job.wait_until_running({0, 1, 2})
