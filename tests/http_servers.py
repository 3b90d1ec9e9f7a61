"""HTTP servers in threads of a test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer

POLL_SECONDS = 0.01
"""Interval at which a server checks for the end of its block; the default, half a second, would slow each test."""


@contextmanager
def serving(server: HTTPServer) -> Iterator[int]:
    """Yield the port of a server that serves requests during the block."""
    thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def stopping(server: HTTPServer) -> Iterator[int]:
    """Yield the port of a server that another thread runs already, and stop it after the block."""
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
