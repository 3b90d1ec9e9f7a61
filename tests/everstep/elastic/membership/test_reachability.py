"""Probes between agents, over real sockets on loopback."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from everstep.elastic.membership import reachability
from everstep.elastic.membership.reachability import ProbeServer
from tests.ipv6 import needs_ipv6


@pytest.fixture(autouse=True)
def long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow a busy machine plenty of time for a connection."""
    monkeypatch.setattr(reachability, "PROBE_SECONDS", 60.0)


@contextlib.contextmanager
def server(address: str) -> Iterator[ProbeServer]:
    probe_server = ProbeServer(address)
    probe_server.start()
    with contextlib.closing(probe_server):
        yield probe_server


def test_a_probe_between_two_connected_nodes_succeeds() -> None:
    with server("127.0.0.2") as prober, server("127.0.0.3") as target:
        assert prober.probe([("other", target.endpoint)]) == frozenset()


def test_a_stopped_node_is_unreachable() -> None:
    with server("127.0.0.2") as prober:
        with server("127.0.0.3") as target:
            endpoint = target.endpoint
        assert prober.probe([("gone", endpoint), ("itself", prober.endpoint)]) == {"gone"}


def test_a_node_without_a_connection_back_is_unreachable() -> None:
    """Traffic from the peers to this node is dropped: its listener is closed."""
    with server("127.0.0.3") as target:
        prober = ProbeServer("127.0.0.2")
        prober.start()
        prober.close()

        assert prober.probe([("other", target.endpoint)]) == {"other"}, (
            "one direction is not enough"
        )


def test_a_frozen_node_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "PROBE_SECONDS", 0.05)
    with server("127.0.0.2") as prober, socket.create_server(("127.0.0.3", 0)) as frozen_listener:
        endpoint = f"127.0.0.3:{frozen_listener.getsockname()[1]}"

        assert prober.probe([("frozen", endpoint)]) == {"frozen"}


@needs_ipv6
@pytest.mark.parametrize("address", ["192.0.2.1", "localhost"])
def test_a_node_behind_another_address_is_reached_by_ipv4_and_ipv6(address: str) -> None:
    with server(address) as target:
        port = target.endpoint.rpartition(":")[2]
        for loopback in ("127.0.0.1", "::1"):
            with server(loopback) as prober:
                assert prober.probe([("other", f"{loopback}:{port}")]) == frozenset()


@pytest.mark.parametrize(
    ("message", "response"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"[]\n", b""),
        (b'{"port": 700000}\n', b'{"reached": false}\n'),
    ],
)
def test_an_invalid_message_does_not_end_the_responses(message: bytes, response: bytes) -> None:
    with server("127.0.0.2") as prober, server("127.0.0.3") as target:
        host, _, port = target.endpoint.rpartition(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(message)
            stranger.shutdown(socket.SHUT_WR)
            with stranger.makefile("rb") as reader:
                assert reader.readline() == response

        assert prober.probe([("other", target.endpoint)]) == frozenset()


class ExhaustedSocket(socket.socket):
    """A socket whose first connection cannot be accepted: its process has no free descriptor."""

    has_failed = False

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.has_failed:
            self.has_failed = True
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def test_a_connection_that_cannot_be_accepted_does_not_end_the_responses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the peers would avoid the node until its agent ends."""

    def listen(address: str) -> socket.socket:
        listener = ExhaustedSocket()
        listener.bind((address, 0))
        listener.listen()
        return listener

    monkeypatch.setattr(reachability, "_listen", listen)
    monkeypatch.setattr(reachability, "ACCEPT_RETRY_SECONDS", 0.01)

    with server("127.0.0.2") as prober, server("127.0.0.3") as target:
        assert prober.probe([("other", target.endpoint)]) == frozenset()
