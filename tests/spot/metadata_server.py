"""An HTTP server that responds like the metadata service of either cloud."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests import http_servers

ACTION = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
INSTANCE = "/metadata/instance?api-version=2021-02-01"


@dataclass
class MetadataServer:
    """State of the server.

    Attributes:
        cloud: `aws` or `azure`; requests for the other cloud's paths get an error.
        documents: path -> JSON; a valid request for another path gets 404.
        token: the only valid token.
        started_events: IDs of the events that were started early.
        issued_tokens: number of session tokens issued.
        stalling: while set, requests are accepted but get no response.
        stalled_requests: number of requests that got no response.
        silent_paths: paths at which the connection is closed without a response.
        base_url: URL of the server.
    """

    cloud: str
    documents: dict[str, Any] = field(default_factory=dict)
    token: str = "token-1"
    started_events: list[str] = field(default_factory=list)
    issued_tokens: int = 0
    stalling: threading.Event = field(default_factory=threading.Event)
    stalled_requests: int = 0
    silent_paths: set[str] = field(default_factory=set)
    base_url: str = ""
    _stopped: threading.Event = field(default_factory=threading.Event)

    def respond(self, method: str, path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        if self.stalling.is_set():
            self.stalled_requests += 1
            self._stopped.wait()
        if self.cloud == "aws":
            return self._aws(method, path, headers)
        return self._azure(method, path, headers, body)

    def _aws(self, method: str, path: str, headers: Message) -> tuple[int, bytes]:
        if method == "PUT" and path == "/latest/api/token":
            if not headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
                return 400, b""
            self.issued_tokens += 1
            return 200, self.token.encode()
        if headers.get("X-aws-ec2-metadata-token") != self.token:
            return 401, b""
        return self._document(path)

    def _azure(self, method: str, path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        if headers.get("Metadata") != "true":
            return 400, b""
        if method == "POST" and path == EVENTS:
            self.started_events += [
                start_request["EventId"] for start_request in json.loads(body)["StartRequests"]
            ]
            return 200, b""
        return self._document(path)

    def _document(self, path: str) -> tuple[int, bytes]:
        if path not in self.documents:
            return 404, b"<html>404</html>"
        return 200, json.dumps(self.documents[path]).encode()

    def stop(self) -> None:
        """Let the stalled requests continue."""
        self._stopped.set()


@contextlib.contextmanager
def serving(cloud: str, **documents: Any) -> Iterator[MetadataServer]:
    """Serve on a free port until the block ends."""
    service = MetadataServer(cloud, documents)

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if self.path in service.silent_paths:
                return
            status, content = service.respond(self.command, self.path, self.headers, body)
            with contextlib.suppress(OSError):  # the client has timed out
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = handle_any  # noqa: N815 - names of the base class

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with http_servers.serving(server) as port:
        service.base_url = f"http://127.0.0.1:{port}"
        try:
            yield service
        finally:
            service.stop()
