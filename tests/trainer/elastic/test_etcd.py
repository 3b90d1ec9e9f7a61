"""The etcd client and the membership of agents, against a real etcd."""

import contextlib
import itertools
import logging
import queue
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

import pytest

from everstep.elastic.membership.agent import (
    Agent,
    LeftError,
    NodeAssignment,
    RunEndedError,
)
from everstep.elastic.membership.etcd_client import (
    Etcd,
    EtcdRefusedError,
    EtcdUnreachableError,
    WatchEvent,
)
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.events import (
    MemberPut,
    MemberRemoved,
    MembershipSnapshot,
    RunEnded,
)
from everstep.elastic.membership.generations import Generation, GroupLimits, Member
from everstep.elastic.membership.lease_probe import LeaseProbe
from everstep.elastic.membership.own_key import AgentIdentity
from everstep.elastic.membership.run_keys import RunKeys
from everstep.elastic.recovery.state_machine import StepProgress
from tests.processes import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.twin

LEASE_SECONDS = 4
"""Longer than a busy machine lets a test wait between two renewals."""


@pytest.fixture
def etcd(endpoint: str) -> Iterator[Etcd]:
    client = Etcd(EtcdOptions(endpoints=(endpoint,), retry_seconds=60))
    yield client
    client.close()


def test_keys_are_read_back_under_their_prefix(etcd: Etcd) -> None:
    etcd.put("/keys/a", "1")
    etcd.put("/keys/ä/b", "zwei")
    etcd.put("/other", "3")

    entries, revision = etcd.get("/keys/")

    assert [(entry.key, entry.value) for entry in entries] == [
        ("/keys/a", "1"),
        ("/keys/ä/b", "zwei"),
    ]
    assert revision >= entries[0].mod_revision


def test_one_of_two_concurrent_replacements_succeeds(etcd: Etcd) -> None:
    assert etcd.put_if_unchanged("/race", "first", 0)
    assert not etcd.put_if_unchanged("/race", "second", 0)

    entries, _ = etcd.get("/race")
    assert etcd.put_if_unchanged("/race", "third", entries[0].mod_revision)


def test_a_key_is_removed_with_its_lease(etcd: Etcd) -> None:
    lease = etcd.grant(60)
    etcd.put("/leased", "here", lease)
    assert etcd.keep_alive(lease, request_seconds=30, retry_seconds=60)

    etcd.revoke(lease)

    assert etcd.get("/leased")[0] == []
    assert not etcd.keep_alive(lease, request_seconds=30, retry_seconds=60)
    etcd.revoke(lease)  # revoking it again raises nothing


def test_the_expiry_of_a_lease_is_detected_but_not_too_early(etcd: Etcd) -> None:
    lease = etcd.grant(LEASE_SECONDS)
    etcd.put("/lapses", "here", lease)
    assert etcd.get("/lapses")[0][0].lease == lease
    for _ in range(3):
        time.sleep(0.6)
        renewed_after = time.monotonic()
        assert etcd.keep_alive(lease, request_seconds=30, retry_seconds=60)
    renewed_before, probe = time.monotonic(), LeaseProbe(lease)

    while True:
        sent_at = time.monotonic()
        seconds_left = etcd.seconds_left(lease, request_seconds=30)
        received_at = time.monotonic()
        if seconds_left is None or probe.observe(seconds_left, sent_at, received_at):
            break
        # The request may take any time, and etcd reads the clock at some moment during it.
        assert LEASE_SECONDS - (received_at - renewed_after) < seconds_left + 1
        assert seconds_left <= max(0.0, LEASE_SECONDS - (sent_at - renewed_before))
        time.sleep(0.05)

    assert received_at - renewed_after >= LEASE_SECONDS
    assert not etcd.keep_alive(lease, request_seconds=30, retry_seconds=60)
    etcd.revoke(lease)
    assert etcd.get("/lapses")[0] == []
    assert etcd.seconds_left(lease, request_seconds=30) is None


def test_a_key_under_a_lapsed_lease_is_refused_and_not_retried(etcd: Etcd) -> None:
    with pytest.raises(EtcdRefusedError, match="lease not found"):
        etcd.put("/lapsed", "here", 12345)


def test_a_watch_reports_every_change_in_order(etcd: Etcd) -> None:
    _, revision = etcd.get("/watched/")
    etcd.put("/watched/a", "1")
    etcd.delete("/watched/a")

    changes = [change for batch in _first_two_changes(etcd, revision) for change in batch]

    assert [(change.kind, change.entry.key) for change in changes] == [
        ("put", "/watched/a"),
        ("delete", "/watched/a"),
    ]


def _first_two_changes(etcd: Etcd, revision: int) -> Iterator[list[WatchEvent]]:
    received_count = 0
    for changes in etcd.watch("/watched/", revision + 1, 100):
        yield changes
        received_count += len(changes)
        if received_count == 2:
            return


def test_an_idle_watch_ends_so_that_the_keys_are_read_again(etcd: Etcd) -> None:
    _, revision = etcd.get("/silent/")

    with pytest.raises(OSError, match="timed out"):
        next(etcd.watch("/silent/", revision + 1, 0.3))


def test_a_watch_ends_immediately_if_its_revision_is_from_another_store(etcd: Etcd) -> None:
    reading = etcd.read("/replaced/")
    assert reading.cluster == etcd.cluster != ""

    with pytest.raises(OSError, match="etcd is another cluster"):
        next(etcd.watch("/replaced/", reading.revision + 1, 100, cluster="1"))
    with pytest.raises(OSError, match="etcd has gone back"):
        next(etcd.watch("/replaced/", reading.revision + 9, 100, cluster=reading.cluster))


def test_an_unreachable_endpoint_is_skipped(endpoint: str) -> None:
    options = EtcdOptions(endpoints=(f"127.0.0.1:{free_port()}", endpoint), retry_seconds=60)

    with contextlib.closing(Etcd(options)) as etcd:
        etcd.put("/failover", "1")

        assert etcd.get("/failover")[0][0].value == "1"


def test_resolved_addresses_are_used_without_dns(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd.put("/dns", "1")

    def raise_no_dns(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror("no DNS")

    monkeypatch.setattr(socket, "getaddrinfo", raise_no_dns)

    assert etcd.get("/dns")[0][0].value == "1"


def test_the_error_for_an_unreachable_etcd_contains_its_address() -> None:
    endpoint = f"127.0.0.1:{free_port()}"

    options = EtcdOptions(endpoints=(endpoint,), retry_seconds=0.3)

    with (
        contextlib.closing(Etcd(options)) as etcd,
        pytest.raises(EtcdUnreachableError, match=re.escape(endpoint)),
    ):
        etcd.get("/x")


class Peer:
    """An agent; the test acts as its worker."""

    def __init__(
        self, endpoint: str, run: str, name: str, limits: GroupLimits, *, heartbeats: bool = False
    ) -> None:
        self.stops: queue.Queue[str] = queue.Queue()
        self.regroups: queue.Queue[str] = queue.Queue()
        self.agent = Agent(
            Etcd(EtcdOptions(endpoints=(endpoint,), retry_seconds=60)),
            run,
            AgentIdentity(name, "127.0.0.1"),
            limits,
            open_store=lambda: "127.0.0.1:1",
            on_stop=self.stops.put,
            on_regroup=self.regroups.put,
            on_ended=lambda ended: None,
            heartbeats=heartbeats,
        )
        self.ranks: queue.Queue[NodeAssignment | Exception] = queue.Queue()
        self.agent.start()

    def request_rank(self) -> None:
        """Request a rank in the background."""
        threading.Thread(target=self._receive_rank, daemon=True).start()

    def _receive_rank(self) -> None:
        try:
            self.agent.report_ready()
            self.ranks.put(self.agent.next_assignment())
        except (LeftError, RunEndedError) as error:
            self.ranks.put(error)

    def assignment(self, timeout: float) -> NodeAssignment:
        """Return the rank assignment of this peer."""
        assignment = self.ranks.get(timeout=timeout)
        assert isinstance(assignment, NodeAssignment), assignment
        return assignment

    def vanish(self) -> None:
        """Stop renewing the lease and deciding anything, without notice."""
        self.agent._stop_threads()

    def silence(self) -> None:
        """Stop the heartbeats; the lease is still renewed, and etcd is still watched."""
        assert self.agent._heartbeats is not None
        self.agent._heartbeats.close()


SMALL_GROUP = GroupLimits(min_members=1, max_members=3)
LARGE_GROUP = GroupLimits(min_members=1, max_members=3, full_view_members=0, coordinators=1)


@pytest.fixture(params=[SMALL_GROUP, LARGE_GROUP], ids=["all-watch", "one-coordinator"])
def group(endpoint: str, request: pytest.FixtureRequest) -> Iterator[list[Peer]]:
    """Yield three peers in one generation, without heartbeats."""
    yield from peers_of_one_group(endpoint, request, heartbeats=False)


@pytest.fixture(params=[SMALL_GROUP, LARGE_GROUP], ids=["all-watch", "one-coordinator"])
def group_with_heartbeats(endpoint: str, request: pytest.FixtureRequest) -> Iterator[list[Peer]]:
    """Yield three peers in one generation."""
    yield from peers_of_one_group(endpoint, request, heartbeats=True)


def peers_of_one_group(
    endpoint: str, request: pytest.FixtureRequest, *, heartbeats: bool
) -> Iterator[list[Peer]]:
    """Yield three peers in one generation, and close them at the end."""
    run, limits = request.node.name, request.param
    names = ("n0", "n1", "n2")
    peers = [Peer(endpoint, run, name, limits, heartbeats=heartbeats) for name in names]
    try:
        for peer in peers:
            peer.request_rank()
        ranks = [peer.assignment(timeout=100) for peer in peers]
        assert sorted(assignment.rank for assignment in ranks) == [0, 1, 2]
        assert {assignment.generation.number for assignment in ranks} == {1}
        yield peers
    finally:
        for peer in peers:
            peer.agent.close()


def test_workers_that_can_never_exchange_data_form_few_generations(endpoint: str) -> None:
    """A wrong GLOO_SOCKET_IFNAME: each generation fails immediately, on all nodes."""
    limits = GroupLimits(min_members=2, max_members=2)
    peers = [Peer(endpoint, "no-data", name, limits) for name in ("n0", "n1")]
    started_at = time.monotonic()
    try:
        for expected in range(1, 6):
            for peer in peers:
                peer.request_rank()
            numbers = {peer.assignment(timeout=100).generation.number for peer in peers}
            assert numbers == {expected}
    finally:
        for peer in peers:
            peer.agent.close()

    assert time.monotonic() - started_at > 3.0, "the time between attempts grows"


def test_a_vanished_node_is_detected_when_its_lease_expires(group: list[Peer]) -> None:
    group[2].vanish()

    assert "lost" in group[0].stops.get(timeout=100)
    for peer in group[:2]:
        peer.request_rank()
    ranks = [peer.assignment(timeout=100) for peer in group[:2]]
    assert {assignment.generation.number for assignment in ranks} == {2}
    assert not group[0].agent.commit(1, 1, 5), (
        "the lost node may still run: its commits are refused"
    )
    assert group[0].agent.commit(2, 1, 5)


@pytest.mark.parametrize("lost_rank", [0, 1, 2])
def test_a_silent_member_with_a_valid_lease_is_fenced_and_joins_again(
    group_with_heartbeats: list[Peer], lost_rank: int
) -> None:
    silent_peer = group_with_heartbeats[lost_rank]
    remaining_peers = [peer for peer in group_with_heartbeats if peer is not silent_peer]
    wait_until(
        lambda: all(hears(peer, silent_peer) for peer in remaining_peers),
        "heartbeats have arrived",
        100,
    )
    silent_peer.silence()

    assert remaining_peers[0].stops.get(timeout=100) == f"lost n{lost_rank}"
    assert "suspected" in silent_peer.stops.get(timeout=100)
    for peer in group_with_heartbeats:
        peer.request_rank()
    while silent_peer.ranks.empty():  # it may miss the next group and join the one after it
        for peer in remaining_peers:
            with contextlib.suppress(queue.Empty):
                peer.regroups.get(timeout=0.05)
                peer.request_rank()
    generation = silent_peer.assignment(timeout=100).generation
    assert len(generation.members) == 3
    assert not silent_peer.agent.commit(1, 1, 5), "its old generation is over"


def hears(peer: Peer, other: Peer) -> bool:
    """Return True if a peer receives steady heartbeats from another peer."""
    assert peer.agent._heartbeats is not None
    arrivals = peer.agent._heartbeats._core._arrivals.get(other.agent._core.identity or "")
    return arrivals is not None and arrivals.is_steady


@pytest.mark.parametrize("lost_rank", [0, 1, 2])
def test_a_probing_neighbor_revokes_only_lapsed_leases(
    group: list[Peer], lost_rank: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "everstep.elastic.membership.lease_prober")
    generation = group[0].agent._core.own_generation
    assert generation is not None
    ranks = generation.ranks
    by_rank = sorted(group, key=lambda peer: ranks[peer.agent._core.identity or ""])
    remaining_peers = [peer for rank, peer in enumerate(by_rank) if rank != lost_rank]
    name = by_rank[lost_rank].agent._node.name
    by_rank[lost_rank].vanish()

    deadline = time.monotonic() + 100
    while remaining_peers[0].stops.empty() and time.monotonic() < deadline:
        for peer in remaining_peers:
            peer.agent.report_stall()
        time.sleep(0.1)

    assert [peer.stops.get(timeout=100) for peer in remaining_peers] == [f"lost {name}"] * 2
    messages = [
        record.getMessage() for record in caplog.records if "the lease of" in record.getMessage()
    ]
    assert len(messages) <= 1, "etcd may have removed it first"
    assert all(f"lease of {name}-" in line for line in messages)


def test_unreadable_keys_do_not_end_agents_or_groups(
    group: list[Peer], etcd: Etcd, request: pytest.FixtureRequest
) -> None:
    prefix = f"/everstep/{request.node.name}/"
    values = {"members/x": "hello", "coordinators/x": "7", "instructions/stop": "[]"}
    for key, value in {**values, "generation": "{}", "committed": "x"}.items():
        etcd.put(f"{prefix}{key}", value)
    wait_until(
        lambda: all(peer.agent._core._unreadable.committed for peer in group),
        "all agents read the last key",
        60,
    )

    assert all(peer.stops.empty() and peer.regroups.empty() for peer in group)
    assert not any(peer.agent._closed.is_set() for peer in group)
    assert not group[0].agent.commit(1, 1, 8), "a later generation may be current"

    etcd.delete(f"{prefix}committed")
    etcd.put(f"{prefix}generation", '{"number": 5, "members": [], "store": "none:1"}')
    for peer in group:
        # A slow agent may learn of a group that the others have formed since.
        assert re.fullmatch(r"generation [5-9] has replaced 1", peer.stops.get(timeout=100))
        peer.request_rank()
    numbers = {peer.assignment(timeout=100).generation.number for peer in group}
    assert min(numbers) >= 6, "on a busy machine, a member may be late for generation 6"


def test_a_leaving_node_is_announced_to_all_and_departs(group: list[Peer]) -> None:
    group[1].agent.leave()

    assert group[0].regroups.get(timeout=100) == "n1 leaves"
    assert group[1].regroups.get(timeout=100) == "n1 leaves"
    for peer in group:
        peer.request_rank()
    assert isinstance(group[1].ranks.get(timeout=100), LeftError)
    assert group[0].assignment(timeout=100).generation.number == 2
    assert group[1].agent.wait_departed(100)


def test_waiting_members_receive_the_end_of_the_run(group: list[Peer]) -> None:
    group[0].request_rank()  # its worker is gone, the others still run: it waits
    group[1].agent.end_run(RunEnded(finished=True, reason="done"), 1)

    error = group[0].ranks.get(timeout=100)
    assert isinstance(error, RunEndedError)
    assert error.outcome.finished


def test_the_end_of_an_earlier_run_of_the_same_name_is_ignored(etcd: Etcd) -> None:
    outcome = RunEnded(finished=True, reason="done")
    RunKeys(etcd, "again").put_outcome(outcome, None)
    later_keys = RunKeys(etcd, "again")

    assert outcome not in [*later_keys.read(), *later_keys.read()], "not even when it is read again"

    RunKeys(etcd, "again").put_outcome(outcome, None)
    assert outcome in [*later_keys.read()]


def test_only_workers_of_the_current_generation_may_end_the_run(etcd: Etcd) -> None:
    keys, failure = RunKeys(etcd, "outcome"), RunEnded(finished=False, reason="diverged")
    [*keys.read()]
    first_group, second_group = (
        Generation(1, ("a", "b"), "127.0.0.1:1"),
        Generation(2, ("a",), "127.0.0.1:1"),
    )
    assert not keys.put_outcome(failure, first_group), "there is no generation yet"
    assert keys.propose(first_group, 0)
    [agreed_snapshot] = [update for update in keys.read() if isinstance(update, MembershipSnapshot)]
    assert keys.propose(second_group, agreed_snapshot.revision)

    assert not keys.put_outcome(failure, first_group), "b was fenced out: the run of a continues"
    assert not keys.put_outcome(failure, None), (
        "a worker without a generation may not end it either"
    )
    assert failure not in [*keys.read()]

    assert keys.put_outcome(failure, second_group)
    assert failure in [*keys.read()]


def test_before_the_first_generation_any_worker_may_end_the_run(etcd: Etcd) -> None:
    keys, failure = RunKeys(etcd, "first"), RunEnded(finished=False, reason="no data")
    [*keys.read()]

    assert keys.put_outcome(failure, None)
    assert failure in [*keys.read()]


def test_a_commit_needs_the_current_generation_and_is_read_by_joiners(
    etcd: Etcd,
) -> None:
    keys, group = RunKeys(etcd, "commits"), Generation(1, ("a",), "127.0.0.1:1")
    assert not keys.commit(group, StepProgress(1, 5)), "there is no generation yet"

    assert keys.propose(group, 0)
    assert keys.commit(group, StepProgress(1, 5))
    assert not keys.commit(Generation(2, ("a",), "127.0.0.1:1"), StepProgress(1, 6))

    assert StepProgress(1, 5) in [*RunKeys(etcd, "commits").read()]


def test_commits_only_advance(etcd: Etcd) -> None:
    keys, group = RunKeys(etcd, "monotonic"), Generation(1, ("a",), "127.0.0.1:1")
    assert keys.propose(group, 0)
    assert keys.commit(group, StepProgress(1, 108))

    assert not keys.commit(group, StepProgress(1, 100)), "a slow request for an earlier step"
    assert keys.commit(group, StepProgress(1, 108)), "the same commit again: its response was lost"

    assert StepProgress(1, 108) in [*RunKeys(etcd, "monotonic").read()]


def test_changes_of_a_member_are_reported_as_events(etcd: Etcd) -> None:
    keys, member = RunKeys(etcd, "members"), Member("n0-1", "n0", "127.0.0.1", 0)
    [*keys.read()]
    lease = etcd.grant(60)
    keys.put_member(member, lease)
    etcd.revoke(lease)

    put_event, removal = itertools.islice(keys.follow(), 2)

    assert isinstance(put_event, MemberPut)
    assert (put_event.member.identity, put_event.member.node) == ("n0-1", "n0")
    assert removal == MemberRemoved("n0-1")
