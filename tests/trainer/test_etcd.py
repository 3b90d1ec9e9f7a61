"""The etcd client and the agent around membership, against a real etcd."""

import itertools
import logging
import queue
import socket
import threading
import time

import pytest

from everstep.elastic.agent import Agent, LeftError, Node, Place, RunEndedError
from everstep.elastic.etcd import Etcd, EtcdOptions, EtcdRefusedError, EtcdUnreachableError
from everstep.elastic.generations import Generation, Member, Rules
from everstep.elastic.lapse import Lapse
from everstep.elastic.membership_events import Ended, MemberGone, MemberPut, Tick
from everstep.elastic.recovery import Standing
from everstep.elastic.run_keys import RunKeys
from tests.trainer.nodes import free_port

pytestmark = [pytest.mark.twin, pytest.mark.timeout(120)]


@pytest.fixture
def etcd(endpoint):
    client = Etcd(EtcdOptions(endpoints=(endpoint,), patience_seconds=5))
    yield client
    client.close()


def test_keys_are_read_back_under_their_prefix(etcd):
    etcd.put("/keys/a", "1")
    etcd.put("/keys/ä/b", "zwei")
    etcd.put("/other", "3")

    entries, revision = etcd.get("/keys/")

    assert [(entry.key, entry.value) for entry in entries] == [
        ("/keys/a", "1"),
        ("/keys/ä/b", "zwei"),
    ]
    assert revision >= entries[0].modified


def test_of_two_who_replace_the_same_value_one_succeeds(etcd):
    assert etcd.put_if_unchanged("/race", "first", 0)
    assert not etcd.put_if_unchanged("/race", "second", 0)

    entries, _ = etcd.get("/race")
    assert etcd.put_if_unchanged("/race", "third", entries[0].modified)


def test_a_key_goes_with_its_lease(etcd):
    lease = etcd.grant(60)
    etcd.put("/leased", "here", lease)
    assert etcd.keep_alive(lease, request_seconds=1, patience_seconds=2)

    etcd.revoke(lease)

    assert etcd.get("/leased")[0] == []
    assert not etcd.keep_alive(lease, request_seconds=1, patience_seconds=2)
    etcd.revoke(lease)  # a second time is no error


def test_a_lease_that_nobody_renews_is_known_to_have_lapsed_and_not_before(etcd):
    lease = etcd.grant(2)
    etcd.put("/lapses", "here", lease)
    assert etcd.get("/lapses")[0][0].lease == lease
    for _ in range(3):
        time.sleep(0.6)
        renewed_after = time.monotonic()
        etcd.keep_alive(lease, request_seconds=1, patience_seconds=2)
    lapse, answers = Lapse(lease), set()

    while True:
        asked_at = time.monotonic()
        left = etcd.seconds_left(lease, request_seconds=0.3)
        answers.add(left)
        if left is None or lapse.told(left, asked_at, time.monotonic()):
            break
        time.sleep(0.05)

    assert asked_at - renewed_after >= 2.0
    assert answers >= {1, 0}
    assert not etcd.keep_alive(lease, request_seconds=1, patience_seconds=2)
    etcd.revoke(lease)
    assert etcd.get("/lapses")[0] == []
    assert etcd.seconds_left(lease, request_seconds=0.3) is None


def test_a_key_under_a_lapsed_lease_is_refused_and_not_retried(etcd):
    with pytest.raises(EtcdRefusedError, match="lease not found"):
        etcd.put("/lapsed", "here", 12345)


def test_a_watch_tells_every_change_in_order(etcd):
    _, revision = etcd.get("/watched/")
    etcd.put("/watched/a", "1")
    etcd.delete("/watched/a")

    told = [change for changes in _first_two(etcd, revision) for change in changes]

    assert [(change.kind, change.entry.key) for change in told] == [
        ("put", "/watched/a"),
        ("delete", "/watched/a"),
    ]


def _first_two(etcd, revision):
    seen = 0
    for changes in etcd.watch("/watched/", revision + 1, 5):
        yield changes
        seen += len(changes)
        if seen == 2:
            return


def test_a_silent_watch_ends_so_that_its_reader_looks_afresh(etcd):
    _, revision = etcd.get("/silent/")

    with pytest.raises(OSError, match="timed out"):
        next(etcd.watch("/silent/", revision + 1, 0.3))


def test_a_dead_endpoint_is_passed_over(endpoint):
    etcd = Etcd(EtcdOptions(endpoints=(f"127.0.0.1:{free_port()}", endpoint), patience_seconds=5))

    etcd.put("/failover", "1")

    assert etcd.get("/failover")[0][0].value == "1"
    etcd.close()


def test_addresses_once_known_serve_without_dns(etcd, monkeypatch):
    etcd.put("/dns", "1")

    def down(*_, **__):
        raise socket.gaierror("no DNS")

    monkeypatch.setattr(socket, "getaddrinfo", down)

    assert etcd.get("/dns")[0][0].value == "1"


def test_an_etcd_that_is_not_there_is_an_error_with_its_address():
    endpoint = f"127.0.0.1:{free_port()}"

    with pytest.raises(EtcdUnreachableError, match=endpoint):
        Etcd(EtcdOptions(endpoints=(endpoint,), patience_seconds=0.3)).get("/x")


class Peer:
    """An agent whose worker is this test."""

    def __init__(self, endpoint: str, run: str, name: str, rules: Rules) -> None:
        self.stops: queue.Queue[str] = queue.Queue()
        self.regroups: queue.Queue[str] = queue.Queue()
        self.agent = Agent(
            Etcd(EtcdOptions(endpoints=(endpoint,), patience_seconds=10)),
            run,
            Node(name, "127.0.0.1"),
            rules,
            open_store=lambda: "127.0.0.1:1",
            on_stop=self.stops.put,
            on_regroup=self.regroups.put,
            on_ended=lambda ended: None,
        )
        self.places: queue.Queue[Place | Exception] = queue.Queue()
        self.agent.start()

    def wait(self) -> None:
        """Ask for a place, in the background."""
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        try:
            self.places.put(self.agent.rendezvous())
        except (LeftError, RunEndedError) as error:
            self.places.put(error)

    def vanish(self) -> None:
        """Stop renewing the lease without a word, and deciding anything."""
        self.agent._closed.set()
        self.agent._events.put(Tick())  # else it would hear of its own end first, and object


@pytest.fixture
def group(endpoint, request):
    """Three peers in one generation."""
    rules = Rules(min_members=1, max_members=3)
    peers = [Peer(endpoint, request.node.name, f"n{number}", rules) for number in range(3)]
    for peer in peers:
        peer.wait()
    places = [peer.places.get(timeout=20) for peer in peers]
    assert sorted(place.rank for place in places) == [0, 1, 2]
    assert {place.generation.number for place in places} == {1}
    yield peers
    for peer in peers:
        peer.agent.close()


def test_a_vanished_node_is_noticed_when_its_lease_lapses(group):
    group[2].vanish()

    assert "lost" in group[0].stops.get(timeout=10)
    for peer in group[:2]:
        peer.wait()
    places = [peer.places.get(timeout=10) for peer in group[:2]]
    assert {place.generation.number for place in places} == {2}
    assert not group[0].agent.commit(1, 1, 5), (
        "the lost node may still run: its commits are refused"
    )
    assert group[0].agent.commit(2, 1, 5)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_neighbour_that_looks_revokes_a_lapsed_lease_and_spares_those_that_stand(
    group, lost, caplog
):
    caplog.set_level(logging.INFO, "everstep.elastic.agent")
    ranks = group[0].agent._core.mine.places
    by_rank = sorted(group, key=lambda peer: ranks[peer.agent._core.identity])
    staying = [peer for rank, peer in enumerate(by_rank) if rank != lost]
    name = by_rank[lost].agent._node.name
    by_rank[lost].vanish()

    deadline = time.monotonic() + 10
    while staying[0].stops.empty() and time.monotonic() < deadline:
        for peer in staying:
            peer.agent.stalled()
        time.sleep(0.1)

    assert [peer.stops.get(timeout=10) for peer in staying] == [f"lost {name}"] * 2
    lapsed = [
        record.getMessage() for record in caplog.records if "the lease of" in record.getMessage()
    ]
    assert len(lapsed) <= 1, "etcd's own look may have come first"
    assert all(f"lease of {name}-" in line for line in lapsed)


def test_a_leaving_node_is_known_to_all_and_departs(group):
    group[1].agent.leave()

    assert group[0].regroups.get(timeout=10) == "n1 leaves"
    assert group[1].regroups.get(timeout=10) == "n1 leaves"
    for peer in group:
        peer.wait()
    assert isinstance(group[1].places.get(timeout=10), LeftError)
    assert group[0].places.get(timeout=10).generation.number == 2
    assert group[1].agent.wait_departed(10)


def test_the_end_of_the_run_reaches_those_who_wait(group):
    group[0].wait()  # its worker is gone, the others still run: it waits
    group[1].agent.end_run(Ended(finished=True, reason="done"))

    over = group[0].places.get(timeout=10)
    assert isinstance(over, RunEndedError)
    assert over.ended.finished


def test_the_end_of_an_earlier_run_of_the_same_name_is_not_this_one_s(etcd):
    over = Ended(finished=True, reason="done")
    RunKeys(etcd, "again").put_outcome(over)
    later = RunKeys(etcd, "again")

    assert over not in [*later.read(), *later.read()], "nor when it is read afresh"

    RunKeys(etcd, "again").put_outcome(over)
    assert over in [*later.read()]


def test_a_commit_holds_only_for_the_current_generation_and_is_read_by_who_comes(etcd):
    keys = RunKeys(etcd, "commits")
    assert not keys.commit(1, Standing(1, 5)), "there is no generation yet"

    assert keys.propose(Generation(1, ("a",), "127.0.0.1:1"), 0)
    assert keys.commit(1, Standing(1, 5))
    assert not keys.commit(2, Standing(1, 6))

    assert Standing(1, 5) in [*RunKeys(etcd, "commits").read()]


def test_what_happens_to_a_member_is_news(etcd):
    keys, member = RunKeys(etcd, "members"), Member("n0-1", "n0", "127.0.0.1", 0)
    [*keys.read()]
    lease = etcd.grant(5)
    keys.put_member(member, lease)
    etcd.revoke(lease)

    put, gone = itertools.islice(keys.follow(), 2)

    assert isinstance(put, MemberPut)
    assert (put.member.identity, put.member.node) == ("n0-1", "n0")
    assert gone == MemberGone("n0-1")
