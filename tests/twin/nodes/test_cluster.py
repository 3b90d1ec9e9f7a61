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


def test_a_gpu_machine_is_there_when_its_node_is_ready_and_counts_its_gpus():
    gpu, system = MachineSpec("g", Role.GPU, 2), MachineSpec("s", Role.SYSTEM, 2)

    assert cluster.offers(node(gpus=2), gpu)
    assert not cluster.offers(node(gpus=1), gpu)
    assert not cluster.offers(node(), gpu)
    assert cluster.offers(node(), system)
    assert not cluster.offers(node("Unknown", gpus=2), gpu)
    assert not cluster.offers({}, system)


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
