"""The number of workers follows `replicaSpecs.Worker.replicas`, and the right ones go."""

import pytest


def test_scale_out_adds_the_next_indices_and_leaves_the_others_alone(bench, name):
    job = bench.job(name, replicas=1)
    job.until_running({0})
    before = job.uids()

    job.scale(3)

    job.until_running({0, 1, 2})
    assert job.uids()[0] == before[0]


def test_scale_in_takes_the_highest_indices_and_their_services(bench, name):
    job = bench.job(name, replicas=3)
    job.until_running({0, 1, 2})
    before = job.uids()

    job.scale(1)

    job.until_running({0})
    assert job.uids()[0] == before[0]
    job.until("one service is left", lambda: len(job.services()) == 1)


@pytest.mark.upstream_known_wrong("it removes the highest indices, whatever their health")
def test_scale_in_takes_a_worker_without_a_machine_before_one_that_trains(bench, kubelet, name):
    job = bench.job(name, replicas=3)
    job.until_running({0, 1, 2})
    kubelet.cordon(on=True)
    try:
        kubelet.end(f"{name}-worker-0", 143)
        job.until(
            "worker 0 waits for a machine", lambda: job.running() == {1, 2} and 0 in job.pods()
        )

        job.scale(2)

        job.until_running({1, 2})
        job.stays("the ones that train are left alone", lambda: job.running() == {1, 2})
    finally:
        kubelet.cordon(on=False)


@pytest.mark.upstream_known_wrong("its indices are always 0 to replicas - 1")
def test_scale_out_fills_the_lowest_free_index(bench, kubelet, name):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})
    kubelet.cordon(on=True)
    kubelet.end(f"{name}-worker-0", 143)
    job.until("worker 0 waits for a machine", lambda: job.running() == {1} and 0 in job.pods())
    job.scale(1)
    job.until_running({1})
    kubelet.cordon(on=False)

    job.scale(2)

    job.until_running({0, 1})


@pytest.mark.upstream_known_wrong("it recreates the worker that is to go, then deletes it")
def test_a_worker_that_vanishes_while_it_is_to_go_is_not_made_again(bench, name):
    job = bench.job(name, replicas=3)
    job.until_running({0, 1, 2})

    job.scale(2)
    job.until_running({0, 1})
    made = [
        event.message
        for event in job.events()
        if "created" in event.message and "worker-2" in event.message
    ]

    assert len(made) == 1


def test_scaled_in_and_out_again_quickly_it_ends_with_the_number_asked_for(bench, name):
    job = bench.job(name, replicas=3)
    job.until_running({0, 1, 2})

    for replicas in (1, 4, 2, 3):
        job.scale(replicas)

    job.until("three run", lambda: len(job.running()) == 3 == len(job.pods()))
    job.stays("three run", lambda: len(job.running()) == 3 == len(job.pods()))


@pytest.mark.upstream_known_wrong("it has no condition Suspended")
def test_no_replicas_suspend_the_job_and_more_resume_it(bench, name):
    job = bench.job(name, replicas=2)
    job.until_running({0, 1})

    job.scale(0)

    job.until("suspended", lambda: job.holds("Suspended") and not job.pods() and not job.services())
    assert not job.holds("Running")

    job.scale(2)

    job.until_running({0, 1})
    job.until("running", lambda: job.holds("Running") and not job.holds("Suspended"))
    assert not job.holds("Restarting"), "a worker that was sent away was not lost"


@pytest.mark.upstream_known_wrong("it has no RunPolicy.suspend")
def test_a_job_made_suspended_waits(bench, name):
    job = bench.job(name, replicas=2, run_policy={"suspend": True})
    job.until("suspended", lambda: job.holds("Suspended"))
    job.stays("no pods", lambda: not job.pods())

    job.patch({"RunPolicy": {"suspend": False}})

    job.until_running({0, 1})


def test_wider_bounds_reach_new_workers_only(bench, name):
    job = bench.job(name, replicas=1, least=1, most=2)
    job.until_running({0})
    before = job.uids()

    job.patch({"maxReplicas": 5, "replicaSpecs": {"Worker": {"replicas": 2}}})

    job.until_running({0, 1})
    assert job.uids()[0] == before[0]
    pods = job.pods()
    assert "--nnodes=1:2" in pods[0].spec.containers[0].args
    assert "--nnodes=1:5" in pods[1].spec.containers[0].args


@pytest.mark.upstream_known_wrong("it passes over changes of minReplicas and maxReplicas")
def test_changed_bounds_are_told_to_workers_that_run_and_cost_none_of_them(bench, name):
    job = bench.job(name, replicas=2, least=1, most=2)
    job.until_running({0, 1})
    before = job.uids()
    assert set(job.bounds_told().values()) == {"1:2"}

    job.patch({"maxReplicas": 4})
    job.until("the workers know", lambda: set(job.bounds_told().values()) == {"1:4"})
    job.patch({"minReplicas": 2})
    job.until("the workers know", lambda: set(job.bounds_told().values()) == {"2:4"})

    job.stays("the same workers run", lambda: job.uids() == before and job.running() == {0, 1})


DOWNWARD = {
    "volumes": [
        {
            "name": "itself",
            "downwardAPI": {
                "items": [
                    {
                        "path": "nnodes",
                        "fieldRef": {"fieldPath": "metadata.annotations['everstep.dev/nnodes']"},
                    }
                ]
            },
        }
    ],
    "containers": [
        {
            "name": "elasticjob-worker",
            "image": "x",
            "volumeMounts": [{"name": "itself", "mountPath": "/etc/everstep"}],
        }
    ],
}


@pytest.mark.upstream_known_wrong("it passes over changes of minReplicas and maxReplicas")
@pytest.mark.only_on("pods", "only a real kubelet shows a pod its annotations as a file")
def test_a_running_worker_reads_bounds_that_changed(bench, kubelet, name):
    job = bench.job(name, replicas=1, most=2, pod=DOWNWARD)
    job.until_running({0})
    before, path = job.uids(), "/etc/everstep/nnodes"
    job.until("it reads its bounds", lambda: kubelet.read(f"{name}-worker-0", path) == "1:2")

    job.patch({"maxReplicas": 4})

    job.until("it reads the new ones", lambda: kubelet.read(f"{name}-worker-0", path) == "1:4", 30)
    assert job.uids() == before
