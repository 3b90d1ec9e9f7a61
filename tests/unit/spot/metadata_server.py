"""A small HTTP server that answers as the metadata services of both clouds do."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ACTION = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
INSTANCE = "/metadata/instance?api-version=2021-02-01"


@dataclass
class Service:
    """What the service says, and what it was told.

    Attributes:
        cloud: whose service it is; the other's paths answer 404.
        documents: path -> JSON; a path that is missing answers 404.
        token: the only one that is taken; a new one makes the old one invalid.
        started: events that somebody let start.
        stalling: while set, requests are taken and not answered.
    """

    cloud: str
    documents: dict[str, Any] = field(default_factory=dict)
    token: str = "token-1"
    started: list[str] = field(default_factory=list)
    tokens_given: int = 0
    stalling: threading.Event = field(default_factory=threading.Event)
    base: str = ""
    _over: threading.Event = field(default_factory=threading.Event)

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes]:
        if self.stalling.is_set():
            self._over.wait()
        return self._aws(method, path, headers) if self.cloud == "aws" else self._azure(
            method, path, headers, body
        )  # fmt: skip

    def _aws(self, method: str, path: str, headers: Any) -> tuple[int, bytes]:
        if method == "PUT" and path == "/latest/api/token":
            if not headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
                return 400, b""
            self.tokens_given += 1
            return 200, self.token.encode()
        if headers.get("X-aws-ec2-metadata-token") != self.token:
            return 401, b""
        return self._document(path)

    def _azure(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes]:
        if headers.get("Metadata") != "true":
            return 400, b""
        if method == "POST" and path == EVENTS:
            self.started += [one["EventId"] for one in json.loads(body)["StartRequests"]]
            return 200, b""
        return self._document(path)

    def _document(self, path: str) -> tuple[int, bytes]:
        if path not in self.documents:
            return 404, b"<html>404</html>"
        return 200, json.dumps(self.documents[path]).encode()

    def end(self) -> None:
        self._over.set()


@contextmanager
def serving(cloud: str, **documents: Any) -> Iterator[Service]:
    """Serve on a port of this machine until the block ends."""
    service = Service(cloud, documents)

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            status, answer = service.answer(self.command, self.path, self.headers, body)
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                pass  # whoever asked has stopped waiting

        do_GET = do_PUT = do_POST = handle_any  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.base = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        service.end()
        server.shutdown()
        thread.join()
        server.server_close()
