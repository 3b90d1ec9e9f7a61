"""Workers are replaced after failures and disruptions; repeated failures fail the job with a reason."""

import pytest

from controller.exit_history import FIRST_DELAY_SECONDS
from tests.controller.conformance.job_namespace import JobNamespace
from tests.controller.conformance.real_pods import Kubelet

UPSTREAM_DOES_NOT_REPLACE = "it leaves the pod Failed and never creates another"


@pytest.mark.parametrize("code", [130, 137, 138, 143])
def test_a_worker_killed_by_a_signal_is_replaced_and_the_others_stay(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str, code: int
) -> None:
    job = job_namespace.job(name, replicas=3)
    job.wait_until_running({0, 1, 2})
    uids_before = job.uids()

    kubelet.end(f"{name}-worker-1", code)

    job.wait_until_running({0, 1, 2}, old_uids={1: uids_before[1]})
    after = job.uids()
    assert (after[0], after[2]) == (uids_before[0], uids_before[2])


@pytest.mark.known_upstream_failure(UPSTREAM_DOES_NOT_REPLACE)
@pytest.mark.parametrize("code", [1, 2, 139])
def test_a_failed_worker_is_replaced_after_a_back_off(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str, code: int
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})
    uids_before = job.uids()

    kubelet.end(f"{name}-worker-1", code)

    job.wait_until_running({0, 1}, old_uids={1: uids_before[1]})
    job.wait_until("the job is no longer Restarting", lambda: not job.is_true("Restarting"))
    job.wait_for_events("WorkerEnded", "ElasticJobRestarting", "WorkerDeleted")
    times = {event.reason: event.first_timestamp for event in job.events()}
    delay = times["WorkerDeleted"] - times["WorkerEnded"]
    assert delay.total_seconds() >= FIRST_DELAY_SECONDS, "its log can be read until then"


@pytest.mark.known_upstream_failure(UPSTREAM_DOES_NOT_REPLACE)
def test_an_evicted_worker_is_replaced(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})
    uids_before = job.uids()

    kubelet.evict(f"{name}-worker-0")

    job.wait_until_running({0, 1}, old_uids={0: uids_before[0]})


def test_a_worker_evicted_through_the_api_is_replaced(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=3)
    job.wait_until_running({0, 1, 2})
    uids_before = job.uids()

    pod = f"{name}-worker-2"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": job_namespace.namespace},
    }
    job_namespace.core.create_namespaced_pod_eviction(pod, job_namespace.namespace, body)

    job.wait_until_running({0, 1, 2}, old_uids={2: uids_before[2]})


def test_a_worker_that_exits_with_0_on_sigterm_has_not_finished(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})
    uids_before = job.uids()
    kubelet.sigterm_exit_code = 0
    try:
        job_namespace.core.delete_namespaced_pod(f"{name}-worker-0", job_namespace.namespace)
        job.wait_until_running({0, 1}, old_uids={0: uids_before[0]})
    finally:
        kubelet.sigterm_exit_code = 143
    assert job.count("succeeded") == 0


def test_a_deleted_worker_is_replaced(job_namespace: JobNamespace, name: str) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})
    uids_before = job.uids()

    job_namespace.core.delete_namespaced_pod(f"{name}-worker-0", job_namespace.namespace)

    job.wait_until_running({0, 1}, old_uids={0: uids_before[0]})


def test_a_deleted_service_is_created_again(job_namespace: JobNamespace, name: str) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})

    job_namespace.core.delete_namespaced_service(f"{name}-worker-0", job_namespace.namespace)
    job_namespace.core.delete_namespaced_pod(
        f"{name}-worker-1", job_namespace.namespace
    )  # wakes the controller

    job.wait_until("both services exist", lambda: len(job.services()) == 2)


@pytest.mark.known_upstream_failure(UPSTREAM_DOES_NOT_REPLACE)
def test_a_worker_that_fails_too_often_is_left_out_while_others_run(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=2, run_policy={"backoffLimit": 0})
    job.wait_until_running({0, 1})
    healthy_uid = job.uids()[0]

    kubelet.end(f"{name}-worker-1", 3)

    job.wait_until(
        "the worker is left out",
        lambda: "left out" in job.conditions().get("Running", {}).get("message", ""),
    )
    assert not job.is_true("Failed"), "one bad node does not end the job"
    assert job.is_true("Running")
    assert job.uids()[0] == healthy_uid


@pytest.mark.known_upstream_failure(UPSTREAM_DOES_NOT_REPLACE)
def test_repeated_failures_of_the_only_worker_fail_the_job_with_exit_code_and_log_command(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=1, run_policy={"backoffLimit": 1})
    job.wait_until_running({0})
    uids_before = job.uids()
    kubelet.end(f"{name}-worker-0", 3)
    job.wait_until_running({0}, old_uids={0: uids_before[0]})

    kubelet.end(f"{name}-worker-0", 3)

    job.wait_until("the job has failed", lambda: job.is_true("Failed"))
    condition = job.conditions()["Failed"]
    assert condition["reason"] == "BackoffLimitExceeded"
    for part in (f"{name}-worker-0", "code 3", "kubectl logs"):
        assert part in condition["message"]
    assert not job.is_true("Running")
    assert job.read()["status"]["completionTime"]
    job.check_holds(
        "the failed pod is kept for its log", lambda: job.pods()[0].status.phase == "Failed"
    )


@pytest.mark.known_upstream_failure(UPSTREAM_DOES_NOT_REPLACE)
def test_with_a_back_off_limit_of_0_the_first_failure_fails_the_job(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=1, run_policy={"backoffLimit": 0})
    job.wait_until_running({0})

    kubelet.end(f"{name}-worker-0", 1)

    job.wait_until("the job has failed", lambda: job.is_true("Failed"))


@pytest.mark.known_upstream_failure("backoffLimit has no effect under ExitCode")
def test_signals_never_count_against_the_back_off_limit(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=1, run_policy={"backoffLimit": 0})
    job.wait_until_running({0})

    for code in (143, 137, 138):
        uids_before = job.uids()
        kubelet.end(f"{name}-worker-0", code)
        job.wait_until_running({0}, old_uids=uids_before)

    assert not job.is_true("Failed")


@pytest.mark.known_upstream_failure("activeDeadlineSeconds has no effect")
def test_a_job_past_its_deadline_fails_and_its_workers_stop(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=2, run_policy={"activeDeadlineSeconds": 3})
    job.wait_until_running({0, 1})

    job.wait_until("the job has failed", lambda: job.is_true("Failed"))
    assert job.conditions()["Failed"]["reason"] == "DeadlineExceeded"
    job.wait_until("no worker runs", lambda: not job.running_workers())


@pytest.mark.known_upstream_failure(
    "it is not aware of nodes: the pod must be deleted by another client"
)
def test_workers_of_a_deleted_node_are_replaced(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=3)
    job.wait_until_running({0, 1, 2})
    pods_before = job.pods()
    node = pods_before[0].spec.node_name
    lost_pods = {
        index: pod.metadata.uid for index, pod in pods_before.items() if pod.spec.node_name == node
    }
    try:
        kubelet.lose(node)

        job.wait_until_running({0, 1, 2}, old_uids=lost_pods)
        job.wait_until(
            "the lost node is reported as an event",
            lambda: any("lost" in event.message for event in job.events()),
        )
    finally:
        kubelet.boot(node)


@pytest.mark.known_upstream_failure("it is not aware of nodes")
def test_workers_of_an_out_of_service_node_are_replaced(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=1)
    job.wait_until_running({0})
    uids_before, node = job.uids(), job.pods()[0].spec.node_name
    taint = {
        "key": "node.kubernetes.io/out-of-service",
        "value": "nodeshutdown",
        "effect": "NoExecute",
    }
    kubelet.freeze(node)
    try:
        job_namespace.core.patch_node(node, {"spec": {"unschedulable": True, "taints": [taint]}})

        job.wait_until_running({0}, old_uids=uids_before)
    finally:
        job_namespace.core.delete_node(node)
        kubelet.boot(node)


def test_a_foreign_pod_of_the_same_name_is_not_deleted(
    job_namespace: JobNamespace, name: str
) -> None:
    container = {"name": "mine", "image": "localhost/everstep/none:local"}
    body = {"metadata": {"name": f"{name}-worker-0"}, "spec": {"containers": [container]}}
    pod = job_namespace.core.create_namespaced_pod(job_namespace.namespace, body)
    job = job_namespace.job(name, replicas=2)
    try:
        job.check_holds(
            "it is not deleted",
            lambda: _uid(job_namespace, pod.metadata.name) == pod.metadata.uid,
            2,
        )
    finally:
        job_namespace.core.delete_namespaced_pod(pod.metadata.name, job_namespace.namespace)


def _uid(job_namespace: JobNamespace, pod_name: str) -> str:
    uid: str = job_namespace.core.read_namespaced_pod(
        pod_name, job_namespace.namespace
    ).metadata.uid
    return uid
