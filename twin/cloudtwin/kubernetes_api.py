"""A small client of the Kubernetes API.

The official client needs 50 MB and 0.75 s before its first request. The twin's network holder
(`nodes.control_plane.network_holder`) runs as long as the twin and should stay small, and a command such as `vanish`
should not wait for imports.
"""

import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

APPLY = "application/apply-patch+yaml"  # JSON is YAML
MERGE = "application/merge-patch+json"
MANAGER = "cloudtwin-twin"


class ApiError(Exception):
    """Error response of the API server.

    Attributes:
        status: the HTTP status.
        message: the server's message.
        body: the whole response, with its details.
    """

    def __init__(self, status: int, message: str, body: dict[str, Any]) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.body = body


class _Connection(http.client.HTTPConnection):
    """An HTTPS connection whose socket is closed on every failure.

    `http.client.HTTPSConnection` connects before it wraps the socket, and leaks the socket if the handshake fails.
    The handshake can fail at any time, because the network holder, which relays to the API server, can end at any time.
    """

    def __init__(self, host: str, port: int, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=timeout)
        self._context = context

    def connect(self) -> None:
        """Wrap the socket, then connect it."""
        plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.settimeout(self.timeout)
        self.sock = self._context.wrap_socket(plain, server_hostname=self.host)
        self.sock.connect((self.host, self.port))


@dataclass(frozen=True)
class KubernetesClient:
    """Requests to one API server, each on its own connection.

    All methods except `ready` raise as `request` does.

    Attributes:
        pki: folder with `ca.crt` and the client's key pair.
        user: name of the key pair.
        host: address of the server, or of the relay to it.
        port: port of the server or relay.
        timeout_seconds: time after which a request fails with OSError.
    """

    pki: Path
    user: str
    host: str
    port: int
    timeout_seconds: float = 10.0

    def get(self, path: str) -> dict[str, Any]:
        """Read an object or a list."""
        return self.request("GET", path)

    def text(self, path: str) -> str:
        """Read a response that is not JSON, such as the log of a pod."""
        return self._send("GET", path).decode(errors="replace")

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object."""
        return self.request("POST", path, body)

    def merge(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Change some fields of an object."""
        return self.request("PATCH", path, body, MERGE)

    def apply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object or set the fields of an existing one (server-side apply)."""
        query = f"{path}?fieldManager={MANAGER}&force=true"
        return self.request("PATCH", query, body, APPLY)

    def delete(self, path: str) -> None:
        """Delete an object, if it exists."""
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def ready(self) -> bool:
        """Return True if the server is ready."""
        try:
            self.request("GET", "/readyz")
        except (ApiError, OSError):
            return False
        return True

    def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Send one request and return the response; a response that is not a JSON object is returned as {}.

        Raises:
            ApiError: the server refused.
            OSError: the server could not be reached in time.
        """
        payload = None if body is None else json.dumps(body)
        return _parse(self._send(method, path, payload, content_type))

    def _send(
        self,
        method: str,
        path: str,
        payload: str | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send one request and return the body of the response; raise as `request` does."""
        connection = _Connection(self.host, self.port, self.timeout_seconds, self._context())
        try:
            connection.request(method, path, payload, {"Content-Type": content_type})
            response = connection.getresponse()
            body = response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"invalid response: {error!r}") from error
        finally:
            connection.close()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            status = _parse(body)
            raise ApiError(response.status, str(status.get("message", response.reason)), status)
        return body

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / f"{self.user}.crt", self.pki / f"{self.user}.key")
        return context


def _parse(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
