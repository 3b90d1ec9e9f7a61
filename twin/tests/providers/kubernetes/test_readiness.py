"""Readiness of each kind: a table of objects as a kubelet or controller would write them."""

from typing import Any

import pytest
from cloudtwin.providers.kubernetes.readiness import Failed, Ready, Related, Waiting, assess
from cloudtwin.providers.protocol.values import Object

COUNTS = {
    "observedGeneration": 1,
    "replicas": 2,
    "updatedReplicas": 2,
    "readyReplicas": 2,
    "availableReplicas": 2,
}


def live_object(
    api_version: str,
    kind: str,
    spec: Object | None = None,
    status: Object | None = None,
    generation: int = 1,
) -> Object:
    return {
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "n", "generation": generation},
        "spec": spec or {}, "status": status or {},
    }  # fmt: skip


def conditions(**states: object) -> Object:
    """Return conditions: Running=True, or Failed=("BackoffLimitExceeded", "too often")."""
    return {
        "conditions": [
            {"type": kind, "status": "True", "reason": state[0], "message": state[1]}
            if isinstance(state, tuple)
            else {"type": kind, "status": str(state)}
            for kind, state in states.items()
        ]
    }


def pod(state: Object | None = None, ready: bool = True, **status: Any) -> Object:
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "status": {"containerStatuses": [{"name": "c", "state": state or {}, "ready": ready}], **status},
    }  # fmt: skip


JOB = ("batch/v1", "Job", {"completions": 2})
DEPLOYMENT = ("apps/v1", "Deployment", {"replicas": 2})
STATEFUL = ("apps/v1", "StatefulSet", {"replicas": 2})
DAEMON: tuple[str, str, Object] = ("apps/v1", "DaemonSet", {})
DEFINITION: tuple[str, str, Object] = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", {})


@pytest.mark.parametrize(
    ("observed", "verdict"),
    [
        (live_object("v1", "ConfigMap"), Ready),
        (live_object("v1", "Secret"), Ready),
        ({**live_object("v1", "Secret"), "type": "kubernetes.io/service-account-token"}, Waiting),
        (live_object("v1", "ResourceQuota", {"hard": {"pods": "2"}}), Waiting),
        (live_object("v1", "ResourceQuota", {"hard": {"pods": "2"}}, {"hard": {"pods": "2"}}), Ready),
        (live_object("v1", "ReplicationController", {"replicas": 2}, {"availableReplicas": 1}), Waiting),
        (live_object("v1", "ReplicationController", {"replicas": 2}, COUNTS), Ready),
        (live_object("networking.k8s.io/v1", "Ingress"), Waiting),
        (live_object("networking.k8s.io/v1", "Ingress", {}, {"loadBalancer": {"ingress": [{"ip": "::1"}]}}), Ready),
        (live_object("example.com/v1", "Deployment", {"replicas": 2}), Ready),  # another group with the same kind
        (live_object(*DEPLOYMENT, COUNTS), Ready),
        (live_object(*DEPLOYMENT, COUNTS, generation=2), Waiting),  # its controller has not observed the change
        (live_object(*DEPLOYMENT, {**COUNTS, "availableReplicas": 1}), Waiting),
        (live_object(*DEPLOYMENT, {**COUNTS, "updatedReplicas": 1}), Waiting),
        (live_object(*DEPLOYMENT, {**COUNTS, "replicas": 3}), Waiting),  # an old pod is still there
        (live_object("apps/v1", "Deployment", {"replicas": 0}, {"observedGeneration": 1}), Ready),
        (live_object(*DEPLOYMENT, {**COUNTS, "availableReplicas": 0, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}), Failed),
        (live_object(*STATEFUL, COUNTS), Ready),
        (live_object(*STATEFUL, {**COUNTS, "readyReplicas": 1}), Waiting),
        (live_object(*STATEFUL, {**COUNTS, "updatedReplicas": 0}), Waiting),
        (live_object("apps/v1", "StatefulSet", {"replicas": 2, "updateStrategy": {"type": "OnDelete"}},
              {**COUNTS, "updatedReplicas": 0}), Ready),
        (live_object("apps/v1", "StatefulSet", {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}},
              {**COUNTS, "updatedReplicas": 1}), Ready),
        (live_object(*DAEMON, {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberAvailable": 2,
                        "updatedNumberScheduled": 2}), Ready),
        (live_object(*DAEMON, {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberAvailable": 1,
                        "updatedNumberScheduled": 2}), Waiting),
        (live_object(*DAEMON, {"observedGeneration": 1, "desiredNumberScheduled": 0}), Ready),  # it matches no node
        (live_object(*JOB), Waiting),
        (live_object(*JOB, {"succeeded": 1, "active": 1}), Waiting),
        (live_object(*JOB, conditions(Complete=True)), Ready),
        (live_object(*JOB, conditions(Failed=("BackoffLimitExceeded", "too often"))), Failed),
        (live_object("batch/v1", "Job", {"suspend": True}), Ready),
        (live_object("v1", "Pod", {}, {"phase": "Pending"}), Waiting),
        (live_object("v1", "Pod", {}, {"phase": "Running", **conditions(Ready=True)}), Ready),
        (live_object("v1", "Pod", {}, {"phase": "Running", **conditions(Ready=False)}), Waiting),
        (live_object("v1", "Pod", {}, {"phase": "Succeeded"}), Ready),
        (live_object("v1", "Pod", {}, {"phase": "Failed", "reason": "Evicted"}), Failed),
        (live_object("v1", "PersistentVolumeClaim", {}, {"phase": "Bound"}), Ready),
        (live_object("v1", "PersistentVolumeClaim", {}, {"phase": "Pending"}), Waiting),
        (live_object("v1", "PersistentVolumeClaim", {}, {"phase": "Lost"}), Failed),
        (live_object("v1", "PersistentVolume", {}, {"phase": "Available"}), Ready),
        (live_object("v1", "PersistentVolume", {}, {"phase": "Failed", "message": "no"}), Failed),
        (live_object("v1", "Service", {"clusterIP": "None", "selector": {"a": "b"}}), Ready),
        (live_object("v1", "Service", {"type": "ExternalName", "externalName": "e"}), Ready),
        (live_object("v1", "Service", {"clusterIP": "10.0.0.1"}), Ready),  # endpoints set by clients
        (live_object("v1", "Service", {"clusterIP": "10.0.0.1", "selector": {"a": "b"}}), Waiting),
        (live_object("v1", "Service", {"type": "LoadBalancer"}), Waiting),
        (live_object("v1", "Service", {"type": "LoadBalancer"},
                     {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}), Ready),
        (live_object(*DEFINITION, conditions(NamesAccepted=True)), Waiting),
        (live_object(*DEFINITION, conditions(NamesAccepted=True, Established=True)), Ready),
        (live_object(*DEFINITION, conditions(NamesAccepted=False)), Failed),
        (live_object("v1", "Namespace", {}, {"phase": "Active"}), Ready),
        (live_object("v1", "Namespace", {}, {"phase": "Terminating"}), Waiting),
    ],
)  # fmt: skip
def test_an_object_is_ready_by_the_rule_of_its_kind(observed: Object, verdict: type) -> None:
    assert isinstance(assess(observed), verdict)


def test_a_claim_that_waits_for_its_first_consumer_counts_as_ready() -> None:
    claim = live_object(
        "v1", "PersistentVolumeClaim", {"storageClassName": "s"}, {"phase": "Pending"}
    )

    storage_class = {"volumeBindingMode": "WaitForFirstConsumer"}
    assert assess(claim, Related(storage_class=storage_class)) == Ready(), (
        "the pod that uses the claim may depend on it, and would never be created"
    )
    assert isinstance(
        assess(claim, Related(storage_class={"volumeBindingMode": "Immediate"})), Waiting
    )


def test_a_service_is_ready_with_one_ready_endpoint() -> None:
    service = live_object("v1", "Service", {"selector": {"a": "b"}})

    def slices(ready: bool) -> Related:
        return Related(endpoint_slices=[{"endpoints": [{"conditions": {"ready": ready}}]}])

    assert assess(service, slices(True)) == Ready()
    assert isinstance(assess(service, slices(False)), Waiting)
    assert isinstance(assess(service, Related(endpoint_slices=[{"endpoints": None}])), Waiting)


def test_the_worst_pod_is_named_and_a_pod_that_cannot_start_is_stuck() -> None:
    creating_pod = pod({"waiting": {"reason": "ContainerCreating"}})
    pod_without_image = pod(
        {"waiting": {"reason": "ErrImageNeverPull", "message": "image x is not present"}}
    )
    crashed_pod = pod({"terminated": {"exitCode": 3, "reason": "Error"}})
    unschedulable_pod = pod(
        conditions=[
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
        ]
    )

    def verdict(*pods: Object) -> Waiting:
        stuck = assess(
            live_object(*DEPLOYMENT, {**COUNTS, "availableReplicas": 0}), Related(pods=pods)
        )
        assert isinstance(stuck, Waiting)
        return stuck

    assert verdict(creating_pod) == Waiting("0 of 2 pods are available, 2 are up to date")
    stuck = verdict(creating_pod, crashed_pod, pod_without_image)
    assert stuck.stuck
    assert "pod p, container c: ErrImageNeverPull: image x is not present" in stuck.reason
    assert "exited with 3 (Error)" in verdict(crashed_pod).reason
    assert "0/3 nodes are available" in verdict(unschedulable_pod).reason
    assert not verdict(unschedulable_pod).stuck, "a node may still be added"


@pytest.mark.parametrize(
    ("kind", "spec", "status", "text"),
    [
        (
            "DaemonSet", {},
            {"desiredNumberScheduled": 3, "numberAvailable": 3, "updatedNumberScheduled": 1},
            "3 of 3 pods are available, 1 are up to date",
        ),
        (
            "StatefulSet", {"replicas": 3}, {"readyReplicas": 3, "updatedReplicas": 1},
            "3 of 3 pods are ready, 1 are up to date",
        ),
        (
            "StatefulSet", {"replicas": 3, "updateStrategy": {"type": "OnDelete"}}, {"readyReplicas": 1},
            "1 of 3 pods are ready",
        ),
    ],
)  # fmt: skip
def test_only_a_rolling_update_is_waited_for_with_the_number_of_updated_pods(
    kind: str, spec: Object, status: Object, text: str
) -> None:
    live = live_object("apps/v1", kind, spec, {"observedGeneration": 1, **status})

    assert assess(live) == Waiting(text)


def test_a_failure_has_its_reason() -> None:
    job = live_object(
        *JOB, conditions(Failed=("BackoffLimitExceeded", "Job has reached the limit"))
    )

    verdict = assess(job, Related(pods=[pod({"terminated": {"exitCode": 1, "reason": "Error"}})]))
    assert isinstance(verdict, Failed)
    assert "BackoffLimitExceeded: Job has reached the limit" in verdict.reason
    assert "exited with 1" in verdict.reason


def widget(wait_for: str, **states: object) -> Object:
    """Return a custom resource that is ready once the condition of its annotation is met."""
    resource = live_object("example.com/v1", "Widget", {}, conditions(**states))
    resource["metadata"]["annotations"] = {"pulumi.com/waitFor": wait_for}
    return resource


def test_an_annotation_makes_a_custom_resource_wait() -> None:
    assert isinstance(assess(widget("condition=Running")), Waiting)
    assert assess(widget("condition=Running", Running=True)) == Ready()


def test_an_annotation_takes_precedence_over_the_rule_of_the_kind() -> None:
    job = live_object(*JOB)
    job["metadata"]["annotations"] = {"pulumi.com/waitFor": "jsonpath={.kind}"}

    assert assess(job) == Ready(), "the Job is not complete, and the user does not wait for that"


def test_a_custom_resource_that_waits_names_its_worst_pod() -> None:
    pod_without_image = pod({"waiting": {"reason": "ErrImagePull", "message": "no such image"}})

    verdict = assess(widget("condition=Running"), Related(pods=[pod_without_image]))
    assert isinstance(verdict, Waiting)
    assert verdict.stuck
    assert "no condition Running yet; pod p, container c: ErrImagePull" in verdict.reason
