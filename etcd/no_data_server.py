"""HTTP server on etcd's client port, through which a member informs its peers that it has no data."""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from etcd.gateway import NO_DATA_PATH
from etcd.http_server import MemberHttpServer

HANDSHAKE_SECONDS = 5.0


class NoDataServer:
    """HTTP server of a member without data that waits for its peers.

    Args:
        name: name of the member.
        host: IP address to listen on; empty for all.
        port: port; 0 for any.
        context: TLS context of the server; None for plain HTTP.

    Attributes:
        readers: names of the peers that have read the response.
    """

    def __init__(
        self, name: str, host: str, port: int, context: ssl.SSLContext | None = None
    ) -> None:
        self.readers: set[str] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def setup(self) -> None:
                """Add TLS in the connection's own thread: the handshake waits for the client."""
                if context:
                    self.request.settimeout(HANDSHAKE_SECONDS)
                    self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()

            def do_POST(self) -> None:
                url = urlsplit(self.path)
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if url.path != NO_DATA_PATH:  # a client of etcd, which then tries another member
                    error = {"error": f"etcd has not started on {name}, which has no data"}
                    self._respond(HTTPStatus.SERVICE_UNAVAILABLE, error)
                    return
                self._respond(HTTPStatus.OK, {"no_data": name})
                server.readers |= set(parse_qs(url.query).get("from", []))

            def _respond(self, status: HTTPStatus, body: Mapping[str, str]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Log nothing: peers send a request every second."""

        class Server(MemberHttpServer):
            def handle_error(self, *_: object) -> None:
                """Log nothing: a client without a valid certificate is refused, others are served."""

        self._server = Server(host, port, Handler)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self._server.server_address[1])

    @contextlib.contextmanager
    def serve(self) -> Iterator["NoDataServer"]:
        """Serve requests during the block."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
