"""The connection to etcd without an etcd."""

import socket

from everstep.elastic.membership.etcd_connection import Connection, EtcdAddress


class ClosedConnection(Connection):
    """A connection that its own thread closes as soon as another thread has read `sock`."""

    _open_socket: socket.socket | None = None

    @property
    def sock(self) -> socket.socket | None:
        open_socket, self._open_socket = self._open_socket, None
        return open_socket

    @sock.setter
    def sock(self, open_socket: socket.socket | None) -> None:
        self._open_socket = open_socket


def test_a_connection_that_another_thread_closes_can_be_interrupted() -> None:
    """The deciding thread may interrupt a watch while the watch thread closes it; an error would end the agent."""
    connection = ClosedConnection(EtcdAddress("a", "127.0.0.1", 1), None, 1.0)
    own_end, peer_end = socket.socketpair()
    with own_end, peer_end:
        connection.sock = own_end

        connection.interrupt()

        assert peer_end.recv(1) == b"", "a pending read ends"
