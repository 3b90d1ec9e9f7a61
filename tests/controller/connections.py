"""A server for one connection, for clients that must survive any response."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

END_SECONDS = 30
"""Limit for the end of a connection; typically it ends immediately."""


@contextmanager
def serving_one_connection(respond: Callable[[socket.socket], object]) -> Iterator[int]:
    """Yield the port of a server that handles one connection with `respond`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):  # the client may have closed its end
                respond(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(END_SECONDS)
        assert not thread.is_alive(), "the connection must end with the test"
