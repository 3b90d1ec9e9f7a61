"""The number of additional workers that fit on the nodes, by the rules of the scheduler."""

from datetime import UTC, datetime
from typing import Any

import pytest

from controller.capacity import count_schedulable, requests
from controller.objects import Node, Taint

SPOT = {"everstep.dev/pool": "gpu-spot"}
TAINT = Taint("spot", "yes", "NoSchedule")
GPU = "nvidia.com/gpu"


def node(name: str = "n0", **fields: Any) -> Node:
    allocatable = {"cpu": "4", "memory": "16Gi", "pods": "110", GPU: "1"}
    return Node(**{"name": name, "labels": SPOT, "allocatable": allocatable} | fields)


def worker(
    node_name: str | None = None, *, phase: str = "Running", job: str = "job", **fields: Any
) -> dict[str, Any]:
    amounts = fields.pop("amounts", {"cpu": "500m", "memory": "2Gi", GPU: "1"})
    spec = {"containers": [{"resources": {"limits": amounts}}], "nodeSelector": SPOT, **fields}
    if node_name:
        spec["nodeName"] = node_name
    return {"metadata": {"labels": {"job-name": job}}, "spec": spec, "status": {"phase": phase}}


def anti_affinity(job: str = "job") -> dict[str, Any]:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"job-name": job}},
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_one_worker_fits_on_each_free_gpu() -> None:
    assert count_schedulable(worker(), [node("a"), node("b")], [worker("a")]) == 1


@pytest.mark.parametrize(
    "unusable_node",
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
def test_a_node_that_the_worker_cannot_use_has_no_capacity(unusable_node: Node) -> None:
    assert count_schedulable(worker(), [unusable_node], []) == 0


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "value": "yes"},
        {"key": "spot", "operator": "Exists"},
        {"operator": "Exists"},
    ],
)
def test_a_taint_that_the_worker_tolerates_does_not_exclude_the_node(
    toleration: dict[str, Any],
) -> None:
    assert count_schedulable(worker(tolerations=[toleration]), [node(taints=(TAINT,))], []) == 1


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "spot", "value": "no"},
        {"key": "other", "operator": "Exists"},
        {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
    ],
)
def test_a_toleration_that_does_not_match_leaves_the_node_excluded(
    toleration: dict[str, Any],
) -> None:
    assert count_schedulable(worker(tolerations=[toleration]), [node(taints=(TAINT,))], []) == 0


def test_a_prefer_no_schedule_taint_does_not_exclude_the_node() -> None:
    slow_node = node(taints=(Taint("slow", "", "PreferNoSchedule"),))

    assert count_schedulable(worker(), [slow_node], []) == 1


def test_workers_with_anti_affinity_fit_once_on_each_node() -> None:
    small = {"cpu": "100m"}
    separate_worker = worker(amounts=small, affinity=anti_affinity())
    existing, foreign = worker("a", amounts=small), worker("a", amounts=small, job="other")

    assert count_schedulable(worker(amounts=small), [node("a")], []) == 40
    assert count_schedulable(separate_worker, [node("a"), node("b")], []) == 2
    assert count_schedulable(separate_worker, [node("a"), node("b")], [existing]) == 1
    assert count_schedulable(separate_worker, [node("a")], [foreign]) == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_uses_no_capacity(phase: str) -> None:
    assert count_schedulable(worker(), [node("a")], [worker("a", phase=phase)]) == 1


def test_a_pending_pod_uses_no_capacity() -> None:
    assert count_schedulable(worker(), [node("a")], [worker(None, phase="Pending")]) == 1


def test_the_largest_init_container_and_the_overhead_count() -> None:
    pending_worker = worker(
        amounts={"cpu": "1"},
        initContainers=[{"resources": {"requests": {"cpu": "3"}}}, {}],
        overhead={"cpu": "500m"},
    )

    sufficient, insufficient = (
        node(allocatable={"cpu": cpu, "pods": "9"}) for cpu in ("3500m", "3400m")
    )

    assert count_schedulable(pending_worker, [sufficient], []) == 1
    assert count_schedulable(pending_worker, [insufficient], []) == 0


def test_a_sidecar_runs_beside_the_containers_and_the_later_init_containers() -> None:
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    later = {"resources": {"requests": {"cpu": "2"}}}
    requested = {
        amount: requests(
            worker(amounts={"cpu": amount}, initContainers=[{}, sidecar, later])["spec"]
        )
        for amount in ("1", "4")
    }

    assert requested["1"]["cpu"] == 3, "the later init container runs beside the sidecar"
    assert requested["4"]["cpu"] == 5, "the worker runs beside the sidecar"


@pytest.mark.parametrize(
    ("resources", "cpu"),
    [
        ({"requests": {"cpu": "4"}, "limits": {"cpu": "8"}}, 4),
        ({"limits": {"cpu": "8"}}, 2),
        (None, 2),
    ],
)
def test_the_requests_of_a_pod_replace_its_containers_requests(
    resources: dict[str, Any] | None, cpu: int
) -> None:
    container = {"resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}}}

    quantities = requests({"containers": [container], "resources": resources})

    assert quantities == {"cpu": cpu, "nvidia.com/gpu": 1}


def test_the_pod_limit_of_a_node_limits_its_capacity() -> None:
    small_node = node("a", allocatable={"pods": "2"})

    assert count_schedulable(worker(amounts={}), [small_node], [worker("a")]) == 1
