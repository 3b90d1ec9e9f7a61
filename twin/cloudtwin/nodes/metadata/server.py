"""HTTP server of a machine's metadata service, at the address that the clouds use.

Paths below `/cloudtwin/` are for the stand-in containers on the machine. The stand-in of the GPU exporter reads the
machine's load. The stand-in of the device plugin holds a connection open while it runs, and the machine offers its
GPUs while there is a connection.
"""

import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.nodes.metadata import aws, azure, gpu_load
from cloudtwin.nodes.metadata.aws import Tokens
from cloudtwin.nodes.metadata.gpu_load import Meter
from cloudtwin.nodes.metadata.http import MetadataRequest, MetadataResponse
from cloudtwin.nodes.metadata.notices import Notice
from cloudtwin.nodes.network import addressing

PORT = 80
LOAD = "/cloudtwin/load"
DEVICES = "/cloudtwin/devices"
MAX_BODY_BYTES = 1 << 16
KEEPALIVE_SECONDS = 5
SHUTDOWN_POLL_SECONDS = 86400.0  # the server never shuts down


@dataclass
class OpenConnections:
    """Counter of open connections.

    Attributes:
        any_open: set while there is at least one connection.
    """

    any_open: threading.Event = field(default_factory=threading.Event)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, difference: int) -> None:
        """Add a difference, which may be negative, to the count."""
        with self._lock:
            self._count += difference
            if self._count:
                self.any_open.set()
            else:
                self.any_open.clear()


@dataclass
class MetadataService:
    """A machine's metadata service.

    Attributes:
        facts: properties of the machine.
        notice: file with the cloud's termination notice.
        acknowledgement: file for the acknowledgement of a notice.
        plugins: connections of device plugins.
    """

    facts: Mapping[str, Any]
    notice: Path
    acknowledgement: Path
    plugins: OpenConnections = field(default_factory=OpenConnections)
    _tokens: Tokens = field(default_factory=Tokens)
    _meter: Meter = field(default_factory=Meter)

    def respond(self, request: MetadataRequest) -> MetadataResponse:
        """Return the response to a request."""
        if request.path == LOAD:
            return MetadataResponse(HTTPStatus.OK, self._load(), "text/plain; version=0.0.4")
        notice = Notice.load(self.notice)
        if self.facts["cloud"] == "azure":
            # A damaged acknowledgement counts as none, as in `is_acknowledged`; the next one replaces it.
            acknowledgement = files.read_json_if_valid(self.acknowledgement) or {}
            started = notice is not None and acknowledgement.get("event") == notice.event
            response = azure.respond(request, self.facts, notice, started=started)
            if response.acknowledged_event:
                files.write_json(self.acknowledgement, {"event": response.acknowledged_event})
            return response
        return aws.respond(request, self.facts, notice, self._tokens, time.time())

    def _load(self) -> str:
        used_bytes = self._meter.memory_bytes()
        gpus = int(self.facts["gpus"])
        return gpu_load.exposition(self.facts["name"], gpus, self._meter.utilization(), used_bytes)


def serve(service: MetadataService, host: str = str(addressing.METADATA), port: int = PORT) -> None:
    """Serve requests, forever."""
    server_of(service, host, port).serve_forever(poll_interval=SHUTDOWN_POLL_SECONDS)


def server_of(service: MetadataService, host: str, port: int) -> ThreadingHTTPServer:
    """Return a listening server."""
    handler = type("Handler", (_Handler,), {"service": service})
    server = ThreadingHTTPServer((host, port), handler)
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    """HTTP handler that passes requests to the metadata service."""

    service: MetadataService
    server_version = "cloudtwin"

    def do_GET(self) -> None:
        """Respond to a GET."""
        if urlsplit(self.path).path == DEVICES:
            self._hold()
        else:
            self._respond()

    def do_PUT(self) -> None:
        """Respond to a PUT."""
        self._respond()

    def do_POST(self) -> None:
        """Respond to a POST."""
        self._respond()

    def log_message(self, *_: object) -> None:
        """Log nothing: watchers poll every second."""

    def _respond(self) -> None:
        parts = urlsplit(self.path)
        length = min(int(self.headers.get("Content-Length") or 0), MAX_BODY_BYTES)
        request = MetadataRequest(
            method=self.command,
            path=parts.path,
            query=dict(parse_qsl(parts.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length) if length else b"",
        )
        try:
            response = self.service.respond(request)
        except TwinError as error:
            print(error, flush=True)
            response = MetadataResponse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), "text/plain")
        content = response.body.encode()
        self.send_response(response.status)
        for name, value in {"Content-Type": response.content_type, **response.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _hold(self) -> None:
        """Count the connection until the client closes it or is gone."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(f"{self.service.facts['gpus']}\n".encode())
        self.service.plugins.change(+1)
        try:
            self.rfile.read(1)
        except OSError:
            pass  # the client was killed
        finally:
            self.service.plugins.change(-1)
