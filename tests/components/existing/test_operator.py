"""The check of an existing cluster for a Prometheus operator, against an HTTP server that answers as an API server."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from components.config import StackConfig, from_mapping
from components.config.faults import ConfigurationError
from components.existing.operator import require_operator
from components.platform.operator_objects import KINDS
from tests.processes import free_port


def config(kind: str) -> StackConfig:
    return from_mapping({"platform": {"monitoring": {"kind": kind}}})


def kubeconfig(port: int) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


@contextmanager
def api_server(status: int, *kinds: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the kubeconfig of a server with these kinds of the operator, and the requested paths."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            resources = [
                {
                    "name": kind.lower(),
                    "singularName": "",
                    "kind": kind,
                    "namespaced": True,
                    "verbs": [],
                }
                for kind in kinds
            ]
            body = {"groupVersion": "monitoring.coreos.com/v1", "resources": resources}
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield kubeconfig(server.server_port), paths
    finally:
        server.shutdown()
        server.server_close()


def test_a_cluster_without_the_operator_is_refused_with_a_fix() -> None:
    with api_server(404) as (file, _), pytest.raises(ConfigurationError) as caught:
        require_operator(config("operator"), file)

    message = str(caught.value)
    assert "everstep:platform.monitoring.kind: operator" in message
    assert "PodMonitor, ServiceMonitor, PrometheusRule" in message
    assert "install one first" in message


def test_a_single_missing_kind_is_named() -> None:
    with api_server(200, *KINDS[:2]) as (file, _), pytest.raises(ConfigurationError) as caught:
        require_operator(config("operator"), file)

    assert "does not serve PrometheusRule of" in str(caught.value)


def test_a_cluster_with_the_operator_is_accepted() -> None:
    with api_server(200, *KINDS) as (file, paths):
        require_operator(config("operator"), file)

    assert paths == ["/apis/monitoring.coreos.com/v1"]


def test_a_stack_without_monitoring_sends_no_request() -> None:
    with api_server(404) as (file, paths):
        require_operator(config("none"), file)

    assert paths == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_request_is_a_warning(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", warnings.append)
    with api_server(status) as (file, _):
        require_operator(config("operator"), file)

    assert str(status) in warnings[0]


def test_a_cluster_that_does_not_respond_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", warnings.append)

    require_operator(config("operator"), kubeconfig(free_port()))

    assert "was not checked" in warnings[0]
