"""What is asked for and what is seen, read from JSON."""

import pytest

from controller.api import read_spec
from controller.ledger import Cause, cause_of, delay_seconds
from controller.observed import read_node, read_pod
from controller.pods import render_pod
from tests.controller.unit.worlds import failed, job, spec

CREATED = "2026-01-01T12:00:00Z"


def seen(phase: str, ended: dict | None = None, status: dict | None = None, **metadata) -> dict:
    named = {
        "name": "job-worker-0",
        "uid": "u",
        "creationTimestamp": CREATED,
        "labels": {"replica-index": "0"},
    }
    container = {"name": "elasticjob-worker", "state": {"terminated": ended} if ended else {}}
    return {
        "metadata": {**named, **metadata},
        "spec": {},
        "status": {"phase": phase, "containerStatuses": [container], **(status or {})},
    }


def test_bounds_that_are_left_out_are_the_number_of_replicas():
    read, faults = read_spec(spec(2, least=None, most=None), "job")

    assert faults == ()
    assert (read.min_replicas, read.max_replicas) == (2, 2)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (spec(None), "replicas is None"),
        (spec(True), "replicas is True"),
        (spec(-1), "replicas is -1"),
        (spec(6), "maxReplicas (5)"),
        (spec(1, least=2), "minReplicas (2)"),
        (spec(1, least=3, most=2), "spec.minReplicas (3) is more than spec.maxReplicas (2)"),
        (spec(policy="Sometimes"), "'Sometimes'; use one of"),
        (spec(backoffLimit=-1), "backoffLimit is -1"),
        (spec(cleanPodPolicy="Some"), "cleanPodPolicy is 'Some'"),
        ({**spec(), "rdzvEndpoint": ""}, "rdzvEndpoint is empty"),
        (
            {"rdzvEndpoint": "e", "replicaSpecs": {"Worker": {"replicas": 1}}},
            "no container named elasticjob-worker",
        ),
        ({}, "replicas is None"),
    ],
)
def test_a_fault_is_named_with_its_value(asked, named):
    read, faults = read_spec(asked, "job")

    assert read is None
    assert any(named in fault for fault in faults), faults


def test_all_faults_are_told_at_once():
    assert len(read_spec(spec(-1, policy="x", backoffLimit=-1), "job")[1]) == 3


@pytest.mark.parametrize("name", ["1job", "a.b", "j" * 60])
def test_a_name_that_no_service_can_have_is_refused(name):
    assert "metadata.name" in read_spec(spec(), name)[1][0]


def test_no_replicas_are_no_fault_beside_a_lower_bound():
    assert read_spec(spec(0, least=2), "job")[1] == ()


def test_the_users_template_is_left_as_it_is():
    asked = job()

    assert render_pod(asked, asked.spec, 0)["spec"]["containers"][0]["args"][-1] == "train.py"
    assert asked.spec.template["spec"]["containers"][0]["args"] == ["train.py"]


def test_always_would_never_end_and_becomes_on_failure():
    asked = job(spec(policy="Always"))

    assert render_pod(asked, asked.spec, 0)["spec"]["restartPolicy"] == "OnFailure"


def test_a_pod_that_finished_before_it_was_asked_to_go_has_finished():
    ended = {"exitCode": 0, "finishedAt": "2026-01-01T12:00:09Z"}
    asked_at_10 = {"deletionTimestamp": "2026-01-01T12:00:40Z", "deletionGracePeriodSeconds": 30}

    assert read_pod(seen("Succeeded", ended, **asked_at_10)).phase == "Succeeded"
    late = {**ended, "finishedAt": "2026-01-01T12:00:11Z"}
    assert read_pod(seen("Succeeded", late, **asked_at_10)).phase == "Failed"


def test_a_sidecar_that_fails_does_not_undo_a_finished_training():
    assert read_pod(seen("Failed", {"exitCode": 0})).phase == "Succeeded"
    assert read_pod(seen("Failed", {"exitCode": 0}, {"reason": "Evicted"})).phase == "Failed"


@pytest.mark.parametrize(
    ("pod", "cause"),
    [
        (failed(0, 1), Cause.FAILED),
        (failed(0, 139), Cause.FAILED),
        (failed(0, 143), Cause.SIGNALLED),
        (failed(0, 138), Cause.SIGNALLED),
        (failed(0, 137, out_of_memory=True), Cause.FAILED),
        (failed(0, 137, disrupted=True), Cause.DISRUPTED),
        (failed(0, None), Cause.DISRUPTED),
        (failed(0, 1, deleting=True), Cause.DELETED),
    ],
)
def test_only_the_trainers_own_end_is_a_failure(pod, cause):
    assert cause_of(pod) is cause


def test_pauses_double_up_to_five_minutes():
    assert [delay_seconds(ends) for ends in (0, 1, 2, 3, 8, 9, 99)] == [0, 2, 4, 8, 256, 300, 300]


def test_a_nodes_health_is_read_from_its_condition_and_taints():
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": CREATED}
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    node = {
        "metadata": {"name": "n"},
        "spec": {"taints": [taint]},
        "status": {"conditions": [ready]},
    }

    assert read_node(node).unready_since is not None
    assert read_node(node).out_of_service
