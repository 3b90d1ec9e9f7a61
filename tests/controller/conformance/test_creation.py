"""The pods, Services and status of a new job, as manifests for the upstream controller rely on them."""

import pytest

from tests.controller.conformance.job_namespace import JobNamespace
from tests.controller.conformance.real_pods import Kubelet


def test_each_worker_has_a_pod_and_a_headless_service_of_the_same_name(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=3)
    job.wait_until_running({0, 1, 2})

    names = {f"{name}-worker-{index}" for index in range(3)}
    assert {pod.metadata.name for pod in job.pods().values()} == names
    assert {service.metadata.name for service in job.services()} == names
    for service in job.services():
        assert service.spec.cluster_ip == "None"
        assert service.spec.selector == service.metadata.labels, (
            "the name must resolve to this worker only"
        )


def test_pods_have_the_labels_that_select_them(job_namespace: JobNamespace, name: str) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until_running({0, 1})

    for index, pod in job.pods().items():
        assert pod.metadata.labels == {
            "group-name": "elastic.pytorch.org",
            "job-name": name,
            "replica-type": "worker",
            "replica-index": str(index),
        }


def test_the_job_is_the_controlling_owner_of_its_objects(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=1)
    job.wait_until_running({0})

    uid = job.read()["metadata"]["uid"]
    for child in [*job.pods().values(), *job.services()]:
        (owner,) = child.metadata.owner_references
        assert (owner.kind, owner.name, owner.uid) == ("ElasticJob", name, uid)
        assert owner.controller
        assert owner.block_owner_deletion


def test_rendezvous_arguments_come_first_in_every_container(
    job_namespace: JobNamespace, name: str
) -> None:
    sidecar = {"name": "sidecar", "image": "localhost/everstep/none:local", "args": ["--watch"]}
    worker = {
        "name": "elasticjob-worker",
        "image": "localhost/everstep/none:local",
        "args": ["--nproc_per_node=1", "train.py"],
    }
    job = job_namespace.job(
        name, replicas=2, min_replicas=1, max_replicas=4, pod={"containers": [worker, sidecar]}
    )
    job.wait_until_running({0, 1})

    arguments = [
        "--rdzv_backend=etcd",
        "--rdzv_endpoint=etcd-client:2379",
        f"--rdzv_id={name}",
        "--nnodes=1:4",
    ]
    first, second = job.pods()[1].spec.containers
    assert first.args == [*arguments, "--nproc_per_node=1", "train.py"]
    assert second.args == [*arguments, "--watch"]


def test_missing_bounds_default_to_the_number_of_replicas(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=2, min_replicas=None, max_replicas=None)
    job.wait_until_running({0, 1})

    assert "--nnodes=2:2" in job.pods()[0].spec.containers[0].args


def test_under_exit_code_the_kubelet_does_not_restart_workers(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=1, restart_policy="ExitCode")
    job.wait_until_running({0})

    assert job.pods()[0].spec.restart_policy == "Never"


def test_under_on_failure_the_kubelet_restarts_workers(
    job_namespace: JobNamespace, name: str
) -> None:
    job = job_namespace.job(name, replicas=1, restart_policy="OnFailure")
    job.wait_until_running({0})

    assert job.pods()[0].spec.restart_policy == "OnFailure"


@pytest.mark.known_upstream_failure(
    "its pod types are Kubernetes 1.15's and drop every newer field"
)
def test_a_pod_keeps_fields_that_are_newer_than_the_upstream_controller(
    job_namespace: JobNamespace, name: str
) -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    profile = {"seccompProfile": {"type": "RuntimeDefault"}}
    job = job_namespace.job(
        name,
        replicas=1,
        pod={"topologySpreadConstraints": [constraint], "securityContext": profile},
    )
    job.wait_until_running({0})

    spec = job.pods()[0].spec
    assert spec.topology_spread_constraints[0].topology_key == "kubernetes.io/hostname"
    assert spec.security_context.seccomp_profile.type == "RuntimeDefault"


def test_the_status_counts_running_workers(job_namespace: JobNamespace, name: str) -> None:
    job = job_namespace.job(name, replicas=3)
    job.wait_until_running({0, 1, 2})

    job.wait_until("three workers are active", lambda: job.count("active") == 3)
    job.wait_until("the job runs", lambda: job.is_true("Running"))
    assert not job.is_true("Succeeded")
    assert not job.is_true("Failed")


@pytest.mark.known_upstream_failure(
    "it never sets startTime, and reports Running while no worker runs"
)
def test_a_job_with_pending_workers_is_not_running_and_reports_the_reason(
    job_namespace: JobNamespace, kubelet: Kubelet, name: str
) -> None:
    kubelet.cordon(on=True)
    try:
        job = job_namespace.job(name, replicas=1)
        job.wait_until(
            "there is a reason",
            lambda: "Unschedulable" in job.conditions().get("Running", {}).get("message", ""),
        )
        assert not job.is_true("Running")
        assert job.is_true("Created")
        assert "startTime" in job.read()["status"]
    finally:
        kubelet.cordon(on=False)
    job.wait_until("the job runs", lambda: job.is_true("Running"))


def test_a_job_without_changes_is_not_written(job_namespace: JobNamespace, name: str) -> None:
    job = job_namespace.job(name, replicas=2)
    job.wait_until("the job runs", lambda: job.count("active") == 2)

    version = job.read()["metadata"]["resourceVersion"]

    job.check_holds(
        "the job is not written", lambda: job.read()["metadata"]["resourceVersion"] == version, 2
    )
