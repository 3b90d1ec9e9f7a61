"""Parsing of pods, error responses, and the command line."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from spot import client
from spot.__main__ import parse
from spot.client import ApiServer, read_pod
from spot.drain import Eviction
from spot.http import RefusedError
from tests.http_servers import serving
from tests.spot.simulation import pod


def pod_document(**changes: Any) -> dict[str, Any]:
    metadata = {"namespace": "elastic-job", "name": "fashion-worker-0", "uid": "1"}
    pod: dict[str, Any] = {"metadata": metadata, "spec": {}, "status": {"phase": "Running"}}
    for key, values in changes.items():
        pod[key] = {**pod[key], **values}
    return pod


def test_a_pod_is_parsed_with_its_grace_period_and_its_end() -> None:
    pod = read_pod(
        pod_document(
            metadata={"deletionTimestamp": "2026-11-21T08:22:00Z"},
            spec={"terminationGracePeriodSeconds": 110},
        )
    )

    assert (pod.namespace, pod.name, pod.uid) == ("elastic-job", "fashion-worker-0", "1")
    assert (pod.grace_seconds, pod.ends_at, pod.is_ignored) == (110, 1795249320.0, False)


@pytest.mark.parametrize(
    ("changes", "ignored"),
    [
        ({}, False),
        ({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}}, True),
        ({"metadata": {"ownerReferences": [{"kind": "ElasticJob", "controller": True}]}}, False),
        ({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, True),
        ({"status": {"phase": "Succeeded"}}, True),
        ({"status": {"phase": "Failed"}}, True),
        ({"status": {"phase": "Pending"}}, False),
    ],
)
def test_drains_ignore_daemonset_pods_static_pods_and_finished_pods(
    changes: dict[str, Any], ignored: bool
) -> None:
    assert read_pod(pod_document(**changes)).is_ignored is ignored


def test_in_a_pod_the_address_of_the_api_server_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NODE_NAME", "gpu-0")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    args = parse([])

    assert (args.node, args.api, args.cloud) == ("gpu-0", "https://[fd00::1]:443", "auto")


@pytest.mark.parametrize("arguments", [["--node", "gpu-0"], ["--api", "https://10.0.0.1:443"]])
def test_outside_a_pod_node_and_api_server_are_required(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("NODE_NAME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(SystemExit):
        parse(arguments)

    assert "--node and --api are required outside a pod" in capsys.readouterr().err


def test_a_worker_is_recognized_by_its_label_and_its_deadline_is_parsed() -> None:
    labels = {"group-name": "elastic.pytorch.org"}
    annotations = {"everstep.dev/deadline": "2026-11-21T08:20:30Z"}

    worker = read_pod(pod_document(metadata={"labels": labels, "annotations": annotations}))

    assert (worker.is_worker, worker.deadline) == (True, "2026-11-21T08:20:30Z")
    assert not read_pod(pod_document()).is_worker


@pytest.fixture
def overloaded_api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """Yield an API server that responds to each request with 429 and plain text."""

    class Handler(BaseHTTPRequestHandler):
        def refuse(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content = b"Too many requests, please try again later.\n"
            self.send_response(429)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_PATCH = do_POST = refuse  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 100.0)
    (tmp_path / "token").write_text("t")
    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield ApiServer(f"http://127.0.0.1:{port}", "gpu-0", tmp_path / "token", tls=None)


def test_an_overloaded_api_server_counts_as_refusing_and_not_as_unavailable(
    overloaded_api_server: ApiServer,
) -> None:
    """After a refusal the watcher continues with the next pod; unavailability ends its pass."""
    with pytest.raises(RefusedError, match=r"Too many requests, .* later. \(HTTP 429\)"):
        overloaded_api_server.patch_node({})
    with pytest.raises(RefusedError, match="HTTP 429"):
        overloaded_api_server.evict(Eviction(pod=pod("worker"), grace_seconds=1))
