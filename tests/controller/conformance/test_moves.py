"""A job with zones moves to another zone, on a real API server with a real scheduler."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from everstep.catalog.names import (
    DEADLINE_ANNOTATION,
    PLACEHOLDER_PRIORITY_CLASS,
    PLACEMENT_ANNOTATION,
    ZONE_LABEL,
)
from tests.controller.conformance.conftest import Controller
from tests.controller.conformance.fake_kubelet import FakeKubelet
from tests.controller.conformance.job_namespace import Job, JobNamespace
from tests.controller.conformance.test_capacity import one_per_node

pytestmark = [
    pytest.mark.known_upstream_failure("it has no zones"),
    pytest.mark.only_on("stand-in", "it adds a simulated node"),
]

NEAR, FAR = "us-east-1a", "us-east-1b"
FAR_NODES = ("stand-in-1", "stand-in-2", "stand-in-3")
PLACEMENT = {
    "zones": [NEAR, FAR],
    "usdPerHour": {NEAR: 0.4, FAR: 0.5},
    "startSeconds": 2,
    "shortSeconds": 2,
    "furtherNodeSeconds": 2,
    "joinSeconds": 2,
}
MOVE_SECONDS = 150


@pytest.fixture
def nodes(job_namespace: JobNamespace, kubelet: FakeKubelet) -> Iterator[tuple[str, ...]]:
    """Yield nodes without a zone, besides a node in the near zone; restore all nodes after the test."""
    scheduling: Any = client.SchedulingV1Api(job_namespace.api)
    priority_class = {
        "metadata": {"name": PLACEHOLDER_PRIORITY_CLASS},
        "value": -1,
        "preemptionPolicy": "Never",
    }
    scheduling.create_priority_class(priority_class)
    kubelet.boot(FAR_NODES[-1])
    label(job_namespace, "stand-in-0", NEAR)
    yield FAR_NODES
    kubelet.lose(FAR_NODES[-1])
    for node in ("stand-in-0", *FAR_NODES[:-1]):
        label(job_namespace, node, None)
    scheduling.delete_priority_class(PLACEHOLDER_PRIORITY_CLASS)


def label(job_namespace: JobNamespace, node: str, zone: str | None) -> None:
    job_namespace.core.patch_node(node, {"metadata": {"labels": {ZONE_LABEL: zone}}})


def placement(job: Job) -> dict[str, Any]:
    status: dict[str, Any] = (job.read().get("status") or {}).get("placement") or {}
    return status


def placeholders(job: Job) -> list[Any]:
    selector = f"everstep.dev/placeholder-of={job.name}"
    pods: list[Any] = job.job_namespace.core.list_namespaced_pod(
        job.job_namespace.namespace, label_selector=selector
    ).items
    return pods


def test_a_job_moves_to_the_zone_that_has_machines_and_its_old_workers_leave_last(
    job_namespace: JobNamespace, name: str, controller: Controller, nodes: tuple[str, ...]
) -> None:
    annotations = {PLACEMENT_ANNOTATION: json.dumps(PLACEMENT)}
    job = job_namespace.job(
        name, replicas=3, max_replicas=3, annotations=annotations, pod=one_per_node(name)
    )
    job.wait_until("machines are requested in the far zone", lambda: len(placeholders(job)) == 3)
    job.wait_until("one worker runs, in the near zone", lambda: len(job.running_workers()) == 1)
    (old_uid,) = (job.uids()[index] for index in job.running_workers())
    job.wait_for_events("ZonesSearched")
    controller.stop()
    for node in nodes:
        label(job_namespace, node, FAR)
    controller.start()

    job.wait_until("three workers run in the far zone", lambda: runs_in(job, FAR, 3), MOVE_SECONDS)
    job.wait_until(
        "the move has ended", lambda: "ended" in placement(job)["moves"][0], MOVE_SECONDS
    )

    assert old_uid not in job.uids().values()
    job.wait_until("no placeholder is left", lambda: not placeholders(job))
    job.wait_until("the condition is set", lambda: job.is_true("Placed"))
    job.wait_for_events("MoveBegan", "Moved")
    status = placement(job)
    assert (status["zone"], status["moveCount"]) == (FAR, 1)
    departures = [event for event in job.events() if f"the group trains in {FAR}" in event.message]
    worker_departures = {
        event.message: event for event in departures if "-worker-" in event.message
    }
    assert worker_departures, "the worker of the near zone is deleted"
    last_departure_at = max(event.first_timestamp for event in worker_departures.values())
    start_times = [
        pod.status.container_statuses[0].state.running.started_at for pod in job.pods().values()
    ]
    assert max(start_times) <= last_departure_at, (
        "the new workers run before the last old one leaves"
    )

    interrupt(job, next(iter(job.pods().values())).metadata.name)
    job.wait_until("the loss is observed", lambda: losses(job) == {FAR: 1})


def interrupt(job: Job, pod: str) -> None:
    """Annotate a worker's pod with an interruption notice for its machine."""
    annotations = {DEADLINE_ANNOTATION: "2030-01-01T00:00:00Z"}
    patch = {"metadata": {"annotations": annotations}}
    job.job_namespace.core.patch_namespaced_pod(pod, job.job_namespace.namespace, patch)


def losses(job: Job) -> dict[str, float]:
    zones = placement(job).get("lifetimes", {}).get("zones", [])
    return {item["zone"]: item["losses"] for item in zones if item["losses"]}


def runs_in(job: Job, zone: str, workers: int) -> bool:
    pods = [pod for index, pod in job.pods().items() if index in job.running_workers()]
    return [(pod.spec.node_selector or {}).get(ZONE_LABEL) for pod in pods] == [zone] * workers
