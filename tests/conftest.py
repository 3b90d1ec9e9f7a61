"""Settings and fixtures of all tests; Hypothesis has no deadline, because test machines may be busy."""

import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.effort import SEARCHES, examples

settings.register_profile(
    "everstep",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=settings().derandomize and not SEARCHES,
)
settings.load_profile("everstep")

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 s


@pytest.fixture
def reset_before_tls(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield the port of a server that resets each connection before its client begins TLS."""
    server = socket.create_server(("127.0.0.1", 0))
    wrap = ssl.SSLContext.wrap_socket

    def reset() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            connection.close()

    def wrap_after_the_reset(
        context: ssl.SSLContext, connection: socket.socket, *arguments: Any, **options: Any
    ) -> ssl.SSLSocket:
        select.select([connection], [], [])  # it becomes readable with the reset
        return wrap(context, connection, *arguments, **options)

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap_after_the_reset)
    thread = threading.Thread(target=reset)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()
