"""The requests of the controller's client, and the responses that it tolerates."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from urllib3.exceptions import HTTPError

from controller.actions import Deletion, Event
from controller.client import (
    BAD_REQUEST,
    CONFLICT,
    INVALID,
    LABEL_LENGTH,
    NOT_FOUND,
    ApiError,
    KubernetesClient,
    client_configuration,
)
from controller.objects import Placeholder
from controller.pods import REQUIRED, render_pod
from everstep.catalog.names import REPLICA_INDEX_LABEL
from tests.controller.builders import NOW, job, pod, spec

FORBIDDEN = 403
KUBECONFIG = """
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
users: [{{name: u, user: {{token: t}}}}]
"""
PLACEHOLDER = Placeholder(name="placeholder", uid="uid-of-placeholder", zone="a")


class RecordingApi(KubernetesClient):
    """An API server that records requests, and responds to each with the same JSON or error.

    Attributes:
        requests: method, path and body of each request.
    """

    def __init__(self, response: object = None, error: int | None = None) -> None:
        super().__init__(ApiClient())
        self.requests: list[tuple[str, str, Any]] = []
        self.response, self.error = response, error

    def request(
        self, method: str, path: str, body: Any = None, query: object = None, content_type: str = ""
    ) -> Any:
        del query, content_type
        self.requests.append((method, path, body))
        if self.error is not None:
            raise ApiError(self.error, "spec.containers: Required value")
        return self.response


def test_a_failed_request_is_not_retried(tmp_path: Path) -> None:
    """By default, urllib3 retries three times, so that a pass would wait minutes for an API server."""
    kubeconfig = tmp_path / "kubeconfig"
    requests = list[bytes]()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):  # the server is closed
                while True:
                    connection, _ = server.accept()
                    with connection:
                        requests.append(connection.recv(4096))

        threading.Thread(target=accept, daemon=True).start()
        kubeconfig.write_text(KUBECONFIG.format(port=server.getsockname()[1]))
        api = KubernetesClient(ApiClient(client_configuration(str(kubeconfig))))
        with pytest.raises(HTTPError):
            api.job("ns", "training")
        server.shutdown(socket.SHUT_RDWR)

    assert len(requests) == 1


def test_the_time_of_the_api_server_is_read_from_its_responses(tmp_path: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(NOT_FOUND)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            del timestamp
            return "Thu, 01 Jan 2026 12:00:00 GMT"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
            """Log nothing."""

    kubeconfig = tmp_path / "kubeconfig"
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        kubeconfig.write_text(KUBECONFIG.format(port=server.server_port))
        api = KubernetesClient(ApiClient(client_configuration(str(kubeconfig))))
        assert api.job("ns", "training") is None

    assert api.clock.now() - NOW < timedelta(seconds=10)


def test_a_deletion_applies_to_the_observed_object_only() -> None:
    """A newer object may have its name."""
    api = RecordingApi()

    api.delete_pod("ns", Deletion(pod=pod(0), cause="it failed"))
    api.delete_pod("ns", Deletion(pod=pod(1), cause="its node is lost", force=True))
    api.delete_placeholder("ns", PLACEHOLDER)
    api.delete_job(job())

    assert [request[0] for request in api.requests] == ["DELETE"] * 4
    assert [body for _, _, body in api.requests] == [
        {"preconditions": {"uid": "uid-0"}},
        {"preconditions": {"uid": "uid-1"}, "gracePeriodSeconds": 0},
        {"preconditions": {"uid": "uid-of-placeholder"}},
        {"preconditions": {"uid": "u"}, "propagationPolicy": "Background"},
    ]


def test_bounds_are_set_on_the_observed_pod_only() -> None:
    api = RecordingApi()

    api.update_bounds(job(), pod(0))

    ((method, path, body),) = api.requests
    assert (method, path) == ("PATCH", "/api/v1/namespaces/ns/pods/job-worker-0")
    metadata = {"uid": "uid-0", "annotations": {"everstep.dev/nnodes": "1:5"}}
    assert body == {"metadata": metadata}


CHANGES: dict[str, Callable[[KubernetesClient], None]] = {
    "delete a pod": lambda api: api.delete_pod("ns", Deletion(pod=pod(0), cause="it failed")),
    "delete a placeholder": lambda api: api.delete_placeholder("ns", PLACEHOLDER),
    "delete a Service": lambda api: api.delete_service("ns", "job-worker-0"),
    "delete a job": lambda api: api.delete_job(job()),
    "set bounds": lambda api: api.update_bounds(job(), pod(0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_an_object_that_is_gone_or_replaced_does_nothing(change: str) -> None:
    for code in (NOT_FOUND, CONFLICT):
        CHANGES[change](RecordingApi(error=code))

    with pytest.raises(ApiError, match="HTTP 403"):
        CHANGES[change](RecordingApi(error=FORBIDDEN))


def test_only_objects_that_the_job_controls_are_its_own() -> None:
    elastic_job = job()
    assert elastic_job.spec is not None
    own, foreign, dependent, relabeled = (
        render_pod(elastic_job, elastic_job.spec, index) for index in (0, 1, 2, 3)
    )
    relabeled["metadata"]["labels"][REPLICA_INDEX_LABEL] = "x"  # by a user
    foreign["metadata"]["ownerReferences"][0]["uid"] = "other"
    dependent["metadata"]["ownerReferences"][0]["controller"] = False

    api = RecordingApi({"items": [own, foreign, dependent, relabeled]})

    assert api.owned_objects("pods", "job", "ns", "u") == [own]


def test_a_job_whose_name_is_too_long_for_a_label_has_no_objects() -> None:
    """The API server refuses a selector with such a value, so that the job would never get the error about its name."""
    api = RecordingApi(error=BAD_REQUEST)
    elastic_job = job(name="a" * (LABEL_LENGTH + 1))

    assert api.owned_objects("pods", elastic_job.name, "ns", "u") == []
    assert api.placeholders(elastic_job) == []
    assert "at most 63" in elastic_job.validation_errors[0]


def test_a_node_that_does_not_exist_is_none_and_other_errors_are_raised() -> None:
    assert RecordingApi(error=NOT_FOUND).nodes(["n0"]) == {"n0": None}
    with pytest.raises(ApiError, match="HTTP 403"):
        RecordingApi(error=FORBIDDEN).nodes(["n0"])


def test_the_message_of_an_event_is_truncated() -> None:
    api = RecordingApi()

    api.record_event(job(), Event(reason="Scaled", message="x" * 2000), NOW)

    ((_, _, body),) = api.requests
    assert body["message"] == "x" * 1024


def test_each_spec_of_several_jobs_is_dry_run_once() -> None:
    api = RecordingApi(error=INVALID)
    jobs = [replace(job(), uid=uid) for uid in ("u", "v")]

    rejections = [api.pod_rejection(each_job) for _ in range(3) for each_job in jobs]
    assert all("Required value" in str(rejection) for rejection in rejections)
    assert len(api.requests) == 2, "the jobs do not evict each other's results"

    api.pod_rejection(replace(jobs[0], generation=2))
    api.forget("v")
    api.pod_rejection(jobs[1])
    assert len(api.requests) == 4, "a new spec and a job whose result was dropped are dry-run again"


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": ["role=worker"]},
        {"metadata": {"labels": ["role=worker"]}},
        {"metadata": {"annotations": "none"}},
        {"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}}},
    ],
)
def test_the_api_server_names_a_wrong_type_in_a_template(template: dict[str, Any]) -> None:
    """No pod can be made from it, and without a dry run each pass would fail with an error of the controller."""
    body = spec()
    body["spending"] = {
        "onDemand": "never",
        "pools": [{"capacity": kind, "usdPerHour": 1} for kind in ("spot", "onDemand")],
    }
    worker = body["replicaSpecs"]["Worker"]
    pod_spec = {**worker["template"]["spec"], **template.get("spec", {})}
    worker["template"] = {**template, "spec": pod_spec}
    api = RecordingApi(error=BAD_REQUEST)

    assert "Required value" in str(api.pod_rejection(job(body)))

    ((_, _, probe),) = api.requests
    assert probe["spec"] == pod_spec
    assert probe["metadata"] == (
        ["role=worker"]
        if isinstance(template.get("metadata"), list)
        else {**template.get("metadata", {}), "name": "job-worker-0-probe"}
    )


def test_a_refusal_for_a_reason_other_than_the_pod_is_not_a_validation_error() -> None:
    """For example, an exhausted quota."""
    assert RecordingApi(error=FORBIDDEN).pod_rejection(job()) is None
