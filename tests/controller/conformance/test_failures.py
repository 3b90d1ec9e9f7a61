"""A worker that ends is replaced, whatever ended it; one that keeps failing fails the job, and the job says so."""

import pytest
from kubernetes import client

UPSTREAM_LEAVES_IT = "it leaves the pod Failed and never makes another"


@pytest.mark.parametrize("code", [130, 137, 138, 143])
def test_a_worker_that_a_signal_ended_is_replaced_and_the_others_stay(bench, kubelet, name, code):
    job = bench.job(name, replicas=3)
    job.until_running({0, 1, 2})
    before = job.uids()

    kubelet.end(f"{name}-worker-1", code)

    job.until_running({0, 1, 2}, but_not={1: before[1]})
    after = job.uids()
    assert (after[0], after[2]) == (before[0], before[2])


@pytest.mark.upstream_known_wrong(UPSTREAM_LEAVES_IT)
@pytest.mark.parametrize("code", [1, 2, 139])
def test_a_worker_that_failed_is_replaced_after_a_pause(bench, kubelet, name, code):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})
    before = job.uids()

    kubelet.end(f"{name}-worker-1", code)

    job.until("it says that it restarts", lambda: job.holds("Restarting"))
    job.stays("its log can be read meanwhile", lambda: job.uids().get(1) == before[1], 0.5)
    job.until_running({0, 1}, but_not={1: before[1]})
    job.until("all is well again", lambda: not job.holds("Restarting"))


@pytest.mark.upstream_known_wrong(UPSTREAM_LEAVES_IT)
def test_a_worker_that_its_kubelet_evicted_is_replaced(bench, kubelet, name):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})
    before = job.uids()

    kubelet.evict(f"{name}-worker-0")

    job.until_running({0, 1}, but_not={0: before[0]})


def test_a_drained_worker_is_replaced(bench, name):
    job = bench.job(name, replicas=3)
    job.until_running({0, 1, 2})
    before = job.uids()

    pod = f"{name}-worker-2"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": bench.namespace},
    }
    bench.core.create_namespaced_pod_eviction(pod, bench.namespace, body)

    job.until_running({0, 1, 2}, but_not={2: before[2]})


def test_a_worker_that_exits_with_0_because_it_is_asked_to_go_has_not_finished(
    bench, kubelet, name
):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})
    before = job.uids()
    kubelet.exit_on_request = 0
    try:
        bench.core.delete_namespaced_pod(f"{name}-worker-0", bench.namespace)
        job.until_running({0, 1}, but_not={0: before[0]})
    finally:
        kubelet.exit_on_request = 143
    assert job.count("succeeded") == 0


def test_a_worker_whose_pod_was_deleted_is_replaced(bench, name):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})
    before = job.uids()

    bench.core.delete_namespaced_pod(f"{name}-worker-0", bench.namespace)

    job.until_running({0, 1}, but_not={0: before[0]})


def test_a_lost_service_comes_back(bench, name):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})

    bench.core.delete_namespaced_service(f"{name}-worker-0", bench.namespace)
    bench.core.delete_namespaced_pod(
        f"{name}-worker-1", bench.namespace
    )  # what wakes the controller

    job.until("both services are there", lambda: len(job.services()) == 2)


@pytest.mark.upstream_known_wrong(UPSTREAM_LEAVES_IT)
def test_a_worker_that_keeps_failing_fails_the_job_which_says_who_how_and_where_to_look(
    bench, kubelet, name
):
    job = bench.job(name, replicas=2, run_policy={"backoffLimit": 1})
    job.until_running({0, 1})
    before = job.uids()
    kubelet.end(f"{name}-worker-1", 3)
    job.until_running({0, 1}, but_not={1: before[1]})

    kubelet.end(f"{name}-worker-1", 3)

    job.until("failed", lambda: job.holds("Failed"))
    failed = job.conditions()["Failed"]
    assert failed["reason"] == "BackoffLimitExceeded"
    for part in (f"{name}-worker-1", "code 3", "kubectl logs"):
        assert part in failed["message"]
    assert not job.holds("Running")
    assert job.read()["status"]["completionTime"]
    job.stays("the failed pod is left to be read", lambda: job.pods()[1].status.phase == "Failed")


@pytest.mark.upstream_known_wrong(UPSTREAM_LEAVES_IT)
def test_without_back_off_the_first_failure_fails_the_job(bench, kubelet, name):
    job = bench.job(name, replicas=2, run_policy={"backoffLimit": 0})
    job.until_running({0, 1})

    kubelet.end(f"{name}-worker-0", 1)

    job.until("failed", lambda: job.holds("Failed"))


@pytest.mark.upstream_known_wrong("backoffLimit has no effect under ExitCode")
def test_evictions_never_count_against_the_back_off_limit(bench, kubelet, name):
    job = bench.job(name, replicas=1, run_policy={"backoffLimit": 0})
    job.until_running({0})

    for code in (143, 137, 138):
        before = job.uids()
        kubelet.end(f"{name}-worker-0", code)
        job.until_running({0}, but_not=before)

    assert not job.holds("Failed")


@pytest.mark.upstream_known_wrong("activeDeadlineSeconds has no effect")
def test_a_job_past_its_deadline_fails_and_its_workers_stop(bench, name):
    job = bench.job(name, replicas=2, run_policy={"activeDeadlineSeconds": 3})
    job.until_running({0, 1})

    job.until("failed", lambda: job.holds("Failed"))
    assert job.conditions()["Failed"]["reason"] == "DeadlineExceeded"
    job.until("no worker runs", lambda: not job.running())


@pytest.mark.upstream_known_wrong(
    "it is not aware of nodes: the pod must be deleted by somebody else"
)
def test_workers_of_a_node_that_is_gone_are_replaced(bench, kubelet, name):
    job = bench.job(name, replicas=3)
    job.until_running({0, 1, 2})
    before = job.pods()
    node = before[0].spec.node_name
    hit = {index: pod.metadata.uid for index, pod in before.items() if pod.spec.node_name == node}
    try:
        kubelet.lose(node)

        job.until_running({0, 1, 2}, but_not=hit)
        ends = [event.message for event in job.events() if "lost" in event.message]
        assert ends, "that a node was lost is worth an event"
    finally:
        kubelet.bring(node)


@pytest.mark.upstream_known_wrong("it is not aware of nodes")
def test_workers_of_a_node_that_is_out_of_service_are_replaced(bench, kubelet, name):
    job = bench.job(name, replicas=1)
    job.until_running({0})
    before, node = job.uids(), job.pods()[0].spec.node_name
    taint = {
        "key": "node.kubernetes.io/out-of-service",
        "value": "nodeshutdown",
        "effect": "NoExecute",
    }
    kubelet.fall_silent(node)
    try:
        bench.core.patch_node(node, {"spec": {"unschedulable": True, "taints": [taint]}})

        job.until_running({0}, but_not=before)
    finally:
        bench.core.delete_node(node)
        kubelet.bring(node)


def test_a_pod_of_that_name_which_is_not_the_jobs_own_is_left_alone_and_reported(bench, name):
    container = {"name": "mine", "image": "localhost/everstep/none:local"}
    foreign = {"metadata": {"name": f"{name}-worker-0"}, "spec": {"containers": [container]}}
    made = bench.core.create_namespaced_pod(bench.namespace, foreign)
    job = bench.job(name, replicas=2)
    try:
        job.stays("it is not deleted", lambda: _uid(bench, made) == made.metadata.uid, 2)
    finally:
        bench.core.delete_namespaced_pod(made.metadata.name, bench.namespace)


def _uid(bench, pod: client.V1Pod) -> str:
    return bench.core.read_namespaced_pod(pod.metadata.name, bench.namespace).metadata.uid
