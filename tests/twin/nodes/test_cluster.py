import pytest

from everstep.errors import EverstepError
from twin.nodes import cluster
from twin.nodes.api import ApiError
from twin.nodes.model import MachineSpec, Role


def node(ready="True", gpus=None, *, unschedulable=None):
    allocatable = {} if gpus is None else {"nvidia.com/gpu": str(gpus)}
    spec = {} if unschedulable is None else {"unschedulable": unschedulable}
    return {
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": allocatable},
    }


def pod(name="p", owner="ReplicaSet", phase="Running", **metadata):
    owners = [{"kind": owner}] if owner else []
    return {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": "u",
            "ownerReferences": owners,
            **metadata,
        },
        "status": {"phase": phase},
    }


class Recorded:
    """Answers requests from a script and remembers what was asked."""

    def __init__(self, pods, refusal=None):
        self.pods, self.refusal, self.asked = pods, refusal, []

    def get(self, path):
        self.asked.append(("GET", path))
        return {"items": self.pods}

    def merge(self, path, body):
        self.asked.append(("PATCH", path, body))

    def post(self, path, body):
        self.asked.append(("POST", path, body))
        if self.refusal:
            raise self.refusal
        self.pods = []

    def delete(self, path):
        self.asked.append(("DELETE", path))

    def request(self, verb, path, body):
        self.asked.append((verb, path, body))
        if self.refusal:
            raise self.refusal


def test_a_gpu_machine_is_there_when_its_node_is_ready_and_counts_its_gpus():
    gpu, system = MachineSpec("g", Role.GPU, 2), MachineSpec("s", Role.SYSTEM, 2)

    assert cluster.offers(node(gpus=2), gpu)
    assert not cluster.offers(node(gpus=1), gpu)
    assert not cluster.offers(node(), gpu)
    assert cluster.offers(node(), system)
    assert not cluster.offers(node("Unknown", gpus=2), gpu)
    assert not cluster.offers({}, system)


@pytest.mark.parametrize("kind", ["not-ready", "unreachable"])
def test_a_machine_is_there_when_pods_may_come_not_a_moment_before(kind):
    system = MachineSpec("s", Role.SYSTEM, 2)
    late = node()
    late["spec"]["taints"] = [{"key": f"node.kubernetes.io/{kind}", "effect": "NoExecute"}]

    assert cluster.is_ready(late)
    assert not cluster.offers(late, system)

    late["spec"]["taints"] = [{"key": "everstep/spot", "effect": "NoSchedule"}]
    assert cluster.offers(late, system), "a pool's own taint is there to stay"


@pytest.mark.parametrize(
    ("one", "evictable"),
    [
        (pod(), True),
        (pod(owner=None), True),
        (pod(owner="DaemonSet"), False),
        (pod(phase="Succeeded"), True),
        (pod(phase="Failed"), True),
        (pod(annotations={"kubernetes.io/config.mirror": "x"}), False),
    ],
)
def test_draining_leaves_daemons_and_static_pods_only(one, evictable):
    assert cluster.is_evictable(one) is evictable


def test_draining_cordons_first_and_evicts_this_very_pod():
    api = Recorded([pod()])

    cluster.drain(api, "gpu-0", 5)

    assert api.asked[0] == ("PATCH", "/api/v1/nodes/gpu-0", {"spec": {"unschedulable": True}})
    [eviction] = [entry for entry in api.asked if entry[0] == "POST"]
    assert eviction[1] == "/api/v1/namespaces/n/pods/p/eviction"
    assert eviction[2]["deleteOptions"]["preconditions"] == {"uid": "u"}, (
        "a successor must be spared"
    )


def test_a_budget_that_does_not_yield_is_named_when_time_is_up():
    api = Recorded([pod()], ApiError(429, "Cannot evict: the budget etcd needs 2", {}))

    with pytest.raises(EverstepError) as caught:
        cluster.drain(api, "gpu-0", -1)

    assert "n/p: Cannot evict: the budget etcd needs 2" in caught.value.what


def test_a_pod_on_its_way_out_is_waited_for_and_not_evicted_again():
    api = Recorded([pod(deletionTimestamp="now")])

    with pytest.raises(EverstepError, match="is still terminating"):
        cluster.drain(api, "gpu-0", -1)

    assert not [entry for entry in api.asked if entry[0] == "POST"]


def test_a_node_that_is_no_more_is_forgotten_with_the_very_pods_that_were_on_it():
    api = Recorded([pod()])

    cluster.forget(api, "gpu-0")

    assert ("DELETE", "/api/v1/nodes/gpu-0") in api.asked
    verb, path, body = api.asked[-1]
    assert (verb, path) == ("DELETE", "/api/v1/namespaces/n/pods/p")
    assert body == {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}, "a successor is spared"


@pytest.mark.parametrize("status", [404, 409])
def test_a_pod_that_somebody_else_deleted_meanwhile_is_what_was_wanted(status):
    cluster.forget(Recorded([pod()], ApiError(status, 'pods "p" not found', {})), "gpu-0")


def test_a_node_whose_pods_may_not_be_deleted_is_an_error():
    with pytest.raises(ApiError):
        cluster.forget(Recorded([pod()], ApiError(403, "no", {})), "gpu-0")
