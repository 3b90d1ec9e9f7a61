"""Reading the metrics of a worker: the program of a user may send any response."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from controller.worker_metrics import MAX_BYTES, scrape


@contextmanager
def server_with(respond: Callable[[socket.socket], None]) -> Iterator[int]:
    """Yield the port of a server that handles one connection with `respond`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):  # the client has closed its end
                respond(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(30)


def test_a_response_that_does_not_end_times_out() -> None:
    test_over = threading.Event()

    def stall(connection: socket.socket) -> None:
        connection.sendall(b"everstep_step 1")
        test_over.wait(30)

    with server_with(stall) as port:
        with pytest.raises(TimeoutError):
            scrape("127.0.0.1", port, 0.2)
        test_over.set()


def test_a_response_that_is_too_long_is_refused() -> None:
    def flood(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"x" * 65536)

    with server_with(flood) as port, pytest.raises(OSError, match=f"longer than {MAX_BYTES}"):
        scrape("127.0.0.1", port, 30)
