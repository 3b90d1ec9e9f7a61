"""The sockets of a group; the abort of real groups is tested in `test_abortable_group`."""

import socket

from everstep.elastic.transport.sockets import shut_down, socket_names

WAIT_SECONDS = 100.0  # limit on a busy machine


def test_a_descriptor_that_another_connection_uses_by_now_is_not_shut_down() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), WAIT_SECONDS) as client,
        server.accept()[0] as other_end,
    ):
        other_end.settimeout(WAIT_SECONDS)

        shut_down(client.fileno(), "socket:[1]")
        client.sendall(b"still open")
        assert other_end.recv(100) == b"still open"

        shut_down(client.fileno(), socket_names()[client.fileno()])
        assert other_end.recv(1) == b""
