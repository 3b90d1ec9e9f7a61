"""How a job ends, what is left of it, and what a job that never could run is told."""

import pytest
from kubernetes import client

UPSTREAM_NO_VALIDATION = "it never checks a spec"


def test_a_job_all_of_whose_workers_finished_has_succeeded(bench, kubelet, name):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})

    kubelet.end(f"{name}-worker-0", 0)
    kubelet.end(f"{name}-worker-1", 0)

    job.until("succeeded", lambda: job.holds("Succeeded"))
    assert job.read()["status"]["completionTime"]
    assert job.count("succeeded") == 2
    assert not job.holds("Running")
    assert not job.holds("Failed")


def test_a_job_waits_for_its_other_workers_and_replaces_nobody_once_one_has_finished(
    bench, kubelet, name
):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})
    before = job.uids()

    kubelet.end(f"{name}-worker-0", 0)

    job.stays("it has not succeeded yet", lambda: not job.holds("Succeeded"))
    assert job.uids() == before
    kubelet.end(f"{name}-worker-1", 0)
    job.until("succeeded", lambda: job.holds("Succeeded"))


@pytest.mark.upstream_known_wrong("it needs as many successes as replicas, so the job never ends")
def test_a_worker_that_still_waits_for_a_machine_does_not_keep_the_job_from_its_end(
    bench, kubelet, name
):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})
    kubelet.cordon(on=True)
    try:
        job.scale(3)
        job.until("worker 2 waits", lambda: 2 in job.pods())
        kubelet.end(f"{name}-worker-0", 0)
        kubelet.end(f"{name}-worker-1", 0)

        job.until("succeeded", lambda: job.holds("Succeeded"))
        job.until("worker 2 is sent home", lambda: set(job.pods()) == {0, 1})
    finally:
        kubelet.cordon(on=False)


@pytest.mark.upstream_known_wrong("it needs as many successes as replicas, so the job never ends")
def test_a_worker_that_ends_badly_after_the_training_is_over_does_not_matter(bench, kubelet, name):
    job = bench.job(name, replicas=2, run_policy={"backoffLimit": 0})
    job.until_running({0, 1})

    kubelet.end(f"{name}-worker-0", 0)
    job.until("one has finished", lambda: job.count("succeeded") == 1)
    kubelet.end(f"{name}-worker-1", 1)

    job.until("succeeded", lambda: job.holds("Succeeded"))
    assert not job.holds("Failed")


def test_a_job_that_has_ended_stays_as_it_is(bench, kubelet, name):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})
    before = job.uids()
    kubelet.end(f"{name}-worker-0", 0)
    kubelet.end(f"{name}-worker-1", 0)
    job.until("succeeded", lambda: job.holds("Succeeded"))

    job.scale(3)

    job.stays("no worker is made", lambda: job.uids() == before)
    assert job.holds("Succeeded")


@pytest.mark.parametrize(
    ("policy", "left"), [("None", {0, 1}), ("Running", {0, 1}), ("All", set()), (None, {0, 1})]
)
def test_a_job_that_succeeded_leaves_what_its_policy_says(bench, kubelet, name, policy, left):
    job = bench.job(name, replicas=2, run_policy={"cleanPodPolicy": policy} if policy else None)
    job.until_running({0, 1})
    kubelet.end(f"{name}-worker-0", 0)
    kubelet.end(f"{name}-worker-1", 0)
    job.until("succeeded", lambda: job.holds("Succeeded"))

    job.until("the rest is cleaned up", lambda: set(job.pods()) == left)
    job.stays("what is left stays", lambda: set(job.pods()) == left, 0.5)
    if not left:
        job.until("no services", lambda: not job.services())


@pytest.mark.upstream_known_wrong("under ExitCode no failure ever fails the job")
@pytest.mark.parametrize(("policy", "left"), [("None", {0, 1}), ("Running", {0}), ("All", set())])
def test_a_job_that_failed_leaves_what_its_policy_says(bench, kubelet, name, policy, left):
    job = bench.job(name, replicas=2, run_policy={"cleanPodPolicy": policy, "backoffLimit": 0})
    job.until_running({0, 1})
    kubelet.end(f"{name}-worker-0", 1)
    job.until("failed", lambda: job.holds("Failed"))

    job.until("the rest is cleaned up", lambda: set(job.pods()) == left)
    job.stays("what is left stays", lambda: set(job.pods()) == left, 0.5)


@pytest.mark.upstream_known_wrong(
    "it acts on the time to live only at the next event, and panics for a failed job"
)
@pytest.mark.parametrize("code", [0, 1])
def test_a_job_deletes_itself_some_time_after_its_end(bench, kubelet, name, code):
    job = bench.job(name, replicas=1, run_policy={"ttlSecondsAfterFinished": 2, "backoffLimit": 0})
    job.until_running({0})

    kubelet.end(f"{name}-worker-0", code)

    job.until("over", lambda: job.holds("Failed" if code else "Succeeded"))
    job.until(
        "deleted with all it owned", lambda: job.gone() and not job.pods() and not job.services()
    )


def test_deleting_a_job_deletes_its_pods_and_services(bench, name):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})

    job.delete()

    job.until("nothing is left", lambda: job.gone() and not job.pods() and not job.services(), 30)


def test_a_job_of_the_same_name_starts_anew(bench, kubelet, name):
    job = bench.job(name, replicas=1)
    job.until_running({0})
    before = job.uids()
    kubelet.end(f"{name}-worker-0", 0)
    job.until("succeeded", lambda: job.holds("Succeeded"))
    job.delete()
    job.until("gone", job.gone)

    again = bench.job(name, replicas=1)

    again.until("a new worker runs", lambda: again.running() == {0} and again.uids() != before, 30)
    assert not again.holds("Succeeded")


def test_the_api_refuses_more_workers_than_may_train_together(bench, name):
    with pytest.raises(client.ApiException) as refused:
        bench.job(name, replicas=3, least=1, most=2)

    assert "maxReplicas" in refused.value.body


@pytest.mark.upstream_known_wrong(UPSTREAM_NO_VALIDATION)
def test_a_job_whose_pods_the_api_refuses_fails_with_the_reason_and_starts_once_mended(bench, name):
    wrong = {"name": "elasticjob-worker", "image": "x", "imagePullPolicy": "Sometimes"}
    job = bench.job(name, replicas=1, pod={"containers": [wrong]})

    job.until("failed", lambda: job.holds("Failed"))
    failed = job.conditions()["Failed"]
    assert failed["reason"] == "InvalidSpec"
    assert "imagePullPolicy" in failed["message"]
    assert not job.pods()

    right = {**wrong, "imagePullPolicy": "IfNotPresent"}
    job.patch({"replicaSpecs": {"Worker": {"template": {"spec": {"containers": [right]}}}}})

    job.until_running({0})
    job.until("no longer failed", lambda: job.holds("Running") and not job.holds("Failed"))


@pytest.mark.upstream_known_wrong(UPSTREAM_NO_VALIDATION)
def test_a_faulty_edit_of_a_running_job_does_it_no_harm_and_is_reported(bench, kubelet, name):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})
    before = job.uids()
    wrong = {"name": "elasticjob-worker", "image": "x", "imagePullPolicy": "Sometimes"}

    job.patch(
        {"replicaSpecs": {"Worker": {"replicas": 3, "template": {"spec": {"containers": [wrong]}}}}}
    )

    job.until("a warning", lambda: any(event.reason == "InvalidSpec" for event in job.events()))
    job.stays("the workers run on", lambda: job.uids() == before)
    kubelet.end(f"{name}-worker-0", 143)
    job.until_running({0, 1}, but_not={0: before[0]})
    assert job.holds("Running")
    assert "imagePullPolicy" in job.conditions()["Running"]["message"]
