"""The few requests the twin makes to its API server.

The official client costs 50 MB and 0.75 s before its first request. The keeper lives as long as the twin and
has a tenth of that to spend, and a verb such as `vanish` should not wait for imports.
"""

import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twin.nodes import addressing

APPLY = "application/apply-patch+yaml"  # JSON is YAML
MERGE = "application/merge-patch+json"
MANAGER = "everstep-twin"


class ApiError(Exception):
    """The API server said no.

    Attributes:
        status: the HTTP status.
        message: the server's own words.
        body: the whole answer, for what stands in its details.
    """

    def __init__(self, status: int, message: str, body: dict[str, Any]) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.body = body


class _Connection(http.client.HTTPConnection):
    """An HTTPS connection whose socket can be closed whenever it fails.

    The standard one connects first, and loses a socket that is reset while TLS is put around it: the keeper,
    which relays to the API server, may end at any moment.
    """

    def __init__(self, host: str, port: int, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=timeout)
        self._context = context

    def connect(self) -> None:
        """Put TLS around the socket, then connect it."""
        plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.settimeout(self.timeout)
        self.sock = self._context.wrap_socket(plain, server_hostname=self.host)
        self.sock.connect((self.host, self.port))


@dataclass(frozen=True)
class Api:
    """Requests to one API server, each on a connection of its own.

    Attributes:
        pki: the folder with `ca.crt` and the client's pair.
        user: the name of the pair.
        host: where the server is reached: through the relay, or in its own network.
        port: likewise.
        timeout_seconds: after which a request fails with OSError.
    """

    pki: Path
    user: str
    host: str = str(addressing.CONTROL_PLANE)
    port: int = addressing.API_PORT
    timeout_seconds: float = 10.0

    def get(self, path: str) -> dict[str, Any]:
        """Read an object or a list."""
        return self.request("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object."""
        return self.request("POST", path, body)

    def merge(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Change some fields of an object."""
        return self.request("PATCH", path, body, MERGE)

    def apply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object or make its fields as given (server-side apply)."""
        query = f"{path}?fieldManager={MANAGER}&force=true"
        return self.request("PATCH", query, body, APPLY)

    def delete(self, path: str) -> None:
        """Delete an object; one that is not there is fine."""
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def ready(self) -> bool:
        """Whether the server is there and says that it is ready."""
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
        """Make one request and return the answer; an answer that is no JSON object comes back empty.

        Raises:
            ApiError: the server refused.
            OSError: it could not be reached in time.
        """
        connection = _Connection(self.host, self.port, self.timeout_seconds, self._context())
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": content_type})
            response = connection.getresponse()
            answer = _parse(response.read())
        except http.client.HTTPException as error:
            raise ConnectionError(f"no proper answer: {error!r}") from error
        finally:
            connection.close()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise ApiError(response.status, str(answer.get("message", response.reason)), answer)
        return answer

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / f"{self.user}.crt", self.pki / f"{self.user}.key")
        return context


def _parse(answer: bytes) -> dict[str, Any]:
    try:
        value = json.loads(answer)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
