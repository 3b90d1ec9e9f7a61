"""Specs, pods and nodes that are parsed from JSON, and the causes of exits."""

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.api import read_spec
from controller.exit_history import ExitCause, cause_of, delay_seconds, update_records
from controller.objects import Pod, read_node, read_pod, rendezvous_of
from controller.pods import render_pod
from tests.controller.builders import NOW, failed_pod, job, spec

CREATED = "2026-01-01T12:00:00Z"


def pod_json(
    phase: str,
    terminated: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    metadata_fields = {
        "name": "job-worker-0",
        "uid": "u",
        "creationTimestamp": CREATED,
        "labels": {"replica-index": "0"},
    }
    container = {
        "name": "elasticjob-worker",
        "state": {"terminated": terminated} if terminated else {},
    }
    return {
        "metadata": {**metadata_fields, **metadata},
        "spec": {},
        "status": {"phase": phase, "containerStatuses": [container], **(status or {})},
    }


def test_missing_bounds_default_to_the_number_of_replicas() -> None:
    job_spec, errors = read_spec(spec(2, min_replicas=None, max_replicas=None), "job")

    assert errors == ()
    assert job_spec is not None
    assert (job_spec.min_replicas, job_spec.max_replicas) == (2, 2)


def spec_with_args(args: object) -> dict[str, Any]:
    body = deepcopy(spec())
    body["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] = args
    return body


@pytest.mark.parametrize("args", [None, [], ["train.py"]])
def test_the_args_of_a_container_may_be_missing_or_a_list(args: object) -> None:
    assert read_spec(spec_with_args(args), "job")[1] == ()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (spec(None), "replicas is None"),
        (spec(True), "replicas is True"),
        (spec(-1), "replicas is -1"),
        (spec(6), "maxReplicas (5)"),
        (spec(1, min_replicas=2), "minReplicas (2)"),
        (
            spec(1, min_replicas=3, max_replicas=2),
            "spec.minReplicas (3) is more than spec.maxReplicas (2)",
        ),
        (spec(policy="Sometimes"), "'Sometimes'; use one of"),
        (spec(backoffLimit=-1), "backoffLimit is -1"),
        (spec(cleanPodPolicy="Some"), "cleanPodPolicy is 'Some'"),
        ({**spec(), "rdzvEndpoint": ""}, "rdzvEndpoint is empty"),
        (
            {"rdzvEndpoint": "e", "replicaSpecs": {"Worker": {"replicas": 1}}},
            "no container named elasticjob-worker",
        ),
        (spec_with_args("train.py"), "the args 'train.py' in the container 'elasticjob-worker'"),
        ({}, "replicas is None"),
    ],
)
def test_a_validation_error_has_the_value(body: Any, expected: str) -> None:
    job_spec, errors = read_spec(body, "job")

    assert job_spec is None
    assert any(expected in error for error in errors), errors


def test_all_validation_errors_are_reported_together() -> None:
    assert len(read_spec(spec(-1, policy="x", backoffLimit=-1), "job")[1]) == 3


@pytest.mark.parametrize("name", ["1job", "a.b", "j" * 60])
def test_a_name_that_is_not_valid_for_a_service_is_refused(name: str) -> None:
    assert "metadata.name" in read_spec(spec(), name)[1][0]


def test_zero_replicas_are_valid_with_a_lower_bound() -> None:
    assert read_spec(spec(0, min_replicas=2), "job")[1] == ()


def test_the_template_of_the_user_is_not_changed() -> None:
    elastic_job = job()

    assert elastic_job.spec is not None
    assert (
        render_pod(elastic_job, elastic_job.spec, 0)["spec"]["containers"][0]["args"][-1]
        == "train.py"
    )
    assert elastic_job.spec.template["spec"]["containers"][0]["args"] == ["train.py"]


def test_restart_policy_always_becomes_on_failure() -> None:
    elastic_job = job(spec(policy="Always"))

    assert elastic_job.spec is not None
    assert render_pod(elastic_job, elastic_job.spec, 0)["spec"]["restartPolicy"] == "OnFailure"


def test_a_pod_that_finished_before_its_deletion_counts_as_finished() -> None:
    terminated = {"exitCode": 0, "finishedAt": "2026-01-01T12:00:09Z"}
    deletion: dict[str, Any] = {
        "deletionTimestamp": "2026-01-01T12:00:40Z",
        "deletionGracePeriodSeconds": 30,
    }

    assert read_pod(pod_json("Succeeded", terminated, **deletion)).phase == "Succeeded"
    after_deletion = {**terminated, "finishedAt": "2026-01-01T12:00:11Z"}
    assert read_pod(pod_json("Succeeded", after_deletion, **deletion)).phase == "Failed"


DISRUPTION = {"type": "DisruptionTarget", "status": "True"}


def test_a_failed_sidecar_does_not_fail_a_finished_worker() -> None:
    assert read_pod(pod_json("Failed", {"exitCode": 0})).phase == "Succeeded"


@pytest.mark.parametrize(
    ("code", "restart_policy", "phase"),
    [
        (0, "Never", "Succeeded"),
        (0, "OnFailure", "Succeeded"),
        (1, "Never", "Failed"),
        (1, "OnFailure", "Running"),
    ],
)
def test_a_worker_has_ended_although_a_sidecar_still_runs(
    code: int, restart_policy: str, phase: str
) -> None:
    source = pod_json("Running", {"exitCode": code, "startedAt": CREATED})
    source["spec"] = {"restartPolicy": restart_policy, "nodeName": "n0"}

    pod = read_pod(source)

    assert (pod.phase, pod.lingering) == (phase, phase != "Running")
    assert pod.occupies_machine, "its machine is still billed"


def test_a_disrupted_worker_that_exited_with_0_beside_a_sidecar_has_not_finished() -> None:
    source = pod_json("Running", {"exitCode": 0}, {"conditions": [DISRUPTION]})
    source["spec"] = {"restartPolicy": "Never"}

    assert read_pod(source).phase == "Failed"


def init_status(state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the status of a pod whose training container waits for its second init container."""
    done = {"name": "done", "state": {"terminated": {"exitCode": 0}}}
    worker = {"name": "elasticjob-worker", "state": {"waiting": {"reason": "PodInitializing"}}}
    return {
        "initContainerStatuses": [done, {"name": "prepare", "state": state, **fields}],
        "containerStatuses": [worker],
    }


def test_an_init_container_that_fails_is_a_failure_of_the_worker() -> None:
    """Otherwise a worker that can never start is replaced without end."""
    terminated = {"exitCode": 1, "startedAt": CREATED, "finishedAt": "2026-01-01T13:00:00Z"}
    pod = read_pod(pod_json("Failed", status=init_status({"terminated": terminated})))

    records, (worker_exit,) = update_records({}, [pod], frozenset(), NOW)

    assert (records[0].failures, records[0].exit_code) == (1, 1), (
        "the duration of an init container does not count as a steady run of the worker"
    )
    assert worker_exit.message == (
        "job-worker-0 ended with exit code 1 in the init container prepare"
    )


def test_the_reason_for_which_an_init_container_does_not_start_is_reported() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    crash = {"waiting": {"reason": "CrashLoopBackOff"}}
    restarts = {"restartCount": 7, "lastState": {"terminated": {"exitCode": 3}}}

    pod = read_pod(pod_json("Pending", status=init_status({"waiting": waiting})))
    crash_looping = read_pod(pod_json("Pending", status=init_status(crash, **restarts)))

    assert pod.waiting_reason == "ImagePullBackOff: no such image"
    assert (crash_looping.crash_looping, crash_looping.exit_code) == (True, 3)
    assert (crash_looping.restarts, crash_looping.init_container) == (7, "prepare")


def test_a_running_init_container_and_a_failed_sidecar_of_a_running_worker_are_no_failures() -> (
    None
):
    starting = read_pod(pod_json("Pending", status=init_status({"running": {}})))
    sidecar = {"name": "proxy", "state": {"terminated": {"exitCode": 1}}}
    running = {"name": "elasticjob-worker", "state": {"running": {"startedAt": CREATED}}}
    status = {"initContainerStatuses": [sidecar], "containerStatuses": [running]}
    trainer = read_pod(pod_json("Running", status=status))

    assert (starting.exit_code, starting.init_container, starting.waiting_reason) == (None, "", "")
    assert (trainer.exit_code, trainer.init_container, trainer.started) == (None, "", NOW)


@pytest.mark.parametrize("status", [{"reason": "Evicted"}, {"conditions": [DISRUPTION]}])
def test_a_disrupted_worker_has_not_finished_although_it_exited_with_0(
    status: dict[str, Any],
) -> None:
    pod = read_pod(pod_json("Failed", {"exitCode": 0}, status))

    assert (pod.phase, pod.disrupted) == ("Failed", True)


@pytest.mark.parametrize(
    ("pod", "cause"),
    [
        (failed_pod(0, 1), ExitCause.FAILED),
        (failed_pod(0, 139), ExitCause.FAILED),
        (failed_pod(0, 143), ExitCause.SIGNALLED),
        (failed_pod(0, 138), ExitCause.SIGNALLED),
        (failed_pod(0, 137, out_of_memory=True), ExitCause.FAILED),
        (failed_pod(0, 137, disrupted=True), ExitCause.DISRUPTED),
        (failed_pod(0, None), ExitCause.DISRUPTED),
        (failed_pod(0, 1, terminating=True), ExitCause.DELETED),
    ],
)
def test_only_an_exit_of_the_trainer_itself_is_a_failure(pod: Pod, cause: ExitCause) -> None:
    assert cause_of(pod) is cause


def test_back_off_delays_double_up_to_five_minutes() -> None:
    assert [delay_seconds(exits) for exits in (0, 1, 2, 3, 8, 9, 99)] == [0, 2, 4, 8, 256, 300, 300]


def node_json(ready: str, *taints: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": CREATED}
    return {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]},
        "status": {"conditions": [condition]},
    }


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_has_been_unready_since_its_condition_changed(ready: str) -> None:
    assert read_node(node_json(ready)).unready_since == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert read_node(node_json("True")).unready_since is None


def test_a_node_with_the_out_of_service_taint_is_out_of_service() -> None:
    assert read_node(node_json("True", "node.kubernetes.io/out-of-service")).out_of_service
    assert not read_node(node_json("False", "node.kubernetes.io/unreachable")).out_of_service


@pytest.mark.parametrize(
    ("arguments", "rendezvous"),
    [
        ([], {}),
        (["--rdzv_endpoint=a:1", "--rdzv_id=x"], {"endpoint": "a:1", "id": "x"}),
        (["--rdzv-endpoint", "a:1", "train.py"], {"endpoint": "a:1"}),
        (["--rdzv_endpoint=a:1", "--rdzv-endpoint=b:1"], {"endpoint": "b:1"}),
        (["--rdzv_conf=protocol=https,etcd_prefix=p,cert=c"], {"etcd_prefix": "p"}),
        (["--rdzv_conf=protocol=https", "--nnodes=1:2"], {}),
    ],
)
def test_the_rendezvous_of_a_worker_is_read_from_its_arguments(
    arguments: list[str], rendezvous: dict[str, str]
) -> None:
    assert dict(rendezvous_of(arguments)) == rendezvous
