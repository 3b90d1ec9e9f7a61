"""Serves a machine's metadata, and what its stand-in containers ask of the machine, on the clouds' own address.

Below `/everstep/` is what no cloud has: a stand-in for an exporter reads the machine's load there, and one for a
device plugin holds a connection open for as long as it lives, which is how the machine knows that it does.
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

from twin.nodes import addressing, files, gpu_load, metadata_aws, metadata_azure
from twin.nodes.gpu_load import Meter
from twin.nodes.metadata_answer import Answer, Request
from twin.nodes.metadata_aws import Tokens
from twin.nodes.notices import Notice

PORT = 80
LOAD = "/everstep/load"
DEVICES = "/everstep/devices"
MAX_BODY = 1 << 16
KEEPALIVE_SECONDS = 5
FOREVER_SECONDS = 86400.0  # nobody asks the server to end: it need not look


@dataclass
class Holders:
    """How many connections are held open.

    Attributes:
        some: set while there is at least one.
    """

    some: threading.Event = field(default_factory=threading.Event)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, by: int) -> None:
        """Count one more or one fewer."""
        with self._lock:
            self._count += by
            if self._count:
                self.some.set()
            else:
                self.some.clear()


@dataclass
class Service:
    """What a machine says of itself.

    Attributes:
        facts: of the machine.
        notice: the file in which the cloud announces something.
        acknowledgement: the file in which an agreement to it is noted.
        plugins: the device plugins that are there.
    """

    facts: Mapping[str, Any]
    notice: Path
    acknowledgement: Path
    plugins: Holders = field(default_factory=Holders)
    _tokens: Tokens = field(default_factory=Tokens)
    _meter: Meter = field(default_factory=Meter)

    def answer(self, request: Request) -> Answer:
        """Answer a request."""
        if request.path == LOAD:
            return Answer(HTTPStatus.OK, self._load(), "text/plain; version=0.0.4")
        notice = Notice.load(self.notice)
        if self.facts["cloud"] == "azure":
            noted = files.read_json(self.acknowledgement) or {}
            started = bool(notice) and noted.get("event") == getattr(notice, "event", None)
            given = metadata_azure.answer(request, self.facts, notice, started=started)
            if given.acknowledged:
                files.write_json(self.acknowledgement, {"event": given.acknowledged})
            return given
        return metadata_aws.answer(request, self.facts, notice, self._tokens, time.time())

    def _load(self) -> str:
        used = self._meter.memory_bytes()
        gpus = int(self.facts["gpus"])
        return gpu_load.exposition(self.facts["name"], gpus, self._meter.utilisation(), used)


def serve(service: Service, host: str = str(addressing.METADATA), port: int = PORT) -> None:
    """Answer requests, for ever."""
    server_of(service, host, port).serve_forever(poll_interval=FOREVER_SECONDS)


def server_of(service: Service, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that listens."""

    class Handler(_Handler):
        asked = service

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    """Turns HTTP into requests and answers."""

    asked: Service
    server_version = "everstep"

    def do_GET(self) -> None:
        """Answer a GET."""
        if urlsplit(self.path).path == DEVICES:
            self._hold()
        else:
            self._answer()

    def do_PUT(self) -> None:
        """Answer a PUT."""
        self._answer()

    def do_POST(self) -> None:
        """Answer a POST."""
        self._answer()

    def log_message(self, *_: object) -> None:
        """Keep quiet: watchers ask every second."""

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        length = min(int(self.headers.get("Content-Length") or 0), MAX_BODY)
        request = Request(
            method=self.command,
            path=parts.path,
            query=dict(parse_qsl(parts.query)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length) if length else b"",
        )
        answer = self.asked.answer(request)
        content = answer.body.encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": answer.kind, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _hold(self) -> None:
        """Count the connection until the other side ends it, or is no more."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(f"{self.asked.facts['gpus']}\n".encode())
        self.asked.plugins.change(+1)
        try:
            self.rfile.read(1)
        except OSError:
            pass  # gone without a word: the same to us
        finally:
            self.asked.plugins.change(-1)
