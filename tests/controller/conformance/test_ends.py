"""The end of jobs: status, clean-up, and errors of jobs that cannot run."""

import pytest
from kubernetes import client

from tests.controller.conformance.job_namespace import JobNamespace
from tests.controller.conformance.real_pods import Kubelet

UPSTREAM_NO_VALIDATION = "it never checks a spec"


def test_a_job_succeeds_when_all_workers_have_finished(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})

    kubelet.end(f"{name}-worker-0", 0)
    kubelet.end(f"{name}-worker-1", 0)

    job.wait_until("the job has succeeded", lambda: job.is_true("Succeeded"))
    assert job.read()["status"]["completionTime"]
    assert job.count("succeeded") == 2
    assert not job.is_true("Running")
    assert not job.is_true("Failed")


def test_after_one_worker_has_finished_the_job_waits_for_the_others_and_replaces_none(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})
    uids_before = job.uids()

    kubelet.end(f"{name}-worker-0", 0)

    job.check_holds("it has not succeeded yet", lambda: not job.is_true("Succeeded"))
    assert job.uids() == uids_before
    kubelet.end(f"{name}-worker-1", 0)
    job.wait_until("the job has succeeded", lambda: job.is_true("Succeeded"))


@pytest.mark.known_upstream_failure("it needs as many successes as replicas, so the job never ends")
def test_a_pending_worker_does_not_prevent_the_end_of_the_job(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})
    kubelet.cordon(on=True)
    try:
        job.scale(3)
        job.wait_until("worker 2 is pending", lambda: 2 in job.pods())
        kubelet.end(f"{name}-worker-0", 0)
        kubelet.end(f"{name}-worker-1", 0)

        job.wait_until("the job has succeeded", lambda: job.is_true("Succeeded"))
        job.wait_until("worker 2 is removed", lambda: set(job.pods()) == {0, 1})
    finally:
        kubelet.cordon(on=False)


@pytest.mark.known_upstream_failure("it needs as many successes as replicas, so the job never ends")
def test_a_worker_that_fails_after_the_training_has_finished_is_ignored(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=2, run_policy={"backoffLimit": 0})
    job.wait_until_running({0, 1})

    kubelet.end(f"{name}-worker-0", 0)
    job.wait_until("one worker has finished", lambda: job.count("succeeded") == 1)
    kubelet.end(f"{name}-worker-1", 1)

    job.wait_until("the job has succeeded", lambda: job.is_true("Succeeded"))
    assert not job.is_true("Failed")


def test_a_finished_job_does_not_change(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})
    uids_before = job.uids()
    kubelet.end(f"{name}-worker-0", 0)
    kubelet.end(f"{name}-worker-1", 0)
    job.wait_until("the job has succeeded", lambda: job.is_true("Succeeded"))

    job.scale(3)

    job.check_holds("no worker is created", lambda: job.uids() == uids_before)
    assert job.is_true("Succeeded")


@pytest.mark.parametrize(
    ("policy", "remaining"), [("None", {0, 1}), ("Running", {0, 1}), ("All", set()), (None, {0, 1})]
)
def test_a_succeeded_job_is_cleaned_up_by_its_policy(
    job_namespace: JobNamespace,
    kubelet: Kubelet,
    name: str,
    policy: str | None,
    remaining: set[int],
) -> None:
    job = job_namespace.job(
        name, replicas=2, run_policy={"cleanPodPolicy": policy} if policy else None
    )
    job.wait_until_running({0, 1})
    kubelet.end(f"{name}-worker-0", 0)
    kubelet.end(f"{name}-worker-1", 0)
    job.wait_until("the job has succeeded", lambda: job.is_true("Succeeded"))

    job.wait_until("the rest is cleaned up", lambda: set(job.pods()) == remaining)
    job.check_holds("the remaining pods stay", lambda: set(job.pods()) == remaining, 0.5)
    if not remaining:
        job.wait_until("there are no Services", lambda: not job.services())


@pytest.mark.known_upstream_failure("under ExitCode no failure ever fails the job")
@pytest.mark.parametrize(
    ("policy", "remaining"), [("None", {0, 1}), ("Running", {0}), ("All", set())]
)
def test_a_failed_job_is_cleaned_up_by_its_policy(
    job_namespace: JobNamespace,
    kubelet: Kubelet,
    name: str,
    policy: str | None,
    remaining: set[int],
) -> None:
    job = job_namespace.job(
        name, replicas=2, restart_policy="Never", run_policy={"cleanPodPolicy": policy}
    )
    job.wait_until_running({0, 1})
    kubelet.end(f"{name}-worker-0", 1)
    job.wait_until("the job has failed", lambda: job.is_true("Failed"))

    job.wait_until("the rest is cleaned up", lambda: set(job.pods()) == remaining)
    job.check_holds("the remaining pods stay", lambda: set(job.pods()) == remaining, 0.5)


@pytest.mark.known_upstream_failure(
    "it acts on the time to live only at the next event, and panics for a failed job"
)
@pytest.mark.parametrize("code", [0, 1])
def test_a_finished_job_is_deleted_after_its_time_to_live(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str, code: int
) -> None:
    job = job_namespace.job(
        name, replicas=1, run_policy={"ttlSecondsAfterFinished": 2, "backoffLimit": 0}
    )
    job.wait_until_running({0})

    kubelet.end(f"{name}-worker-0", code)

    job.wait_until("the job has ended", lambda: job.is_true("Failed" if code else "Succeeded"))
    job.wait_until(
        "the job and its objects are deleted",
        lambda: job.is_gone() and not job.pods() and not job.services(),
    )


def test_deleting_a_job_deletes_its_pods_and_services(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})

    job.delete()

    job.wait_until(
        "nothing is left", lambda: job.is_gone() and not job.pods() and not job.services()
    )


def test_a_new_job_of_the_same_name_starts_from_scratch(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=1)
    job.wait_until_running({0})
    uids_before = job.uids()
    kubelet.end(f"{name}-worker-0", 0)
    job.wait_until("the job has succeeded", lambda: job.is_true("Succeeded"))
    job.delete()
    job.wait_until("the job is gone", job.is_gone)

    second_job = job_namespace.job(name, replicas=1)

    second_job.wait_until(
        "a new worker runs",
        lambda: second_job.running_workers() == {0} and second_job.uids() != uids_before,
    )
    assert not second_job.is_true("Succeeded")


def test_the_api_refuses_more_replicas_than_the_maximum(
    job_namespace: JobNamespace, name: str
) -> None:
    with pytest.raises(client.ApiException) as error:
        job_namespace.job(name, replicas=3, min_replicas=1, max_replicas=2)

    assert error.value.body is not None
    assert "maxReplicas" in error.value.body


@pytest.mark.known_upstream_failure(UPSTREAM_NO_VALIDATION)
def test_a_job_with_refused_pods_fails_with_the_reason_and_starts_once_fixed(
    job_namespace: JobNamespace, name: str
) -> None:
    container = {"name": "elasticjob-worker", "image": "x", "imagePullPolicy": "Sometimes"}
    job = job_namespace.job(name, replicas=1, pod={"containers": [container]})

    job.wait_until("the job has failed", lambda: job.is_true("Failed"))
    condition = job.conditions()["Failed"]
    assert condition["reason"] == "InvalidSpec"
    assert "imagePullPolicy" in condition["message"]
    assert not job.pods()

    fixed_container = {**container, "imagePullPolicy": "IfNotPresent"}
    job.patch(
        {"replicaSpecs": {"Worker": {"template": {"spec": {"containers": [fixed_container]}}}}}
    )

    job.wait_until_running({0})
    job.wait_until("no longer failed", lambda: job.is_true("Running") and not job.is_true("Failed"))


@pytest.mark.known_upstream_failure(UPSTREAM_NO_VALIDATION)
def test_an_invalid_edit_of_a_running_job_is_reported_without_effect(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})
    uids_before = job.uids()
    container = {"name": "elasticjob-worker", "image": "x", "imagePullPolicy": "Sometimes"}

    job.patch(
        {
            "replicaSpecs": {
                "Worker": {"replicas": 3, "template": {"spec": {"containers": [container]}}}
            }
        }
    )

    job.wait_until(
        "there is a warning", lambda: any(event.reason == "InvalidSpec" for event in job.events())
    )
    job.check_holds("the workers keep running", lambda: job.uids() == uids_before)
    kubelet.end(f"{name}-worker-0", 143)
    job.wait_until_running({0, 1}, old_uids={0: uids_before[0]})
    assert job.is_true("Running")
    assert "imagePullPolicy" in job.conditions()["Running"]["message"]
