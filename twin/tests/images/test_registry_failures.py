"""Registries that cannot be reached, end a connection, issue no token or redirect to a storage service."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest
from cloudtwin.images.registry_client import Login, Registry, RegistryError

TOO_LARGE_CONTENT_LENGTH = 100


class BrokenRegistry(BaseHTTPRequestHandler):
    """A registry that ends responses early; its repositories below `private` require a token."""

    def do_GET(self) -> None:
        """Respond to a request."""
        if self.path.startswith("/v2/private/"):
            challenge = f'Bearer realm="http://{self.headers["Host"]}/token"'
            self.send_response(401)
            self.send_header("WWW-Authenticate", challenge)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = b"[]"
        length = len(content) if self.path.startswith("/token") else TOO_LARGE_CONTENT_LENGTH
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Log nothing."""


@pytest.fixture
def broken_registry() -> Iterator[Registry]:
    with HTTPServer(("127.0.0.1", 0), BrokenRegistry) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Registry(f"127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def test_a_connection_that_ends_within_a_response_is_reported(broken_registry: Registry) -> None:
    with pytest.raises(RegistryError, match="cannot be reached: IncompleteRead") as error:
        broken_registry.digest("team/x", "1")

    assert error.value.status == 0


def test_a_token_service_without_a_token_is_reported(broken_registry: Registry) -> None:
    with pytest.raises(RegistryError, match=r"token service of 127\.0\.0\.1:.* returned no token"):
        broken_registry.digest("private/x", "1")


def test_a_registry_that_does_not_listen_is_reported() -> None:
    registry = Registry("ghcr.io", None, "http://127.0.0.1:1/v2/ghcr.io")

    with pytest.raises(RegistryError, match=r"the registry ghcr\.io cannot be reached") as error:
        registry.digest("team/x", "1")

    assert error.value.status == 0


def test_a_remote_registry_is_never_called_over_plain_http() -> None:
    with pytest.raises(RegistryError, match="not an https address"):
        Registry("ghcr.io", None, "http://192.0.2.1/v2").digest("team/x", "1")


class RedirectingRegistry(BaseHTTPRequestHandler):
    """A registry that requires a password and redirects to a storage service; it records requests to that service."""

    storage_requests: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        """Respond to a request."""
        if self.path == "/storage":
            self.storage_requests.append(self.headers["Authorization"])
            self.send_response(200)
        elif self.headers["Authorization"] is None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="registry"')
        else:
            self.send_response(307)
            self.send_header(
                "Location", f"http://localhost:{self.headers['Host'].split(':')[1]}/storage"
            )
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Log nothing."""


def test_the_storage_that_a_registry_redirects_to_does_not_get_the_password() -> None:
    with HTTPServer(("127.0.0.1", 0), RedirectingRegistry) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        Registry(f"127.0.0.1:{server.server_port}", Login("user", "secret")).digest("team/x", "1")
        server.shutdown()
        thread.join()

    assert RedirectingRegistry.storage_requests == [None]
