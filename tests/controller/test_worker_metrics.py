"""Reading the metrics of a worker: a user's program may send any response."""

import socket
import threading

import pytest

from controller.worker_metrics import MAX_BYTES, scrape
from tests.controller.connections import END_SECONDS, serving_one_connection


def test_a_response_that_does_not_end_times_out() -> None:
    test_over = threading.Event()

    def stall(connection: socket.socket) -> None:
        connection.sendall(b"everstep_step 1")
        test_over.wait(END_SECONDS)

    with serving_one_connection(stall) as port:
        try:
            with pytest.raises(TimeoutError):
                scrape("127.0.0.1", port, 0.2)
        finally:
            test_over.set()


def test_a_response_that_is_too_long_is_refused() -> None:
    def flood(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"x" * 65536)

    with (
        serving_one_connection(flood) as port,
        pytest.raises(OSError, match=f"longer than {MAX_BYTES}"),
    ):
        scrape("127.0.0.1", port, 30)
