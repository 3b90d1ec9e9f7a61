"""A server for S3's GetObject that can hold requests for whole objects, so that a cache stays cold.

    python -m tests.e2e.object_server ADDRESS PORT FOLDER

Serves the files of FOLDER/BUCKET/PREFIX. While the file FOLDER/hold exists, a request for all bytes of an object named
*.jpegs waits; a request for a part of it does not. Each response with an object is a line of FOLDER/requests.jsonl.
"""

import json
import re
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOLD, REQUESTS, SHARD = "hold", "requests.jsonl", ".jpegs"
POLL_SECONDS = 0.1
MISSING = b"<Error><Code>NoSuchKey</Code><Message>There is no such object.</Message></Error>"


class Server(ThreadingHTTPServer):
    """The server; each connection has a thread."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], folder: Path) -> None:
        super().__init__(address, Handler)
        self.folder = folder
        self.writing = threading.Lock()

    def record(self, client: str, name: str, *, is_whole: bool) -> None:
        """Record the response to a request for an object or a part of it, as one write."""
        line = json.dumps({"client": client, "name": name, "is_whole": is_whole}) + "\n"
        with self.writing, (self.folder / REQUESTS).open("a") as file:
            file.write(line)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Send an object or a part of it."""
        path = self.server.folder / self.path.partition("?")[0].lstrip("/")
        if not path.is_file():
            self._send(HTTPStatus.NOT_FOUND, MISSING, {})
            return
        size = path.stat().st_size
        first, last = self._range(size)
        is_whole = (first, last) == (0, size - 1)
        if is_whole and path.suffix == SHARD:
            self._wait()
        with path.open("rb") as file:
            file.seek(first)
            content = file.read(last + 1 - first)
        self.server.record(self.client_address[0], path.name, is_whole=is_whole)
        headers = (
            {"Content-Range": f"bytes {first}-{last}/{size}"} if "Range" in self.headers else {}
        )
        self._send(HTTPStatus.PARTIAL_CONTENT if headers else HTTPStatus.OK, content, headers)

    def _range(self, size: int) -> tuple[int, int]:
        """Return the first and the last byte of the request."""
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        return (int(match[1]), min(int(match[2]), size - 1)) if match else (0, size - 1)

    def _wait(self) -> None:
        while (self.server.folder / HOLD).exists():
            time.sleep(POLL_SECONDS)

    def _send(self, status: HTTPStatus, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content)), "ETag": '"e"'}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write nothing: requests.jsonl has each response with an object."""


if __name__ == "__main__":
    Server((sys.argv[1], int(sys.argv[2])), Path(sys.argv[3])).serve_forever()
