"""How many more workers the nodes could take, by the scheduler's own rules."""

from datetime import UTC, datetime

import pytest

from controller.observed import Node, Taint
from controller.room import room

SPOT = {"everstep/pool": "gpu-spot"}
TAINT = Taint("spot", "yes", "NoSchedule")
GPU = "nvidia.com/gpu"


def node(name: str = "n0", **more) -> Node:
    room_of_it = {"cpu": "4", "memory": "16Gi", "pods": "110", GPU: "1"}
    return Node(**{"name": name, "labels": SPOT, "allocatable": room_of_it} | more)


def worker(
    node_name: str | None = None, *, phase: str = "Running", job: str = "job", **more
) -> dict:
    amounts = more.pop("amounts", {"cpu": "500m", "memory": "2Gi", GPU: "1"})
    spec = {"containers": [{"resources": {"limits": amounts}}], "nodeSelector": SPOT, **more}
    if node_name:
        spec["nodeName"] = node_name
    return {"metadata": {"labels": {"job-name": job}}, "spec": spec, "status": {"phase": phase}}


def apart(job: str = "job") -> dict:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"job-name": job}},
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_each_free_gpu_is_room_for_one():
    assert room(worker(), [node("a"), node("b")], [worker("a")]) == 1


@pytest.mark.parametrize(
    "unfit",
    [
        node(labels={}),
        node(cordoned=True),
        node(unready_since=datetime(2026, 1, 1, tzinfo=UTC)),
        node(out_of_service=True),
        node(taints=(TAINT,)),
        node(allocatable={"cpu": "4", "memory": "16Gi", "pods": "110"}),
        node(allocatable={"cpu": "400m", "memory": "16Gi", "pods": "110", GPU: "1"}),
        node(allocatable={"cpu": "4", "memory": "1Gi", "pods": "110", GPU: "1"}),
    ],
)
def test_a_node_that_would_not_have_the_worker_is_no_room(unfit):
    assert room(worker(), [unfit], []) == 0


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "value": "yes"},
        {"key": "spot", "operator": "Exists"},
        {"operator": "Exists"},
    ],
)
def test_a_taint_that_the_worker_tolerates_keeps_nobody_off(toleration):
    assert room(worker(tolerations=[toleration]), [node(taints=(TAINT,))], []) == 1


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "spot", "value": "no"},
        {"key": "other", "operator": "Exists"},
        {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
    ],
)
def test_another_toleration_does_not_help(toleration):
    assert room(worker(tolerations=[toleration]), [node(taints=(TAINT,))], []) == 0


def test_a_taint_that_only_prefers_keeps_nobody_off():
    assert room(worker(), [node(taints=(Taint("slow", "", "PreferNoSchedule"),))], []) == 1


def test_workers_that_share_no_node_find_room_once_on_each():
    small = {"cpu": "100m"}

    assert room(worker(amounts=small), [node("a")], []) == 40
    assert room(worker(amounts=small, affinity=apart()), [node("a"), node("b")], []) == 2
    held = worker("a", amounts=small)
    assert room(worker(amounts=small, affinity=apart()), [node("a"), node("b")], [held]) == 1
    other = worker("a", amounts=small, job="other")
    assert room(worker(amounts=small, affinity=apart()), [node("a")], [other]) == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_is_over_takes_no_room(phase):
    assert room(worker(), [node("a")], [worker("a", phase=phase)]) == 1


def test_a_pod_that_still_waits_takes_none_yet():
    assert room(worker(), [node("a")], [worker(None, phase="Pending")]) == 1


def test_the_largest_start_up_container_counts_and_the_overhead_too():
    asks = worker(
        amounts={"cpu": "1"},
        initContainers=[{"resources": {"requests": {"cpu": "3"}}}, {}],
        overhead={"cpu": "500m"},
    )

    assert room(asks, [node(allocatable={"cpu": "3500m", "pods": "9"})], []) == 1
    assert room(asks, [node(allocatable={"cpu": "3400m", "pods": "9"})], []) == 0


def test_a_node_may_be_full_of_pods_before_it_is_full():
    assert room(worker(amounts={}), [node("a", allocatable={"pods": "2"})], [worker("a")]) == 1
