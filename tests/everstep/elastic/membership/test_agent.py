"""The threads and leases of an agent, with a fake etcd."""

import threading
import time
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.membership.agent import WATCH_INTERVAL_SECONDS, Agent, LeftError
from everstep.elastic.membership.etcd_client import (
    NOT_FOUND,
    Etcd,
    EtcdRefusedError,
    EtcdUnreachableError,
    KeyValue,
    Reading,
    WatchEvent,
)
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.events import (
    Announce,
    Begin,
    Coordinate,
    Depart,
    Evict,
    LeaseLapsed,
    Reachable,
    Ready,
    Reclaim,
    Register,
    Registered,
    RunEnded,
    Unreachable,
    Withdraw,
)
from everstep.elastic.membership.generations import Generation, GroupLimits
from everstep.elastic.membership.own_key import TTL_SECONDS, AgentIdentity
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.errors import EverstepError


class FakeEtcd(Etcd):
    """A fake etcd that grants leases and stores keys; the first puts fail as with a lapsed lease.

    Args:
        lapsed_puts: number of puts that are refused.
        code: gRPC code of the refusal.

    Attributes:
        responds: whether it responds to a request to revoke a lease.
        leases: number of leases granted.
        renewals: number of renewals.
        keys: lease by key.
    """

    def __init__(self, *, lapsed_puts: int = 0, code: int = NOT_FOUND) -> None:
        super().__init__(EtcdOptions(endpoints=("127.0.0.1:1",)))
        self.lapsed_puts, self.code = lapsed_puts, code
        self.responds = True
        self.leases = self.renewals = 0
        self.keys: dict[str, int] = {}

    def grant(self, ttl_seconds: int) -> int:
        del ttl_seconds
        self.leases += 1
        return self.leases

    def put(self, key: str, value: str, lease: int = 0, **_: Any) -> int:
        del value
        if self.lapsed_puts:
            self.lapsed_puts -= 1
            raise EtcdRefusedError("etcdserver: requested lease not found", self.code)
        self.keys[key] = lease
        return 1

    def put_while_unchanged(self, key: str, value: str, *, lease: int = 0, **_: Any) -> bool:
        self.put(key, value, lease)
        return True

    def get(self, prefix: str, **_: Any) -> tuple[list[KeyValue], int]:
        entries = [
            KeyValue(key, "", 1, 1, lease)
            for key, lease in self.keys.items()
            if key.startswith(prefix)
        ]
        return entries, 1

    def keep_alive(self, lease: int, **_: Any) -> bool:
        del lease
        self.renewals += 1
        return True

    def revoke(self, lease: int, **_: Any) -> None:
        if not self.responds:
            raise EtcdUnreachableError("etcd has not responded for 2 s")
        self.keys = {
            key: lease_of_key for key, lease_of_key in self.keys.items() if lease_of_key != lease
        }


def new_agent(etcd: FakeEtcd, stops: list[str] | None = None) -> Agent:
    return Agent(
        etcd,
        "run",
        AgentIdentity("n0", "127.0.0.1"),
        GroupLimits(),
        open_store=lambda: "127.0.0.1:1",
        on_stop=(stops if stops is not None else []).append,
        on_regroup=lambda _: None,
        on_ended=lambda _: None,
    )


@pytest.mark.parametrize("action", [Register(0), Reclaim("n0-1", 0, leaving=False, revision=1)])
def test_a_lease_that_lapses_before_its_key_is_put_is_replaced(action: Register | Reclaim) -> None:
    etcd = FakeEtcd(lapsed_puts=2)
    agent = new_agent(etcd)

    agent._carry_out(action)

    assert isinstance(agent._events.get_nowait(), Registered)
    assert list(etcd.keys.values()) == [3], "the key is under the newest lease"
    assert agent._own_key.lease == 3


def test_another_refusal_is_an_error_and_is_not_retried() -> None:
    etcd = FakeEtcd(lapsed_puts=1, code=7)

    with pytest.raises(EtcdRefusedError, match="lease not found"):
        new_agent(etcd)._carry_out(Register(0))
    assert etcd.leases == 1


@given(st.lists(st.builds(StepProgress, st.integers(0, 3), st.integers(0, 3)), max_size=6))
def test_a_commit_is_never_undone_by_an_older_value_of_its_key(commits: list[StepProgress]) -> None:
    agent = new_agent(FakeEtcd())
    observed_commits = [agent.committed]

    for commit in commits:
        agent._handle_updates([commit])
        observed_commits.append(agent.committed)

    assert observed_commits == sorted(observed_commits), "committed steps would be lost or repeated"
    assert agent.committed == max(commits, default=StepProgress())


def test_an_exception_in_a_thread_ends_the_whole_agent() -> None:
    stops: list[str] = []
    etcd = FakeEtcd()
    agent = new_agent(etcd, stops)
    agent._carry_out(Register(0))

    def watch() -> None:
        raise AssertionError("a bug")

    agent._run_and_close(watch)

    assert stops == ["membership ended: a bug"]
    assert etcd.keys == {}, "the others must not wait for an agent that does not react"
    with pytest.raises(AssertionError, match="a bug"):
        agent.next_assignment()


@pytest.mark.parametrize("action", [Withdraw(), Depart()])
def test_a_node_withdraws_and_departs_although_etcd_does_not_respond(
    action: Withdraw | Depart,
) -> None:
    """Otherwise, a worker that crashes in an outage would end the agent and the node's other workers."""
    etcd = FakeEtcd()
    agent = new_agent(etcd)
    agent._carry_out(Register(0))
    etcd.responds = False

    agent._carry_out(action)

    assert not agent._own_key.lease, "it must not be renewed, so that it lapses"
    assert agent.wait_departed(0) == isinstance(action, Depart)
    if isinstance(action, Depart):
        with pytest.raises(LeftError):
            agent.next_assignment()


@pytest.mark.parametrize("end", ["run_ends", "fails", "closes"])
def test_the_wait_for_a_departure_ends_if_the_node_will_not_depart(end: str) -> None:
    """Otherwise the launcher would wait for its whole grace period."""
    agent = new_agent(FakeEtcd())
    match end:
        case "run_ends":
            agent._carry_out(RunEnded(finished=True, reason="8 steps"))
        case "fails":
            agent._fail(EtcdUnreachableError("gone"))
        case "closes":
            agent.close()
    started_at = time.monotonic()

    assert not agent.wait_departed(60)

    assert time.monotonic() - started_at < 5


def test_the_lease_of_a_node_that_withdrew_in_an_outage_is_not_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    etcd = FakeEtcd()
    agent = new_agent(etcd)
    agent._carry_out(Register(0))
    etcd.responds = False
    agent._carry_out(Withdraw())
    waits = iter([False, True])
    monkeypatch.setattr(agent._own_key._closed, "wait", lambda _: next(waits))

    agent._own_key.keep_lease()

    assert etcd.renewals == 0


@pytest.mark.parametrize("action", [Announce(3, leaving=False), Coordinate()])
def test_no_key_is_put_without_a_lease_when_the_lease_lapses_meanwhile(
    action: Announce | Coordinate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a key would stay permanently, since no lease removes it."""
    etcd = FakeEtcd()
    agent = new_agent(etcd)
    agent._carry_out(Register(0))
    agent._core.identity = "n0-1"

    def lapse() -> str:
        agent._own_key.lease = 0  # as the lease thread does
        return "127.0.0.1:1"

    monkeypatch.setattr(agent._own_key, "_endpoint", lapse)

    agent._carry_out(action)

    assert len(etcd.keys) == 2
    assert 0 not in etcd.keys.values()


class LapsedEtcd(FakeEtcd):
    """A fake etcd in which every lease has lapsed when it is renewed."""

    def keep_alive(self, lease: int, **_: Any) -> bool:
        del lease
        return False


def test_the_lapse_of_a_lease_does_not_clear_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without renewals, the new key would disappear after seconds."""
    agent = new_agent(LapsedEtcd())
    deciding = threading.Thread(target=agent._carry_out, args=(Register(0),))

    class ComparedLease(int):
        """A lease whose comparison lets the deciding thread register first, unless a lock prevents it."""

        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            deciding.start()
            deciding.join(0.2)
            return isinstance(other, int) and int(self) == int(other)

    agent._own_key.lease = ComparedLease(7)
    waits = iter([False, True])
    monkeypatch.setattr(agent._own_key._closed, "wait", lambda _: next(waits))

    agent._own_key.keep_lease()
    deciding.join()

    assert agent._own_key.lease == 1
    events = list(agent._more_events())
    assert isinstance(events[0], LeaseLapsed)
    assert isinstance(events[1], Registered), (
        "a later report of the old lease would end the new identity"
    )


class ClosingEtcd(FakeEtcd):
    """A fake etcd that stores a key only after the agent was closed."""

    agent: Agent

    def put(self, key: str, value: str, lease: int = 0, **_: Any) -> int:
        self.agent.close()
        return super().put(key, value, lease)


def test_a_key_that_is_put_while_its_agent_closes_is_removed() -> None:
    etcd = ClosingEtcd()
    etcd.agent = new_agent(etcd)

    etcd.agent._carry_out(Register(0))

    assert etcd.keys == {}, "the others would wait for its lease to lapse"


class UnreadableEtcd(FakeEtcd):
    """A fake etcd whose keys cannot be read, and whose watch reports another such key, and then breaks."""

    def read(self, prefix: str, **_: Any) -> Reading:
        names = ("members/x", "coordinators/x", "generation", "committed", "instructions/stop")
        return Reading([KeyValue(f"{prefix}{name}", "hello", 1, 1, 1) for name in names], 9)

    def watch(self, prefix: str, *_: Any, **__: Any) -> Generator[list[WatchEvent], None, None]:
        yield [WatchEvent("put", KeyValue(f"{prefix}members/y", "{}", 10, 10, 1))]
        raise ConnectionError("the connection broke")


def test_unreadable_keys_end_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[str] = []
    agent = new_agent(UnreadableEtcd(), stops)
    turns = iter([False, True])
    monkeypatch.setattr(agent._closed, "is_set", lambda: next(turns))

    agent._run_and_close(agent._watch)
    actions = agent._core.handle_all([*agent._more_events(), Ready()], 0)

    assert stops == []
    assert agent._assignments.empty(), "the agent has not ended"
    assert agent._core.members == {}
    assert actions == [], "without a known generation and commit it registers for no group"


@pytest.mark.parametrize(("stuck_seconds", "renewals"), [(0.0, 2), (60.0, 0)])
def test_a_lease_is_renewed_only_while_its_agent_decides(
    stuck_seconds: float,
    renewals: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    etcd = FakeEtcd()
    agent = new_agent(etcd)
    agent._own_key.lease = 7
    agent._own_key.decided_at = time.monotonic() - stuck_seconds
    waits = iter([False, False, True])
    monkeypatch.setattr(agent._own_key._closed, "wait", lambda _: next(waits))

    agent._own_key.keep_lease()

    assert etcd.renewals == renewals, "the others would wait for an agent that does not act"
    assert caplog.text.count("no decision for 60 s") == (renewals == 0), "it is logged once"


def test_a_lease_is_renewed_three_times_in_its_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    """One late or lost renewal must not end it, and other agents treat a remaining time of 0 s as a lapse."""
    agent = new_agent(FakeEtcd())
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return True

    monkeypatch.setattr(agent._own_key._closed, "wait", wait)
    agent._own_key.keep_lease()

    assert waits == [pytest.approx(TTL_SECONDS / 3)]


def test_the_end_of_an_outage_is_reported_before_the_lapse_of_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the agent would never again treat a missing key as a loss, or would treat its own lapse as a loss."""
    agent = new_agent(FakeEtcd())
    agent._own_key.lease, agent._own_key.decided_at = 7, time.monotonic()
    renewals = iter([None, None, False])
    waits = iter([False, False, False, True])
    monkeypatch.setattr(agent._own_key._closed, "wait", lambda _: next(waits))
    monkeypatch.setattr(agent._own_key, "_renew", lambda _: next(renewals))

    agent._own_key.keep_lease()

    assert list(agent._more_events()) == [Unreachable(), Reachable(), LeaseLapsed()]


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (EtcdUnreachableError("etcd has not responded for 1 s"), Unreachable()),
        (EtcdRefusedError("etcdserver: requested lease not found", NOT_FOUND), LeaseLapsed()),
    ],
)
def test_a_renewal_without_a_response_ends_no_lease_but_a_refused_one_does(
    error: EverstepError, event: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd = FakeEtcd()
    agent = new_agent(etcd)
    agent._own_key.lease, agent._own_key.decided_at = 7, time.monotonic()
    waits = iter([False, True])
    monkeypatch.setattr(agent._own_key._closed, "wait", lambda _: next(waits))

    def fail(*_: object, **__: object) -> bool:
        raise error

    monkeypatch.setattr(etcd, "keep_alive", fail)
    agent._own_key.keep_lease()

    assert list(agent._more_events()) == [event]
    assert agent._own_key.lease == (7 if event == Unreachable() else 0)


def test_workers_of_an_earlier_generation_do_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The outcome of workers in no generation is accepted while etcd has none, for instance after it was wiped."""
    agent = new_agent(FakeEtcd())
    announced_generations: list[Generation | None] = []

    def announce(_: RunEnded, generation: Generation | None) -> bool:
        announced_generations.append(generation)
        return True

    monkeypatch.setattr(agent._keys, "put_outcome", announce)
    current = Generation(2, ("n0-1",))
    agent._carry_out(Begin(current, 0))
    outcome = RunEnded(finished=True, reason="done")

    assert not agent.end_run(outcome, 1)
    assert agent.end_run(outcome, 2)
    assert agent.end_run(outcome, 0)
    assert announced_generations == [current, None]


def test_an_agent_that_observes_no_other_learns_the_progress_of_the_run_from_a_commit() -> None:
    """Otherwise the run would fail after crashes on one node, although it could continue on another machine."""
    agent = new_agent(FakeEtcd())
    assert agent.is_alone_without_progress()

    agent._handle_updates([StepProgress(1, 8)])

    assert not agent.is_alone_without_progress()


def test_an_outage_of_etcd_that_delays_a_decision_ends_no_lease() -> None:
    agent = new_agent(FakeEtcd())
    agent._own_key.decided_at = time.monotonic() - 60

    assert agent._own_key._is_deciding(unreachable_at=time.monotonic() - 1)


def test_a_member_that_does_not_stop_loses_its_lease() -> None:
    etcd = FakeEtcd()
    etcd.keys["/everstep/run/members/stuck-1"] = 5
    agent = new_agent(etcd)

    agent._carry_out(Evict("stuck-1"))

    assert etcd.keys == {}


class RefusingEtcd(FakeEtcd):
    """A fake etcd behind a proxy that refuses watches, but no other requests."""

    def read(self, prefix: str, **_: Any) -> Reading:
        del prefix
        return Reading([], 9)

    def watch(self, *_: Any, **__: Any) -> Generator[list[WatchEvent], None, None]:
        raise ConnectionError("etcd or a proxy refused the watch with status 502")


def test_a_watch_that_is_refused_starts_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = new_agent(RefusingEtcd())
    turns, pauses = iter([False, False, True]), list[float]()
    monkeypatch.setattr(agent._closed, "is_set", lambda: next(turns))
    monkeypatch.setattr(agent._closed, "wait", pauses.append)
    monkeypatch.setattr("time.monotonic", lambda: 0.0)

    agent._watch()

    assert pauses == [WATCH_INTERVAL_SECONDS] * 2, "all agents together would overload etcd"
