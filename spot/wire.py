"""One HTTP request with a bound on how long it may take."""

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit


class NoAnswer(Exception):  # noqa: N818 - no error of ours: the other side is away, and we go on
    """Nobody answered in time, or what came was no HTTP."""


class Refused(NoAnswer):
    """The other side answered and would not: asking it for something else may still work."""


@dataclass(frozen=True)
class Answer:
    """A server's answer: its HTTP status and its body."""

    status: int
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


def ask(
    base: str, request: Request, timeout_seconds: float, tls: ssl.SSLContext | None = None
) -> Answer:
    """Make one request to the server at `base`, on a connection of its own.

    A kept connection would be quicker, and would fail after each pause of the machine.

    Raises:
        NoAnswer: no answer within `timeout_seconds` of silence.
    """
    at = urlsplit(base)
    connection: http.client.HTTPConnection
    if at.scheme == "https":
        connection = http.client.HTTPSConnection(at.netloc, timeout=timeout_seconds, context=tls)
    else:
        connection = http.client.HTTPConnection(at.netloc, timeout=timeout_seconds)
    try:
        connection.request(request.method, request.path, request.body, dict(request.headers))
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(
            f"{request.method} {base}{request.path.partition('?')[0]}: {error}"
        ) from error
    finally:
        connection.close()
