"""The watcher as it runs in a cloud: its own process, real HTTP, a real API server, its own rights."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.twin.spot.conftest import NODE, OTHER_NODE, Bench, eventually, watching
from tests.unit.spot.metadata_server import ACTION, EVENTS, INSTANCE, REBALANCE, Service

pytestmark = pytest.mark.twin
NOTICE, ADVICE = "everstep/notice", "everstep/advice"


def event(kind: str, seconds: float) -> dict[str, Any]:
    at = datetime.fromtimestamp(time.time() + seconds, UTC)
    return {
        "EventId": "event-1",
        "EventType": kind,
        "EventStatus": "Scheduled",
        "Resources": ["vm_0"],
        "NotBefore": format_datetime(at, usegmt=True),
    }


def notice(bench: Bench) -> dict[str, Any]:
    said = (bench.node().metadata.annotations or {}).get(NOTICE)
    found: dict[str, Any] = json.loads(said) if said else {}
    return found


def cordoned(bench: Bench) -> bool:
    return bool(bench.node().spec.unschedulable)


def clean(bench: Bench) -> bool:
    annotations = bench.node().metadata.annotations or {}
    return not cordoned(bench) and not {NOTICE, ADVICE} & set(annotations)


def test_a_node_that_azure_is_about_to_restart_is_emptied_given_back_and_cleared(
    bench: Bench, azure: Service
) -> None:
    azure.documents = {INSTANCE: {"compute": {"name": "vm_0"}}, EVENTS: {"Events": []}}
    bench.worker("worker-0")

    with watching(bench, azure):
        azure.documents[EVENTS] = {"Events": [event("Reboot", 30)]}
        eventually(lambda: cordoned(bench), "the node is cordoned")
        assert notice(bench)["reason"] == "Reboot"
        eventually(
            lambda: bench.pod("worker-0").metadata.deletion_timestamp, "its worker is asked to go"
        )
        grace = bench.pod("worker-0").metadata.deletion_grace_period_seconds
        assert 20 <= grace <= 28, "what is left of the notice, not the 110 s that it asks for"
        assert azure.started == [], "the machine must not go before its pods"

        bench.gone("worker-0")
        eventually(lambda: azure.started == ["event-1"], "Azure is told that it may go ahead")

        azure.documents[EVENTS] = {"Events": []}
        eventually(lambda: clean(bench), "nothing is left on the node")
    assert azure.started == ["event-1"]


def test_a_node_that_ec2_interrupts_is_left_to_its_node_group_and_then_drained(
    bench: Bench, aws: Service
) -> None:
    at = datetime.fromtimestamp(time.time() + 24, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    aws.documents = {REBALANCE: {"noticeTime": at}}
    bench.worker("worker-1")

    with watching(bench, aws):
        eventually(
            lambda: (bench.node().metadata.annotations or {}).get(ADVICE) == "rebalance",
            "the advice is written down",
        )
        assert not cordoned(bench), "advice is no order"

        aws.documents[ACTION] = {"action": "terminate", "time": at}
        eventually(lambda: cordoned(bench), "the node is cordoned")
        assert bench.pod("worker-1").metadata.deletion_timestamp is None, "the node group drains"
        assert notice(bench)["deadline"] == at

        eventually(
            lambda: bench.pod("worker-1").metadata.deletion_timestamp,
            "nobody drained, so the watcher does",
        )
        bench.gone("worker-1")
        aws.documents.clear()
        eventually(lambda: clean(bench), "nothing is left on the node")


def test_a_stalled_service_and_a_restart_of_the_watcher_take_nothing_back(
    bench: Bench, azure: Service
) -> None:
    azure.documents = {
        INSTANCE: {"compute": {"name": "vm_0"}},
        EVENTS: {"Events": [event("Preempt", 60)]},
    }
    with watching(bench, azure, "--cloud=azure"):
        eventually(lambda: cordoned(bench), "the node is cordoned")
    since = notice(bench)["since"]

    azure.stalling.set()
    with watching(bench, azure, "--cloud=azure"):
        time.sleep(3)
        assert cordoned(bench)
        azure.stalling.clear()
        azure.documents[EVENTS] = {"Events": []}
        eventually(lambda: clean(bench), "called off: nothing is left on the node")
    assert since


def as_watcher(bench: Bench) -> client.CoreV1Api:
    settings = client.Configuration(host=bench.address)
    settings.ssl_ca_cert = str(bench.credentials / "ca.crt")
    settings.api_key = {"authorization": (bench.credentials / "token").read_text().strip()}
    settings.api_key_prefix = {"authorization": "Bearer"}
    return client.CoreV1Api(client.ApiClient(settings))


FORBIDDEN: dict[str, Callable[[client.CoreV1Api], Any]] = {
    "cordon another node": lambda core: core.patch_node(
        OTHER_NODE, {"spec": {"unschedulable": True}}
    ),
    "relabel its node": lambda core: core.patch_node(
        NODE, {"metadata": {"labels": {"everstep/pool": "system"}}}
    ),
    "untaint its node": lambda core: core.patch_node(
        NODE, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    ),
    "delete its node": lambda core: core.delete_node(NODE),
    "list nodes": lambda core: core.list_node(),
    "delete pods": lambda core: core.delete_namespaced_pod("watcher", "everstep-system"),
    "read secrets": lambda core: core.list_secret_for_all_namespaces(),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_watcher_may_not(bench: Bench, what: str) -> None:
    core = as_watcher(bench)
    # The API server takes up a new admission policy within moments, not at once.
    eventually(lambda: _refused(lambda: FORBIDDEN[what](core)), f"it may not {what}", seconds=10)


def _refused(action: Callable[[], Any]) -> bool:
    try:
        action()
    except ApiException as error:
        return error.status in (403, 422)
    return False
