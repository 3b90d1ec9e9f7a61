"""The watcher as a process, with a real API server and its own permissions."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from everstep.catalog.names import (
    ADVICE_ANNOTATION,
    DEADLINE_ANNOTATION,
    JOB_NAMESPACE,
    NOTICE_ANNOTATION,
    SYSTEM_NAMESPACE,
)
from everstep.catalog.timing import CLOUD_DRAIN_SHARE, NODE_MARGIN_SECONDS
from tests.spot.metadata_server import ACTION, EVENTS, INSTANCE, REBALANCE, MetadataServer
from tests.spot.on_twin.conftest import NODE, OTHER_NODE, WatcherCluster, wait_until, watching

pytestmark = pytest.mark.twin

NOTICE_SECONDS = 80
"""Shorter than the grace period of the workers, 110 s, and longer than a watcher needs to start on a busy machine."""

EC2_NOTICE_SECONDS = 24

RESOLUTION = timedelta(seconds=1)
"""Resolution of times in Kubernetes objects."""


def event(kind: str, seconds: float) -> dict[str, Any]:
    deadline = datetime.fromtimestamp(time.time() + seconds, UTC)
    return {
        "EventId": "event-1",
        "EventType": kind,
        "EventStatus": "Scheduled",
        "Resources": ["vm_0"],
        "NotBefore": format_datetime(deadline, usegmt=True),
    }


def ec2_time(seconds: float) -> str:
    """Return the time that is `seconds` from now, in EC2's format."""
    return datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def grace_seconds(cluster: WatcherCluster, name: str) -> int:
    """Return the grace period with which a worker is deleted."""
    return int(cluster.pod(name).metadata.deletion_grace_period_seconds)


def evicted_at(cluster: WatcherCluster, name: str) -> datetime:
    """Return when a worker was evicted."""
    ends_at: datetime = cluster.pod(name).metadata.deletion_timestamp
    return ends_at - timedelta(seconds=grace_seconds(cluster, name))


def notice(cluster: WatcherCluster) -> dict[str, Any]:
    value = (cluster.node().metadata.annotations or {}).get(NOTICE_ANNOTATION)
    content: dict[str, Any] = json.loads(value) if value else {}
    return content


def worker_deadline(cluster: WatcherCluster, name: str) -> str | None:
    value: str | None = (cluster.pod(name).metadata.annotations or {}).get(DEADLINE_ANNOTATION)
    return value


def is_cordoned(cluster: WatcherCluster) -> bool:
    return bool(cluster.node().spec.unschedulable)


def is_restored(cluster: WatcherCluster) -> bool:
    annotations = cluster.node().metadata.annotations or {}
    return not is_cordoned(cluster) and not {NOTICE_ANNOTATION, ADVICE_ANNOTATION} & set(
        annotations
    )


def test_a_node_that_azure_reboots_is_drained_released_and_restored(
    cluster: WatcherCluster, azure: MetadataServer
) -> None:
    azure.documents = {INSTANCE: {"compute": {"name": "vm_0"}}, EVENTS: {"Events": []}}
    cluster.create_worker("worker-0")

    with watching(cluster, azure):
        azure.documents[EVENTS] = {"Events": [event("Reboot", NOTICE_SECONDS)]}
        wait_until(lambda: is_cordoned(cluster), "the node is cordoned")
        assert notice(cluster)["reason"] == "Reboot"
        wait_until(
            lambda: cluster.pod("worker-0").metadata.deletion_timestamp, "its worker is evicted"
        )
        assert worker_deadline(cluster, "worker-0") == notice(cluster)["deadline"], (
            "the deadline is set before the eviction"
        )
        assert 1 < grace_seconds(cluster, "worker-0") <= NOTICE_SECONDS - NODE_MARGIN_SECONDS, (
            "the rest of the notice, not the 110 s of the pod"
        )
        assert azure.started_events == [], "the machine must not stop before its pods"

        cluster.confirm_deletion("worker-0")
        wait_until(lambda: azure.started_events == ["event-1"], "the event is started")

        azure.documents[EVENTS] = {"Events": []}
        wait_until(lambda: is_restored(cluster), "the node is restored")
    assert azure.started_events == ["event-1"]


def test_the_watcher_drains_if_the_managed_node_group_does_not(
    cluster: WatcherCluster, aws: MetadataServer
) -> None:
    aws.documents = {REBALANCE: {"noticeTime": ec2_time(0)}}
    cluster.create_worker("worker-1")

    with watching(cluster, aws):
        wait_until(
            lambda: (
                (cluster.node().metadata.annotations or {}).get(ADVICE_ANNOTATION) == "rebalance"
            ),
            "the advice is recorded",
        )
        assert not is_cordoned(cluster), "advice alone does not cordon"

        # The time is computed here, because the watcher may take long to start.
        notice_time = ec2_time(EC2_NOTICE_SECONDS)
        aws.documents[ACTION] = {"action": "terminate", "time": notice_time}
        wait_until(lambda: is_cordoned(cluster), "the node is cordoned")
        wait_until(
            lambda: worker_deadline(cluster, "worker-1") == notice_time,
            "the worker has the deadline",
        )
        assert notice(cluster)["deadline"] == notice_time

        wait_until(
            lambda: cluster.pod("worker-1").metadata.deletion_timestamp,
            "the watcher drains the node",
        )
        noticed_at = datetime.fromisoformat(notice(cluster)["since"])
        share = CLOUD_DRAIN_SHARE * (datetime.fromisoformat(notice_time) - noticed_at)
        assert evicted_at(cluster, "worker-1") - noticed_at >= share - RESOLUTION, (
            "the node group drains first"
        )
        cluster.confirm_deletion("worker-1")
        aws.documents.clear()
        wait_until(lambda: is_restored(cluster), "the node is restored")


def test_a_notice_survives_a_stalled_service_and_a_restart_of_the_watcher(
    cluster: WatcherCluster, azure: MetadataServer
) -> None:
    azure.documents = {
        INSTANCE: {"compute": {"name": "vm_0"}},
        EVENTS: {"Events": [event("Preempt", 60)]},
    }
    with watching(cluster, azure, "--cloud=azure"):
        wait_until(lambda: is_cordoned(cluster), "the node is cordoned")
    since = notice(cluster)["since"]

    azure.stalling.set()
    with watching(cluster, azure, "--cloud=azure"):
        wait_until(
            lambda: azure.stalled_requests >= 2, "the watcher has polled twice without success"
        )
        assert is_cordoned(cluster)
        assert notice(cluster)["since"] == since
        azure.stalling.clear()
        azure.documents[EVENTS] = {"Events": []}
        wait_until(lambda: is_restored(cluster), "the canceled notice is removed")


@contextmanager
def as_watcher(cluster: WatcherCluster) -> Iterator[client.CoreV1Api]:
    configuration = client.Configuration(host=cluster.address)
    configuration.ssl_ca_cert = str(cluster.credentials / "ca.crt")
    configuration.api_key = {"authorization": (cluster.credentials / "token").read_text().strip()}
    configuration.api_key_prefix = {"authorization": "Bearer"}
    with client.ApiClient(configuration) as api:
        yield client.CoreV1Api(api)


MISSING_OWNER = {"apiVersion": "v1", "kind": "Node", "name": "missing", "uid": "missing"}
FORBIDDEN_ACTIONS: dict[str, Callable[[client.CoreV1Api], Any]] = {
    "cordon another node": lambda core: core.patch_node(
        OTHER_NODE, {"spec": {"unschedulable": True}}
    ),
    "relabel its node": lambda core: core.patch_node(
        NODE, {"metadata": {"labels": {"everstep.dev/pool": "system"}}}
    ),
    "change the taints of its node": lambda core: core.patch_node(
        NODE, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    ),
    "delete its node": lambda core: core.delete_node(NODE),
    "let the garbage collector delete its node": lambda core: core.patch_node(
        NODE, {"metadata": {"ownerReferences": [MISSING_OWNER]}}, dry_run="All"
    ),
    "block the deletion of its node": lambda core: core.patch_node(
        NODE, {"metadata": {"finalizers": ["everstep.dev/test"]}}, dry_run="All"
    ),
    "list nodes": lambda core: core.list_node(),
    "change another annotation of a pod": lambda core: core.patch_namespaced_pod(
        "own", JOB_NAMESPACE, {"metadata": {"annotations": {"everstep.dev/nnodes": "1:1"}}}
    ),
    "relabel a pod": lambda core: core.patch_namespaced_pod(
        "own", JOB_NAMESPACE, {"metadata": {"labels": {"job-name": "other"}}}
    ),
    "change a pod's specification": lambda core: core.patch_namespaced_pod(
        "own", JOB_NAMESPACE, {"spec": {"activeDeadlineSeconds": 1}}
    ),
    "annotate a pod of another node": lambda core: core.patch_namespaced_pod(
        "foreign", JOB_NAMESPACE, {"metadata": {"annotations": {DEADLINE_ANNOTATION: "now"}}}
    ),
    "annotate a pod of another namespace": lambda core: core.patch_namespaced_pod(
        "watcher", SYSTEM_NAMESPACE, {"metadata": {"annotations": {DEADLINE_ANNOTATION: "now"}}}
    ),
    "delete pods": lambda core: core.delete_namespaced_pod("watcher", SYSTEM_NAMESPACE),
    "list the pods of all namespaces": lambda core: core.list_pod_for_all_namespaces(),
    "evict a pod of another namespace": lambda core: core.create_namespaced_pod_eviction(
        "watcher",
        SYSTEM_NAMESPACE,
        client.V1Eviction(metadata=client.V1ObjectMeta(name="watcher")),
    ),
    "read secrets": lambda core: core.list_secret_for_all_namespaces(),
}


@pytest.fixture(scope="module")
def workers(cluster: WatcherCluster) -> Iterator[None]:
    """Create a worker on the watcher's node and one on another node."""
    cluster.create_worker("own")
    cluster.create_worker("foreign", OTHER_NODE)
    yield
    for name in ("own", "foreign"):
        cluster.confirm_deletion(name)


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize("action", FORBIDDEN_ACTIONS)
def test_the_api_server_refuses_other_actions_of_the_watcher(
    cluster: WatcherCluster, action: str
) -> None:
    with as_watcher(cluster) as core:
        # The API server applies a new admission policy after a short delay.
        wait_until(
            lambda: _is_refused(lambda: FORBIDDEN_ACTIONS[action](core)), f"refused: {action}"
        )


@pytest.mark.usefixtures("workers")
def test_the_watcher_is_allowed_to_annotate_workers_of_its_node_with_the_deadline(
    cluster: WatcherCluster,
) -> None:
    body: dict[str, Any] = {"metadata": {"annotations": {DEADLINE_ANNOTATION: "2026-11-21"}}}

    with as_watcher(cluster) as core:
        core.patch_namespaced_pod("own", JOB_NAMESPACE, body)
        assert cluster.pod("own").metadata.annotations[DEADLINE_ANNOTATION] == "2026-11-21"

        body["metadata"]["annotations"][DEADLINE_ANNOTATION] = None
        core.patch_namespaced_pod("own", JOB_NAMESPACE, body)
        assert not cluster.pod("own").metadata.annotations


def _is_refused(call: Callable[[], Any]) -> bool:
    try:
        call()
    except ApiException as error:
        return error.status in (403, 422)
    return False
