"""Reading the metrics of a worker: a program of a user may answer anything."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from controller.worker_metrics import MAX_BYTES, scrape


@contextmanager
def answering(respond: Callable[[socket.socket], None]) -> Iterator[int]:
    """Yield the port of a server that answers one connection in its own way."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):  # the client has closed its end
                respond(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(30)


def test_an_answer_that_does_not_end_is_given_up() -> None:
    given_up = threading.Event()

    def stall(connection: socket.socket) -> None:
        connection.sendall(b"everstep_step 1")
        given_up.wait(30)

    with answering(stall) as port:
        with pytest.raises(TimeoutError):
            scrape("127.0.0.1", port, 0.2)
        given_up.set()


def test_an_answer_without_bounds_is_given_up() -> None:
    def flood(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"x" * 65536)

    with answering(flood) as port, pytest.raises(OSError, match=f"longer than {MAX_BYTES}"):
        scrape("127.0.0.1", port, 30)
