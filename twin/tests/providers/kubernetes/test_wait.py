"""Waits for readiness and deletion at an API server that refuses requests: real HTTP, no cluster."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NoReturn

import pytest
from cloudtwin.providers.kubernetes.client import ClusterClient
from cloudtwin.providers.kubernetes.config import KubernetesConfig
from cloudtwin.providers.kubernetes.errors import RefusedError, UnknownKindError
from cloudtwin.providers.kubernetes.objects import ObjectReference
from cloudtwin.providers.kubernetes.readiness import Waiting, assess
from cloudtwin.providers.kubernetes.wait import (
    REVISION,
    _await_served,
    related_to,
    wait_until_gone,
    wait_until_ready,
)
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.timeouts import Timeouts

from twin.tests.providers.kubernetes.kubeconfigs import kubeconfig

BINDING = ObjectReference("rbac.authorization.k8s.io/v1", "RoleBinding", "default", "b")
MAP = ObjectReference("v1", "ConfigMap", "default", "m")
LIVE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"uid": "1", "finalizers": ["a.b/c"]}}
DISCOVERY = {
    "/api/v1": {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
    "/apis/rbac.authorization.k8s.io/v1": {
        "name": "rolebindings", "kind": "RoleBinding", "namespaced": True,
    },
}  # fmt: skip


class ApiServer(BaseHTTPRequestHandler):
    """An API server with one object; each read of it gets the next status, and the last status is repeated."""

    statuses: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        """Respond to a request."""
        if self.path in DISCOVERY:
            self.respond(200, {"resources": [DISCOVERY[self.path]]})
        else:
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            self.respond(
                status, LIVE if status == 200 else {"message": f"the server says {status}"}
            )

    def respond(self, status: int, body: Mapping[str, Any]) -> None:
        """Send a JSON object."""
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Log nothing."""


@pytest.fixture
def cluster() -> Iterator[ClusterClient]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    client = ClusterClient(KubernetesConfig(kubeconfig=kubeconfig(address)))
    yield client
    client._client.rest_client.pool_manager.clear()
    server.shutdown()
    thread.join()
    server.server_close()


def wait(
    cluster: ClusterClient, reference: ObjectReference, statuses: list[int], seconds: float
) -> list[str]:
    """Wait until an object is gone; return the reports."""
    ApiServer.statuses = list(statuses)
    reports: list[str] = []
    timeouts = Timeouts(report=reports.append, cancelled=threading.Event(), seconds=seconds)
    wait_until_gone(cluster, reference, "1", timeouts)
    return reports


@pytest.mark.parametrize("status", [403, 500, 503])
def test_an_object_that_cannot_be_read_does_not_count_as_deleted(
    cluster: ClusterClient, status: int
) -> None:
    with pytest.raises(ProviderError, match=f"took more than.*may still exist.*says {status}"):
        wait(cluster, MAP, [status], 0.3)


@pytest.mark.parametrize("status", [403, 500, 503])
def test_the_wait_continues_after_a_refusal(cluster: ClusterClient, status: int) -> None:
    reports = wait(cluster, MAP, [200, status, 404], 60)

    assert "finalizer a.b/c" in reports[0]
    assert f"the server says {status}" in reports[1]


def test_the_deletion_of_the_clients_own_permissions_ends_with_a_refusal(
    cluster: ClusterClient,
) -> None:
    assert wait(cluster, BINDING, [200, 403], 60)
    with pytest.raises(ProviderError, match="says 500"):
        wait(cluster, BINDING, [500], 0.3)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_the_wait_for_readiness_continues_after_an_error_of_the_server(
    cluster: ClusterClient, status: int
) -> None:
    ApiServer.statuses = [status, 200]
    reports: list[str] = []
    timeouts = Timeouts(report=reports.append, cancelled=threading.Event(), seconds=60)

    assert wait_until_ready(cluster, MAP, LIVE, timeouts) == LIVE
    assert f"the server says {status}" in reports[0]


def test_the_wait_for_readiness_ends_if_the_object_may_not_be_read(cluster: ClusterClient) -> None:
    ApiServer.statuses = [403]
    timeouts = Timeouts(report=lambda _text: None, cancelled=threading.Event(), seconds=60)

    with pytest.raises(RefusedError, match="says 403"):
        wait_until_ready(cluster, MAP, LIVE, timeouts)


class Unserved(ClusterClient):
    """A cluster that does not serve a kind yet."""

    def __init__(self) -> None:
        """Connect to nothing."""

    def kind(self, api_version: str, kind: str, *, wait_seconds: float = 0) -> NoReturn:
        """Raise as for a definition that is not established yet."""
        assert not wait_seconds, "a wait here would not end with the interrupt"
        raise UnknownKindError(f"{kind} of {api_version}")


def test_an_interrupt_ends_the_wait_for_a_kind() -> None:
    timeouts = Timeouts(report=lambda _text: None, cancelled=threading.Event(), seconds=60)
    timeouts.cancelled.set()
    versions = [{"name": "v1", "served": True}]
    definition = {
        "kind": "CustomResourceDefinition",
        "spec": {"group": "a.b", "versions": versions, "names": {"kind": "Job"}},
    }

    with pytest.raises(UnknownKindError, match=r"Job of a\.b/v1"):
        _await_served(Unserved(), definition, timeouts)


def item(name: str, owner: str = "", revision: str = "", **parts: Any) -> dict[str, Any]:
    """Return an object whose uid is its name."""
    metadata: dict[str, Any] = {"name": name, "uid": name, "namespace": "n"}
    metadata |= {"annotations": {REVISION: revision}} if revision else {}
    metadata |= {"ownerReferences": [{"uid": owner}]} if owner else {}
    return {"metadata": metadata, **parts}


def pod(name: str, owner: str, reason: str) -> dict[str, Any]:
    """Return a pod with a container that waits."""
    state = {"waiting": {"reason": reason}}
    return item(name, owner, status={"containerStatuses": [{"name": "c", "state": state}]})


@pytest.mark.parametrize(("revision", "is_stuck"), [("2", False), ("1", True)])
def test_a_deployment_is_stuck_only_if_a_pod_of_its_newest_revision_is(
    cluster: ClusterClient, monkeypatch: pytest.MonkeyPatch, revision: str, is_stuck: bool
) -> None:
    objects = {
        "ReplicaSet": [
            item("wrong", "d", "1"),
            item("right", "d", "2"),
            item("of another deployment", "e", "1"),
        ],
        "Pod": [
            pod("old", "wrong", "ImagePullBackOff"),
            pod("new", "right", "ContainerCreating"),
        ],
    }
    monkeypatch.setattr(cluster, "list", lambda api, kind, *_: objects[kind])
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}}
    deployment = item(
        "d", "", revision, apiVersion="apps/v1", kind="Deployment", spec=spec, status={}
    )

    verdict = assess(deployment, related_to(cluster, deployment))

    assert isinstance(verdict, Waiting)
    assert verdict.stuck == is_stuck
