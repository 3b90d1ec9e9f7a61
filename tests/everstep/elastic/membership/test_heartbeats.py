"""Heartbeats between agents, over real sockets on loopback."""

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.membership import arrivals, peer_addresses
from everstep.elastic.membership.etcd_client import Etcd
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.events import Resumed
from everstep.elastic.membership.generations import Generation, Member
from everstep.elastic.membership.heartbeats import Heartbeats, decode, encode
from everstep.elastic.membership.run_keys import RunKeys
from everstep.elastic.membership.run_view import RunView
from everstep.elastic.membership.suspicion import HeartbeatMessage
from tests.ipv6 import needs_ipv6
from tests.waiting import wait_until

GENERATION = Generation(7, ("a", "b"), "127.0.0.1:1")
TIMEOUT_SECONDS = 100.0  # limit on a loaded machine; 0.6 s otherwise


@pytest.fixture(autouse=True)
def few_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a member be suspected after two heartbeats; `test_suspicion` tests the real number."""
    monkeypatch.setattr(arrivals, "MIN_BEATS", 2)


class FenceRecorder(RunKeys):
    """The keys of a run, which record fences instead of executing them."""

    def __init__(self, etcd: Etcd) -> None:
        super().__init__(etcd, "run")
        self.fences: queue.SimpleQueue[tuple[int, int, str, list[str]]] = queue.SimpleQueue()

    def fence(
        self, generation: Generation, revision: int, fencer: Member, suspects: Collection[Member]
    ) -> bool:
        names = [member.identity for member in suspects]
        self.fences.put((generation.number, revision, fencer.identity, names))
        return True


class Node:
    """One agent's heartbeats, on its own port."""

    def __init__(
        self, name: str, listener: socket.socket | None = None, host: str = "127.0.0.1"
    ) -> None:
        etcd = Etcd(EtcdOptions(endpoints=("127.0.0.1:1",)))
        self.name, self.keys = name, FenceRecorder(etcd)
        self.resumed: queue.SimpleQueue[Resumed] = queue.SimpleQueue()
        self.heartbeats = Heartbeats(etcd, self.keys, self.resumed.put)
        self.listener = listener or socket.create_server(("127.0.0.1", 0))
        self.host = host
        self.heartbeats.open(self.listener)
        self.thread = threading.Thread(target=self.heartbeats.run, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.listener.getsockname()[1]}"

    def follow(self, *nodes: "Node") -> None:
        members = {
            node.name: Member(node.name, node.name, "127.0.0.1", endpoint=node.endpoint, order=1)
            for node in nodes
        }
        self.heartbeats.follow(self.name, RunView(members, current=GENERATION, revision=9))

    def close(self) -> None:
        self.heartbeats.close()
        self.thread.join(TIMEOUT_SECONDS)
        self.listener.close()


@contextlib.contextmanager
def pair() -> Iterator[tuple[Node, Node]]:
    """Run two agents that observe each other."""
    with contextlib.closing(Node("a")) as node_a, contextlib.closing(Node("b")) as node_b:
        for node in (node_a, node_b):
            node.follow(node_a, node_b)
            node.thread.start()
        yield node_a, node_b


def wait_for_heartbeats(node: Node, peer: str) -> None:
    """Wait until a node receives steady heartbeats from a peer."""

    def are_steady() -> bool:
        heartbeats = node.heartbeats._core._arrivals.get(peer)
        return heartbeats is not None and heartbeats.is_steady

    wait_until(
        are_steady,
        f"{node.name} receives heartbeats from {peer}",
        TIMEOUT_SECONDS,
        interval_seconds=0.05,
    )


def test_a_member_that_falls_silent_is_fenced_with_the_generation_and_its_revision() -> None:
    with pair() as (node_a, node_b):
        wait_for_heartbeats(node_a, "b")
        node_b.heartbeats.close()

        assert node_a.keys.fences.get(timeout=TIMEOUT_SECONDS) == (7, 9, "a", ["b"])


def test_a_member_that_falls_silent_is_not_fenced_while_the_workers_of_its_generation_train() -> (
    None
):
    with pair() as (node_a, node_b):
        wait_for_heartbeats(node_a, "b")
        node_b.heartbeats.close()
        silent_since = time.monotonic()
        while time.monotonic() < silent_since + 2.0:
            node_a.heartbeats.record_training(GENERATION.number)
            time.sleep(0.05)
        assert node_a.keys.fences.empty()

        def is_fenced() -> bool:
            node_a.heartbeats.record_training(GENERATION.number - 1)
            return not node_a.keys.fences.empty()

        wait_until(is_fenced, "b is fenced", TIMEOUT_SECONDS, interval_seconds=0.05)


def test_a_member_without_a_key_is_reported_as_soon_as_it_sends_a_heartbeat() -> None:
    with pair() as (node_a, _):
        wait_for_heartbeats(node_a, "b")
        assert node_a.resumed.empty(), "it has a key"

        node_a.follow(node_a)

        assert node_a.resumed.get(timeout=TIMEOUT_SECONDS) == Resumed("b")


@needs_ipv6
def test_a_node_that_listens_on_all_addresses_exchanges_heartbeats_by_ipv4() -> None:
    listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with (
        contextlib.closing(Node("a", listener)) as node_a,
        contextlib.closing(Node("b")) as node_b,
    ):
        for node in (node_a, node_b):
            node.follow(node_a, node_b)
            node.thread.start()

        wait_for_heartbeats(node_a, "b")
        wait_for_heartbeats(node_b, "a")


def test_a_node_whose_name_resolves_later_receives_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Callable[..., Any] = socket.getaddrinfo
    failures = iter(["the first lookup"])

    def getaddrinfo(host: str, port: int, *args: Any, flags: int = 0) -> Any:
        if host == "node-b" and not flags & socket.AI_NUMERICHOST:
            if next(failures, None):
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            host = "127.0.0.1"
        return real(host, port, *args, flags=flags)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(peer_addresses, "RESOLVE_INTERVAL_SECONDS", 0.0)
    with (
        contextlib.closing(Node("a")) as node_a,
        contextlib.closing(Node("b", host="node-b")) as node_b,
    ):
        for node in (node_a, node_b):
            node.follow(node_a, node_b)
            node.thread.start()

        wait_for_heartbeats(node_b, "a")


def test_packets_from_unknown_senders_neither_end_the_thread_nor_count_as_heartbeats() -> None:
    with pair() as (node_a, node_b), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        wait_for_heartbeats(node_a, "b")
        address = node_a.listener.getsockname()
        for packet in (b"", b"\xff", b"[]", encode(HeartbeatMessage("stranger", ("b",)))):
            stranger.sendto(packet, address)
        node_b.heartbeats.close()

        assert node_a.keys.fences.get(timeout=TIMEOUT_SECONDS)[3] == ["b"]


def test_an_agent_whose_port_another_program_uses_still_sends() -> None:
    with contextlib.closing(Node("a")) as node_a, contextlib.closing(Node("b")) as node_b:
        without_port = Heartbeats(node_b.heartbeats._etcd, node_b.keys, node_b.resumed.put)
        without_port.open(node_a.listener)
        node_a.heartbeats, with_port = without_port, node_a.heartbeats
        node_a.thread = threading.Thread(target=without_port.run, daemon=True)
        for node in (node_a, node_b):
            node.follow(node_a, node_b)
            node.thread.start()

        wait_for_heartbeats(node_b, "a")
        assert with_port._socket is not None
        with_port._socket.close()


@given(
    st.builds(
        HeartbeatMessage,
        st.text(),
        st.lists(st.text(), max_size=8).map(tuple),
        st.lists(st.text(), max_size=8).map(tuple),
        is_response=st.booleans(),
    )
)
def test_a_decoded_packet_equals_the_encoded_message(message: HeartbeatMessage) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "packet", [b"", b"{}", b"7", b'{"from": "a", "suspects": 3, "hears": [], "answer": 0}']
)
def test_an_invalid_packet_is_ignored(packet: bytes) -> None:
    assert decode(packet) is None
