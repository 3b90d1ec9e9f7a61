"""Kubernetes's objects as an autoscaler sees them."""

from decimal import Decimal

import pytest

from tests.unit.twin.clouds.capacity.builders import MACHINE, pool
from twin.clouds.capacity import watcher
from twin.clouds.capacity.autoscaler import Room, Toleration
from twin.clouds.capacity.watcher import Autoscaler


def kube_pod(name="p", phase="Pending", reason="Unschedulable", node=None, **spec):
    requests = spec.pop("requests", {"cpu": "250m", "memory": "2Gi", "nvidia.com/gpu": "1"})
    owner = spec.pop("owner", None)
    metadata = {"name": name, "namespace": "default"}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner}]
    condition = {"type": "PodScheduled", "status": "False", "reason": reason}
    container = {"image": "x", "resources": {"requests": requests}}
    return {
        "metadata": metadata,
        "spec": {"containers": [container], "nodeName": node, **spec},
        "status": {"phase": phase, "conditions": [condition]},
    }


def kube_node(gpus=1, unschedulable=False):
    allocatable = {"cpu": "2", "memory": "4Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {"spec": {"unschedulable": unschedulable}, "status": {"allocatable": allocatable}}


def ca(*flags, phase="Running"):
    made = kube_pod("ca", phase)
    image = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.0"
    made["spec"]["containers"][0] |= {
        "image": image,
        "command": ["./cluster-autoscaler"],
        "args": flags,
    }
    return made


def test_only_pods_that_the_scheduler_gave_up_on_are_waiting():
    going = kube_pod("going")
    going["metadata"]["deletionTimestamp"] = "now"
    pods = [kube_pod("a"), kube_pod("b", "Running"), kube_pod("c", reason="SchedulerError"), going]

    assert [pod.name for pod in watcher.waiting(pods)] == ["default/a"]


def test_a_pod_wants_what_its_containers_want_together_or_one_before_them_alone():
    pod = kube_pod(tolerations=[{"operator": "Exists"}], nodeSelector={"a": "b"})
    pod["spec"]["containers"] *= 2
    pod["spec"]["initContainers"] = [{"resources": {"limits": {"cpu": "2"}}}, {}]

    (seen,) = watcher.waiting([pod])

    assert seen.wants == Room(milli_cpu=2000, memory=4 << 30, gpus=2, pods=1)
    assert seen.tolerations == (Toleration(operator="Exists"),)
    assert seen.selector == {"a": "b"}


def test_what_is_left_of_a_machine_is_what_its_living_pods_do_not_ask_for():
    pods = [kube_pod("a", "Running", node="m"), kube_pod("b", "Succeeded", node="m")]

    (node,) = watcher.machines({"spot": pool()}, {"m": "spot"}, {"m": kube_node()}, pods, {})

    assert node.free == Room(milli_cpu=1750, memory=2 << 30, gpus=0, pods=109)


def test_a_machine_without_device_plugin_counts_its_gpus_already():
    (node,) = watcher.machines({"spot": pool(gpus=4)}, {"m": "spot"}, {"m": kube_node(0)}, [], {})

    assert node.free.gpus == 4


def test_cordoned_machines_and_those_of_other_pools_take_no_pods():
    nodes = {"cordoned": kube_node(unschedulable=True), "other": kube_node()}

    assert watcher.machines({"spot": pool()}, {"cordoned": "spot"}, nodes, [], {}) == []


def test_a_fresh_machine_offers_what_daemons_leave_of_one_that_is_there():
    daemon = kube_pod("d", "Running", node="m", owner="DaemonSet", requests={"cpu": "100m"})
    work = kube_pod("w", "Running", node="m")
    seen = watcher.fresh_room(pool(), {"m": "spot"}, {"m": kube_node()}, [daemon, work], MACHINE)

    assert seen == Room(milli_cpu=1900, memory=4 << 30, gpus=1, pods=109)
    assert (
        watcher.fresh_room(pool("other"), {"m": "spot"}, {"m": kube_node()}, [], MACHINE) == MACHINE
    )


def test_daemons_are_no_work():
    daemon = kube_pod("d", "Running", node="m", owner="DaemonSet")

    assert not watcher.busy("m", [daemon, kube_pod("done", "Failed", node="m")])
    assert watcher.busy("m", [daemon, kube_pod("w", "Running", node="m")])


def test_the_autoscaler_is_found_by_its_image_and_its_flags_hold():
    flags = ("--startup-taint=a/b", "--ignore-taint=c,d", "--scale-down-unneeded-time=10m", "--v")

    found = watcher.find_autoscaler([kube_pod(), ca(*flags)])

    assert found.ignored == {"a/b", "c", "d"}
    assert found.idle_seconds == 600
    assert watcher.find_autoscaler([kube_pod(), ca(phase="Pending")]) is None


def test_on_eks_nothing_is_sized_without_an_autoscaler_and_on_aks_what_allows_it():
    pools = [pool("eks"), pool("aks", cloud="azure", autoscaled=True), pool("no", cloud="azure")]
    rooms = {p.name: MACHINE for p in pools}
    found = Autoscaler(namespace="kube-system", flags={"scale-down-unneeded-time": ("2m",)})

    without = watcher.templates(pools, rooms, None, {}, {})
    with_it = watcher.templates(pools, rooms, found, {"eks": 7}, {"eks": 1}, factor=60)

    assert [t.pool.name for t in without] == ["aks"]
    assert [t.pool.name for t in with_it] == ["eks", "aks"]
    eks = with_it[0]
    assert (eks.priority, eks.short, eks.pool.idle_seconds) == (7, True, 2)


def test_a_pool_of_fixed_size_is_not_sized():
    fixed = pool(cloud="azure", autoscaled=True, minimum=3, maximum=3)

    assert watcher.templates([fixed], {"spot": MACHINE}, None, {}, {}) == []


def test_priorities_are_given_by_what_the_cloud_calls_a_pools_machines():
    text = "10:\n- .*\n50:\n- ^eks-a-.*\n- aks-t4-\n"
    pools = [pool("a"), pool("t4", cloud="azure"), pool("b")]

    assert watcher.priorities_of({"data": {"priorities": text}}, pools) == {
        "a": 50,
        "t4": 50,
        "b": 10,
    }
    assert watcher.priorities_of({}, pools) == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2),
        ("250m", Decimal("0.25")),
        ("2Gi", 2 << 30),
        ("1.5k", 1500),
        (3, 3),
        ("5M", 5 * 10**6),
    ],
)
def test_quantities_are_those_of_kubernetes(text, number):
    assert watcher.quantity(text) == number


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m", 600), ("1h30m", 5400), ("1.5s", 1.5), ("200ms", 0.2)]
)
def test_spans_are_those_of_go(text, seconds):
    assert watcher.span(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "m10", "10x", "10m!"])
def test_what_is_no_span_is_refused(text):
    with pytest.raises(ValueError, match="no span of time"):
        watcher.span(text)


@pytest.mark.parametrize("text", ["", "Gi", "1Qi", "-1"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(ValueError, match="no quantity"):
        watcher.quantity(text)
