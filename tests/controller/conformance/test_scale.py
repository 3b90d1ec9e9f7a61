"""The workers follow the spec's `replicas`, bounds and `suspend`; pending workers are removed first."""

import pytest

from tests.controller.conformance.job_namespace import JobNamespace
from tests.controller.conformance.real_pods import Kubelet, RealPods


def test_scale_out_adds_the_next_indices_without_disturbing_other_workers(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=1)
    job.wait_until_running({0})
    uids_before = job.uids()

    job.scale(3)

    job.wait_until_running({0, 1, 2})
    assert job.uids()[0] == uids_before[0]


def test_scale_in_removes_the_highest_indices_and_their_services(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=3)
    job.wait_until_running({0, 1, 2})
    uids_before = job.uids()

    job.scale(1)

    job.wait_until_running({0})
    assert job.uids()[0] == uids_before[0]
    job.wait_until("one service is left", lambda: len(job.services()) == 1)


@pytest.mark.known_upstream_failure("it removes the highest indices, regardless of their health")
def test_scale_in_removes_pending_workers_before_running_ones(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=3)
    job.wait_until_running({0, 1, 2})
    kubelet.cordon(on=True)
    try:
        kubelet.end(f"{name}-worker-0", 143)
        job.wait_until(
            "worker 0 is pending", lambda: job.running_workers() == {1, 2} and 0 in job.pods()
        )

        job.scale(2)

        job.wait_until_running({1, 2})
        job.check_holds(
            "running workers are not disturbed", lambda: job.running_workers() == {1, 2}
        )
    finally:
        kubelet.cordon(on=False)


@pytest.mark.known_upstream_failure("its indices are always 0 to replicas - 1")
def test_scale_out_fills_the_lowest_free_index(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})
    kubelet.cordon(on=True)
    try:
        kubelet.end(f"{name}-worker-0", 143)
        job.wait_until(
            "worker 0 is pending", lambda: job.running_workers() == {1} and 0 in job.pods()
        )
        job.scale(1)
        job.wait_until_running({1})
    finally:
        kubelet.cordon(on=False)

    job.scale(2)

    job.wait_until_running({0, 1})


@pytest.mark.known_upstream_failure(
    "it recreates the worker that is being removed, then deletes it"
)
def test_a_removed_worker_is_not_created_again(job_namespace: JobNamespace, name: str) -> None:
    job = job_namespace.job(name, replicas=3)
    job.wait_until_running({0, 1, 2})

    job.scale(2)
    job.wait_until_running({0, 1})

    def creation_messages() -> list[str]:
        return [
            event.message
            for event in job.events()
            if "created" in event.message and "worker-2" in event.message
        ]

    job.wait_until("its creation is reported", creation_messages)
    assert len(creation_messages()) == 1


def test_quick_scaling_in_and_out_ends_with_the_configured_replicas(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=3)
    job.wait_until_running({0, 1, 2})

    for replicas in (1, 4, 2, 3):
        job.scale(replicas)

    job.wait_until("three workers run", lambda: len(job.running_workers()) == 3 == len(job.pods()))
    job.check_holds("three workers run", lambda: len(job.running_workers()) == 3 == len(job.pods()))


@pytest.mark.known_upstream_failure("it has no condition Suspended")
def test_zero_replicas_suspend_the_job_and_more_resume_it(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})

    job.scale(0)

    job.wait_until(
        "the job is suspended",
        lambda: job.is_true("Suspended") and not job.pods() and not job.services(),
    )
    assert not job.is_true("Running")

    job.scale(2)

    job.wait_until_running({0, 1})
    job.wait_until("the job runs", lambda: job.is_true("Running") and not job.is_true("Suspended"))
    assert not job.is_true("Restarting"), "a removed worker is not a lost worker"


@pytest.mark.known_upstream_failure("it has no RunPolicy.suspend")
def test_a_job_created_suspended_has_no_workers(job_namespace: JobNamespace, name: str) -> None:
    job = job_namespace.job(name, replicas=2, run_policy={"suspend": True})
    job.wait_until("the job is suspended", lambda: job.is_true("Suspended"))
    job.check_holds("there are no pods", lambda: not job.pods())

    job.patch({"RunPolicy": {"suspend": False}})

    job.wait_until_running({0, 1})


def test_widened_bounds_reach_new_workers(job_namespace: JobNamespace, name: str) -> None:
    job = job_namespace.job(name, replicas=1, min_replicas=1, max_replicas=2)
    job.wait_until_running({0})
    uids_before = job.uids()

    job.patch({"maxReplicas": 5, "replicaSpecs": {"Worker": {"replicas": 2}}})

    job.wait_until_running({0, 1})
    assert job.uids()[0] == uids_before[0]
    pods = job.pods()
    assert "--nnodes=1:2" in pods[0].spec.containers[0].args
    assert "--nnodes=1:5" in pods[1].spec.containers[0].args


@pytest.mark.known_upstream_failure("it ignores changes of minReplicas and maxReplicas")
def test_changed_bounds_reach_running_workers_without_replacing_them(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=2, min_replicas=1, max_replicas=2)
    job.wait_until_running({0, 1})
    uids_before = job.uids()
    assert set(job.annotated_bounds().values()) == {"1:2"}

    job.patch({"maxReplicas": 4})
    job.wait_until(
        "the workers have the new bounds", lambda: set(job.annotated_bounds().values()) == {"1:4"}
    )
    job.patch({"minReplicas": 2})
    job.wait_until(
        "the workers have the new bounds", lambda: set(job.annotated_bounds().values()) == {"2:4"}
    )

    job.check_holds(
        "the same workers run",
        lambda: job.uids() == uids_before and job.running_workers() == {0, 1},
    )


POD_WITH_ANNOTATIONS = {
    "volumes": [
        {
            "name": "pod-info",
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
            "volumeMounts": [{"name": "pod-info", "mountPath": "/etc/everstep"}],
        }
    ],
}


@pytest.mark.known_upstream_failure("it ignores changes of minReplicas and maxReplicas")
@pytest.mark.only_on("pods", "only a real kubelet projects annotations into files")
def test_a_running_worker_reads_bounds_that_changed(
    job_namespace: JobNamespace, kubelet: RealPods, name: str
) -> None:
    job = job_namespace.job(name, replicas=1, max_replicas=2, pod=POD_WITH_ANNOTATIONS)
    job.wait_until_running({0})
    uids_before, path = job.uids(), "/etc/everstep/nnodes"
    job.wait_until("it reads its bounds", lambda: kubelet.read(f"{name}-worker-0", path) == "1:2")

    job.patch({"maxReplicas": 4})

    job.wait_until(
        "it reads the new bounds", lambda: kubelet.read(f"{name}-worker-0", path) == "1:4"
    )
    assert job.uids() == uids_before
