"""Requests to an API server behind a relay that may end at any time."""

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes.control_plane import pki


def test_a_reset_before_tls_is_an_error_and_leaves_no_socket_open(
    tmp_path: Path, reset_before_tls: int
) -> None:
    ca = pki.new_ca("test")
    ca.save(tmp_path, "ca")
    ca.save(tmp_path, "admin")

    with pytest.raises(OSError, match="reset"):  # an open socket fails the test as well
        KubernetesClient(tmp_path, "admin", "127.0.0.1", reset_before_tls).get("/readyz")


LOG = "epoch 1: accuracy 0.91\n"
POD = "/api/v1/namespaces/elastic-job/pods/worker-0"


class ApiServer(BaseHTTPRequestHandler):
    """A server that responds with the log of one pod in plain text, and refuses all other requests."""

    def do_GET(self) -> None:
        """Respond to a request."""
        is_log = self.path == f"{POD}/log"
        body = (LOG if is_log else '{"message": "container is waiting to start"}').encode()
        self.send_response(200 if is_log else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Log nothing."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[KubernetesClient]:
    ca = pki.new_ca("test")
    ca.save(tmp_path, "ca")
    pki.issue(ca, "admin").save(tmp_path, "admin")
    pki.issue(ca, "server", addresses=[IPv4Address("127.0.0.1")]).save(tmp_path, "server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    with HTTPServer(("127.0.0.1", 0), ApiServer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield KubernetesClient(
            tmp_path, "admin", "127.0.0.1", server.server_port, timeout_seconds=120
        )
        server.shutdown()
        thread.join()


def test_the_log_of_a_pod_is_read_as_text(client: KubernetesClient) -> None:
    assert client.text(f"{POD}/log") == LOG


def test_a_refused_log_request_has_the_reason(client: KubernetesClient) -> None:
    with pytest.raises(ApiError, match="400: container is waiting to start"):
        client.text(f"{POD}/log?previous=true")
