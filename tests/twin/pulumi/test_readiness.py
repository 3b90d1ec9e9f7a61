"""When each kind counts as ready: a table of what a kubelet or controller would have written."""

import pytest

from twin.pulumi.kubernetes.readiness import Failed, Ready, Related, Waiting, assess

COUNTS = {
    "observedGeneration": 1,
    "replicas": 2,
    "updatedReplicas": 2,
    "readyReplicas": 2,
    "availableReplicas": 2,
}


def live(api_version, kind, spec=None, status=None, generation=1):
    return {
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "n", "generation": generation},
        "spec": spec or {}, "status": status or {},
    }  # fmt: skip


def conditions(**states):
    """Write conditions: Running=True, or Failed=("BackoffLimitExceeded", "too often")."""
    return {
        "conditions": [
            {"type": kind, "status": "True", "reason": state[0], "message": state[1]}
            if isinstance(state, tuple)
            else {"type": kind, "status": str(state)}
            for kind, state in states.items()
        ]
    }


def pod(state=None, ready=True, **status):
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "status": {"containerStatuses": [{"name": "c", "state": state or {}, "ready": ready}], **status},
    }  # fmt: skip


JOB = ("batch/v1", "Job", {"completions": 2})
ELASTIC = ("elastic.pytorch.org/v1alpha1", "ElasticJob")
DEPLOYMENT = ("apps/v1", "Deployment", {"replicas": 2})
STATEFUL = ("apps/v1", "StatefulSet", {"replicas": 2})
DAEMON = ("apps/v1", "DaemonSet", {})
DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", {})


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (live("v1", "ConfigMap"), Ready),
        (live("example.com/v1", "Deployment", {"replicas": 2}), Ready),  # somebody else's kind of that name
        (live(*DEPLOYMENT, COUNTS), Ready),
        (live(*DEPLOYMENT, COUNTS, generation=2), Waiting),  # its controller has not seen the change
        (live(*DEPLOYMENT, {**COUNTS, "availableReplicas": 1}), Waiting),
        (live(*DEPLOYMENT, {**COUNTS, "updatedReplicas": 1}), Waiting),
        (live(*DEPLOYMENT, {**COUNTS, "replicas": 3}), Waiting),  # an old pod is still there
        (live("apps/v1", "Deployment", {"replicas": 0}, {"observedGeneration": 1}), Ready),
        (live(*DEPLOYMENT, {**COUNTS, "availableReplicas": 0, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}), Failed),
        (live(*STATEFUL, COUNTS), Ready),
        (live(*STATEFUL, {**COUNTS, "readyReplicas": 1}), Waiting),
        (live(*STATEFUL, {**COUNTS, "updatedReplicas": 0}), Waiting),
        (live("apps/v1", "StatefulSet", {"replicas": 2, "updateStrategy": {"type": "OnDelete"}},
              {**COUNTS, "updatedReplicas": 0}), Ready),
        (live("apps/v1", "StatefulSet", {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}},
              {**COUNTS, "updatedReplicas": 1}), Ready),
        (live(*DAEMON, {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberAvailable": 2,
                        "updatedNumberScheduled": 2}), Ready),
        (live(*DAEMON, {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberAvailable": 1,
                        "updatedNumberScheduled": 2}), Waiting),
        (live(*DAEMON, {"observedGeneration": 1, "desiredNumberScheduled": 0}), Ready),  # no node wants it
        (live("apps/v1", "ReplicaSet", {"replicas": 2}, COUNTS), Ready),
        (live(*JOB), Waiting),
        (live(*JOB, {"succeeded": 1, "active": 1}), Waiting),
        (live(*JOB, conditions(Complete=True)), Ready),
        (live(*JOB, conditions(Failed=("BackoffLimitExceeded", "too often"))), Failed),
        (live("batch/v1", "Job", {"suspend": True}), Ready),
        (live("v1", "Pod", {}, {"phase": "Pending"}), Waiting),
        (live("v1", "Pod", {}, {"phase": "Running", **conditions(Ready=True)}), Ready),
        (live("v1", "Pod", {}, {"phase": "Running", **conditions(Ready=False)}), Waiting),
        (live("v1", "Pod", {}, {"phase": "Succeeded"}), Ready),
        (live("v1", "Pod", {}, {"phase": "Failed", "reason": "Evicted"}), Failed),
        (live("v1", "PersistentVolumeClaim", {}, {"phase": "Bound"}), Ready),
        (live("v1", "PersistentVolumeClaim", {}, {"phase": "Pending"}), Waiting),
        (live("v1", "PersistentVolumeClaim", {}, {"phase": "Lost"}), Failed),
        (live("v1", "PersistentVolume", {}, {"phase": "Available"}), Ready),
        (live("v1", "PersistentVolume", {}, {"phase": "Failed", "message": "no"}), Failed),
        (live("v1", "Service", {"clusterIP": "None", "selector": {"a": "b"}}), Ready),
        (live("v1", "Service", {"type": "ExternalName", "externalName": "e"}), Ready),
        (live("v1", "Service", {"clusterIP": "10.0.0.1"}), Ready),  # without a selector others write its endpoints
        (live("v1", "Service", {"clusterIP": "10.0.0.1", "selector": {"a": "b"}}), Waiting),
        (live("v1", "Service", {"type": "LoadBalancer"}), Waiting),
        (live("v1", "Service", {"type": "LoadBalancer"}, {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}), Ready),
        (live(*DEFINITION, conditions(NamesAccepted=True)), Waiting),
        (live(*DEFINITION, conditions(NamesAccepted=True, Established=True)), Ready),
        (live(*DEFINITION, conditions(NamesAccepted=False)), Failed),
        (live("v1", "Namespace", {}, {"phase": "Active"}), Ready),
        (live("v1", "Namespace", {}, {"phase": "Terminating"}), Waiting),
        (live(*ELASTIC), Waiting),
        (live(*ELASTIC, {}, conditions(Created=True)), Waiting),
        (live(*ELASTIC, {}, conditions(Created=True, Running=True)), Ready),
        (live(*ELASTIC, {}, conditions(Running=False, Restarting=("WorkersLost", "1 of 3"))), Waiting),
        (live(*ELASTIC, {}, conditions(Running=False, Succeeded=True)), Ready),
        (live(*ELASTIC, {}, conditions(Suspended=True)), Ready),
        (live(*ELASTIC, {}, {"observedGeneration": 1, **conditions(Running=True)}, generation=2), Waiting),
        (live(*ELASTIC, {}, conditions(Failed=("BackoffLimitExceeded", "too often"))), Failed),
    ],
)  # fmt: skip
def test_an_object_is_ready_when_its_kind_says_so(seen, verdict):
    assert isinstance(assess(seen), verdict)


def test_a_claim_that_waits_for_its_first_pod_is_not_waited_for():
    claim = live("v1", "PersistentVolumeClaim", {"storageClassName": "s"}, {"phase": "Pending"})

    late = {"volumeBindingMode": "WaitForFirstConsumer"}
    assert assess(claim, Related(storage_class=late)) == Ready(), "its pod may well depend on it"
    assert isinstance(
        assess(claim, Related(storage_class={"volumeBindingMode": "Immediate"})), Waiting
    )


def test_a_service_is_ready_with_one_ready_endpoint():
    service = live("v1", "Service", {"selector": {"a": "b"}})

    def slices(ready):
        return Related(endpoint_slices=[{"endpoints": [{"conditions": {"ready": ready}}]}])

    assert assess(service, slices(True)) == Ready()
    assert isinstance(assess(service, slices(False)), Waiting)
    assert isinstance(assess(service, Related(endpoint_slices=[{"endpoints": None}])), Waiting)


def test_the_worst_pod_is_named_and_a_hopeless_one_is_stuck():
    creating = pod({"waiting": {"reason": "ContainerCreating"}})
    absent = pod({"waiting": {"reason": "ErrImageNeverPull", "message": "image x is not present"}})
    crashed = pod({"terminated": {"exitCode": 3, "reason": "Error"}})
    unplaced = pod(
        conditions=[
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
        ]
    )

    def verdict(*pods):
        return assess(live(*DEPLOYMENT, {**COUNTS, "availableReplicas": 0}), Related(pods=pods))

    assert verdict(creating) == Waiting("0 of 2 pods are available, 2 are up to date")
    found = verdict(creating, crashed, absent)
    assert found.stuck
    assert "pod p, container c: ErrImageNeverPull: image x is not present" in found.reason
    assert "exited with 3 (Error)" in verdict(crashed).reason
    assert "0/3 nodes are available" in verdict(unplaced).reason
    assert not verdict(unplaced).stuck, "a node may yet come"


def test_a_failure_says_why():
    job = live(*JOB, conditions(Failed=("BackoffLimitExceeded", "Job has reached the limit")))

    verdict = assess(job, Related(pods=[pod({"terminated": {"exitCode": 1, "reason": "Error"}})]))
    assert "BackoffLimitExceeded: Job has reached the limit" in verdict.reason
    assert "exited with 1" in verdict.reason
