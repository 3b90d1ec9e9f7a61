"""A single HTTP request with a timeout."""

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit


class UnavailableError(Exception):
    """A request failed: the response is missing or not usable, or the token for the server cannot be read."""


class RefusedError(UnavailableError):
    """A response with an error status; another request may still succeed."""


@dataclass(frozen=True)
class HttpResponse:
    """An HTTP status and a body."""

    status: int
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A request; `path` includes the query."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


def send(
    base_url: str,
    request: HttpRequest,
    timeout_seconds: float,
    tls: ssl.SSLContext | None = None,
) -> HttpResponse:
    """Send a request on a new connection and return the response.

    A persistent connection would be faster, but it would break whenever the machine is paused.

    Raises:
        UnavailableError: there was no valid response within `timeout_seconds`.
    """
    url = urlsplit(base_url)
    connection: http.client.HTTPConnection
    if url.scheme == "https":
        connection = http.client.HTTPSConnection(url.netloc, timeout=timeout_seconds, context=tls)
    else:
        connection = http.client.HTTPConnection(url.netloc, timeout=timeout_seconds)
    try:
        connection.request(request.method, request.path, request.body, dict(request.headers))
        response = connection.getresponse()
        return HttpResponse(response.status, response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:  # a header with a line break
        path = request.path.partition("?")[0]
        raise UnavailableError(f"{request.method} {base_url}{path}: {error}") from error
    finally:
        connection.close()
