"""The keys of a run, with an etcd in memory."""

import contextlib
import json
import logging
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest

from everstep.elastic.membership.etcd_client import (
    NOT_FOUND,
    REQUEST_SECONDS,
    Etcd,
    EtcdRefusedError,
    EtcdUnreachableError,
    KeyValue,
    Reading,
    WatchEvent,
)
from everstep.elastic.membership.etcd_connection import Connection, EtcdAddress, EtcdOptions
from everstep.elastic.membership.events import (
    CoordinatorRemoved,
    EarlierRunEnded,
    GenerationPut,
    Instruct,
    Instruction,
    MemberPut,
    MemberRemoved,
    MembershipSnapshot,
    RunEnded,
    UnreadableKeys,
)
from everstep.elastic.membership.generations import Generation, Member
from everstep.elastic.membership.key_values import (
    UnreadableKeyError,
    generation_value,
    instruction_value,
    member_value,
    outcome_value,
)
from everstep.elastic.membership.run_keys import (
    OUTCOME_SECONDS,
    RunKeys,
    Update,
    watch_idle_seconds,
)
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.elastic.transport.channel import RESPONSE_SECONDS

COMMITTED_KEY = "/everstep/run/committed"
LEASE = 7
GENERATION = Generation(1, ("a",), "127.0.0.1:1")
MEMBER = Member("a", "node-a", "127.0.0.1")


class MemoryEtcd(Etcd):
    """An etcd in memory; the ID of a lease is its duration.

    Attributes:
        before_put: called once, before the next conditional put.
        changes: the changes that a watch has not returned yet.
    """

    def __init__(self) -> None:
        super().__init__(EtcdOptions(endpoints=("127.0.0.1:1",)))
        self.revision = 1
        self.entries: dict[str, KeyValue] = {}
        self.before_put: Callable[[], object] | None = None
        self.changes: list[WatchEvent] = []

    def read(self, prefix: str, **_: Any) -> Reading:
        entries = [entry for key, entry in self.entries.items() if key.startswith(prefix)]
        return Reading(entries, self.revision, self.cluster)

    def write(self, key: str, value: str, lease: int = LEASE) -> KeyValue:
        """Set a key of the run to any value, under a lease."""
        self.revision += 1
        name = f"/everstep/run/{key}"
        self.entries[name] = KeyValue(name, value, self.revision, self.revision, lease)
        self.changes.append(WatchEvent("put", self.entries[name]))
        return self.entries[name]

    def remove(self, key: str) -> None:
        self.revision += 1
        entry = self.entries.pop(f"/everstep/run/{key}")
        self.changes.append(WatchEvent("delete", replace(entry, mod_revision=self.revision)))

    def watch(self, *_: Any, **__: Any) -> Generator[list[WatchEvent], None, None]:
        changes, self.changes = self.changes, []
        yield changes
        raise ConnectionError("the connection broke")

    def grant(self, ttl_seconds: int) -> int:
        return ttl_seconds

    def put_if_unchanged(self, key: str, value: str, mod_revision: int) -> bool:
        return self.put_while_unchanged(key, value, guard_key=key, mod_revision=mod_revision)

    def put_while_unchanged(
        self,
        key: str,
        value: str,
        *,
        guard_key: str,
        mod_revision: int,
        own_mod_revision: int | None = None,
        lease: int = 0,
        **_: Any,
    ) -> bool:
        if self.before_put:
            action, self.before_put = self.before_put, None
            action()
        own_revision = self._mod_revision(key)
        if self._mod_revision(guard_key) != mod_revision or own_mod_revision not in (
            None,
            own_revision,
        ):
            return False
        self.write(key.removeprefix("/everstep/run/"), value, lease)
        return True

    def _mod_revision(self, key: str) -> int:
        return self.entries[key].mod_revision if key in self.entries else 0

    def committed_step(self) -> int:
        return int(json.loads(self.entries[COMMITTED_KEY].value)["step"])


def run_of_generation_1() -> tuple[MemoryEtcd, RunKeys]:
    etcd = MemoryEtcd()
    keys = RunKeys(etcd, "run")
    assert keys.propose(GENERATION, 0)
    return etcd, keys


def test_a_slow_commit_of_an_earlier_step_does_not_replace_a_later_one() -> None:
    etcd, keys = run_of_generation_1()
    assert keys.commit(GENERATION, StepProgress(1, 108))

    assert not keys.commit(GENERATION, StepProgress(1, 100))

    assert etcd.committed_step() == 108, "a restart from 100 would repeat committed steps"


def test_a_commit_that_is_overtaken_before_its_transaction_is_refused() -> None:
    etcd, keys = run_of_generation_1()
    etcd.before_put = lambda: keys.commit(GENERATION, StepProgress(1, 108))

    assert not keys.commit(GENERATION, StepProgress(1, 100))

    assert etcd.committed_step() == 108, "the transaction must compare the committed key, too"


def test_a_commit_of_a_later_generation_outranks_more_steps_of_an_earlier_one() -> None:
    etcd, keys = run_of_generation_1()
    assert keys.commit(GENERATION, StepProgress(1, 108))
    mod_revision = etcd.entries["/everstep/run/generation"].mod_revision
    next_generation = Generation(2, ("a",), "127.0.0.1:1")
    assert keys.propose(next_generation, mod_revision)

    assert keys.commit(next_generation, StepProgress(2, 104))
    assert etcd.committed_step() == 104


def test_an_earlier_generation_with_the_same_number_neither_commits_nor_ends_the_run() -> None:
    etcd = MemoryEtcd()
    keys = RunKeys(etcd, "run")
    frozen_group = Generation(1, ("n1-before-etcd-was-wiped",), GENERATION.store)
    assert keys.propose(GENERATION, 0)

    assert not keys.commit(frozen_group, StepProgress(1, 108))
    assert not keys.put_outcome(RunEnded(finished=True, reason="done"), frozen_group)
    assert COMMITTED_KEY not in etcd.entries


def test_a_generation_still_commits_after_one_of_its_members_was_fenced() -> None:
    etcd = MemoryEtcd()
    keys = RunKeys(etcd, "run")
    assert keys.propose(replace(GENERATION, fenced=("b",)), 0)

    assert keys.commit(GENERATION, StepProgress(1, 108))


def test_the_same_commit_may_be_repeated_after_a_lost_response() -> None:
    etcd, keys = run_of_generation_1()

    assert keys.commit(GENERATION, StepProgress(1, 108))
    assert keys.commit(GENERATION, StepProgress(1, 108)), "its checkpoint must not count as refused"
    assert etcd.committed_step() == 108


def test_a_key_is_restored_even_if_the_response_to_it_was_lost() -> None:
    etcd, keys = run_of_generation_1()
    etcd.before_put = lambda: etcd.write("members/a", member_value(MEMBER), lease=8)

    assert keys.restore_member(MEMBER, lease=8, revision=etcd.revision)


def test_a_late_attempt_to_restore_a_key_does_not_undo_its_later_change() -> None:
    etcd, keys = run_of_generation_1()
    waiting_member = member_value(replace(MEMBER, after=1))
    etcd.before_put = lambda: etcd.write("members/a", waiting_member, lease=8)

    keys.restore_member(MEMBER, lease=8, revision=etcd.revision)

    assert etcd.entries["/everstep/run/members/a"].value == waiting_member


def test_a_change_of_a_key_names_the_revision_of_the_previous_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    etcd, keys = run_of_generation_1()
    named_revisions: list[int] = []

    def put(key: str, value: str, lease: int = 0, *, mod_revision: int = 0) -> int:
        del key, value, lease
        named_revisions.append(mod_revision)
        return 10 + len(named_revisions)

    monkeypatch.setattr(etcd, "put", put)
    for put_key in (keys.put_member, keys.put_member, keys.put_coordinator, keys.put_member):
        put_key(MEMBER, LEASE)

    assert named_revisions == [0, 11, 0, 12]


def test_a_commit_whose_generation_ends_before_its_transaction_is_refused() -> None:
    etcd, keys = run_of_generation_1()
    mod_revision = etcd.entries["/everstep/run/generation"].mod_revision
    etcd.before_put = lambda: keys.propose(Generation(2, ("b",), "127.0.0.1:1"), mod_revision)

    assert not keys.commit(GENERATION, StepProgress(1, 108))
    assert COMMITTED_KEY not in etcd.entries


class SlowEtcd(MemoryEtcd):
    """An etcd with slow responses, on a simulated clock.

    Attributes:
        ends: the latest time at which each request may end.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        super().__init__()
        self.now, self.seconds, self.ends = 0.0, seconds, list[float]()
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def read(self, prefix: str, *, retry_seconds: float | None = None, **options: Any) -> Reading:
        self._wait(retry_seconds)
        return super().read(prefix, **options)

    def put_while_unchanged(
        self, *arguments: Any, retry_seconds: float | None = None, **options: Any
    ) -> bool:
        self._wait(retry_seconds)
        return super().put_while_unchanged(*arguments, **options)

    def _wait(self, retry_seconds: float | None) -> None:
        assert retry_seconds is not None, "the client's own limit is 600 s"
        self.ends.append(self.now + retry_seconds + REQUEST_SECONDS)
        self.now += self.seconds


def test_a_commit_ends_before_its_worker_stops_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = SlowEtcd(monkeypatch, seconds=9.0)
    etcd.write("generation", generation_value(GENERATION))

    assert RunKeys(etcd, "run").commit(GENERATION, StepProgress(1, 108))

    assert etcd.ends == [RESPONSE_SECONDS] * 3, (
        "the worker would discard a checkpoint that is committed"
    )


# --- values that cannot be read ---


def snapshot(keys: RunKeys) -> MembershipSnapshot:
    [snapshot] = [update for update in keys.read() if isinstance(update, MembershipSnapshot)]
    return snapshot


def watched_updates(keys: RunKeys) -> list[Update]:
    """Return the updates until the watch breaks."""
    updates = list[Update]()
    with contextlib.suppress(ConnectionError):
        updates += keys.follow()
    return updates


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


def test_an_unreadable_member_counts_as_absent_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    etcd, keys = run_of_generation_1()
    etcd.write("members/a", member_value(MEMBER))
    etcd.write("members/x", "hello")

    assert [member.identity for member in snapshot(keys).members] == ["a"]

    etcd.changes.clear()
    etcd.write("members/a", "{}")
    assert watched_updates(keys) == [MemberRemoved("a")]
    assert snapshot(keys).members == ()
    assert len(errors(caplog)) == 2, "one for each key, although all keys were read twice"
    assert "/everstep/run/members/x" in errors(caplog)[0]
    assert "'hello'" in errors(caplog)[0]

    etcd.write("members/a", member_value(MEMBER))
    [update] = watched_updates(keys)[-1:]
    assert isinstance(update, MemberPut), "it is a member again once its key is repaired"


def test_an_unreadable_value_is_logged_again_after_its_key_was_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    etcd, keys = run_of_generation_1()
    for _ in range(2):
        etcd.write("members/x", "hello")
        snapshot(keys)
        etcd.remove("members/x")
        snapshot(keys)

    assert len(errors(caplog)) == 2


def test_a_member_without_a_lease_counts_as_absent() -> None:
    etcd, keys = run_of_generation_1()
    entry = etcd.write("members/a", member_value(MEMBER))
    etcd.entries[entry.key] = replace(entry, lease=0)

    assert snapshot(keys).members == (), "nothing would ever remove it, and all would wait for it"


def test_an_unreadable_coordinator_counts_as_absent() -> None:
    etcd, keys = run_of_generation_1()
    snapshot(keys)
    etcd.changes.clear()
    etcd.write("coordinators/a", "[1]")

    assert watched_updates(keys) == [CoordinatorRemoved("a")]
    assert snapshot(keys).coordinators == ()


def test_an_unreadable_instruction_is_for_no_generation_and_can_be_replaced() -> None:
    etcd, keys = run_of_generation_1()
    revision = etcd.entries["/everstep/run/generation"].mod_revision
    entry = etcd.write("instructions/stop", "[]")
    instruction = Instruction("stop", 0, "", entry.mod_revision)

    assert snapshot(keys).instructions == (instruction,)
    assert instruction in watched_updates(keys)

    keys.instruct(Instruct("stop", 1, "lost b", revision, replaces=instruction.revision))
    [new_instruction] = snapshot(keys).instructions
    assert new_instruction.reason == "lost b", "coordinators would never be able to instruct again"


def test_a_removed_instruction_can_be_put_again() -> None:
    etcd, keys = run_of_generation_1()
    etcd.write("instructions/stop", instruction_value(1, "lost b"))
    snapshot(keys)
    etcd.changes.clear()
    etcd.remove("instructions/stop")

    assert watched_updates(keys) == [Instruction("stop", 0, "", 0)]


@pytest.mark.parametrize("value", ["{}", "x", '{"number": "1", "members": [], "store": "a:1"}'])
def test_an_unreadable_generation_is_reported_until_it_can_be_read(value: str) -> None:
    etcd, keys = run_of_generation_1()
    assert not snapshot(keys).unreadable
    etcd.changes.clear()

    etcd.write("generation", value)
    assert watched_updates(keys) == [UnreadableKeys(generation=True)]

    unreadable_snapshot = snapshot(keys)
    assert unreadable_snapshot.unreadable == UnreadableKeys(generation=True)
    assert unreadable_snapshot.generation is None

    etcd.changes.clear()
    entry = etcd.write("generation", generation_value(GENERATION))
    assert watched_updates(keys) == [
        GenerationPut(GENERATION, entry.mod_revision),
        UnreadableKeys(),
    ]


def test_an_unreadable_commit_is_reported_until_it_can_be_read() -> None:
    etcd, keys = run_of_generation_1()
    etcd.write("committed", "x")
    assert snapshot(keys).unreadable == UnreadableKeys(committed=True)

    etcd.changes.clear()
    etcd.write("committed", '{"agreed_generation": 1, "step": 8, "generation": 1, "new": null}')
    assert watched_updates(keys) == [StepProgress(1, 8), UnreadableKeys()]


@pytest.mark.parametrize("key", ["generation", "committed"])
def test_an_unreadable_key_of_the_group_that_is_removed_is_read_again_immediately(key: str) -> None:
    etcd, keys = run_of_generation_1()
    etcd.write(key, "x")
    assert snapshot(keys).unreadable
    etcd.changes.clear()
    etcd.remove(key)

    assert list(keys.follow()) == [], "the watch ends without an error"
    assert not snapshot(keys).unreadable


@pytest.mark.parametrize("key", ["generation", "committed"])
def test_no_step_is_committed_over_a_key_that_cannot_be_read(key: str) -> None:
    etcd, keys = run_of_generation_1()
    etcd.write(key, "x")

    with pytest.raises(UnreadableKeyError, match=f"/everstep/run/{key} in etcd cannot be read"):
        keys.commit(GENERATION, StepProgress(1, 8))
    assert etcd.entries[f"/everstep/run/{key}"].value == "x"


def test_an_outcome_is_announced_as_soon_as_the_generation_can_be_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    etcd, keys = run_of_generation_1()
    etcd.write("generation", "x")
    values = iter(["y", generation_value(GENERATION)])
    monkeypatch.setattr("time.sleep", lambda _: etcd.write("generation", next(values)))
    outcome = RunEnded(finished=True, reason="done")

    assert keys.put_outcome(outcome, GENERATION)

    entry = etcd.entries["/everstep/run/ended"]
    assert (entry.value, entry.lease) == (outcome_value(outcome), OUTCOME_SECONDS)
    assert len(errors(caplog)) == 1


def test_an_outcome_is_announced_although_its_first_lease_lapses_in_an_outage() -> None:
    etcd = MemoryEtcd()
    etcd.write("generation", generation_value(GENERATION))

    def refuse() -> None:
        raise EtcdRefusedError("etcdserver: requested lease not found", NOT_FOUND)

    etcd.before_put = refuse

    assert RunKeys(etcd, "run").put_outcome(RunEnded(finished=True, reason="done"), GENERATION)
    assert "/everstep/run/ended" in etcd.entries


def test_an_outcome_from_before_the_start_is_reported_as_the_end_of_an_earlier_run() -> None:
    etcd, outcome = MemoryEtcd(), RunEnded(finished=True, reason="done")
    ended = EarlierRunEnded(outcome, etcd.write("ended", outcome_value(outcome)).mod_revision)
    keys = RunKeys(etcd, "run")

    for _ in range(2):
        updates = [*keys.read()]
        assert ended in updates
        assert outcome not in updates

    etcd.write("ended", outcome_value(outcome))
    assert outcome in [*keys.read()], "its own run has ended"


def test_an_unreadable_outcome_does_not_end_the_run() -> None:
    etcd, keys = run_of_generation_1()
    snapshot(keys)
    etcd.changes.clear()
    etcd.write("ended", '{"finished": "yes"}')

    assert watched_updates(keys) == []
    assert not any(isinstance(update, RunEnded) for update in keys.read())


# --- an etcd that was replaced ---


@pytest.mark.parametrize(
    ("cluster", "revision_change", "store_was_replaced"),
    [("1", 5, False), ("2", 5, True), ("1", -1, True), ("2", -1, True)],
)
def test_a_store_with_another_cluster_or_an_earlier_revision_replaces_the_former_one(
    cluster: str, revision_change: int, store_was_replaced: bool
) -> None:
    etcd, keys = run_of_generation_1()
    etcd.cluster = "1"
    assert not snapshot(keys).store_was_replaced, "it is the first store"
    etcd.cluster, etcd.revision = cluster, etcd.revision + revision_change

    assert snapshot(keys).store_was_replaced == store_was_replaced
    assert not snapshot(keys).store_was_replaced, "it is reported once"


@pytest.mark.parametrize("cluster", ["1", "2"])
def test_the_end_of_a_run_is_received_even_if_etcd_was_wiped_before(cluster: str) -> None:
    etcd, keys = run_of_generation_1()
    etcd.cluster, etcd.revision = "1", 100
    snapshot(keys)
    etcd.cluster, etcd.revision = cluster, 10
    etcd.entries.clear()
    snapshot(keys)
    outcome = RunEnded(finished=False, reason="given up")

    etcd.write("ended", outcome_value(outcome))

    assert outcome in list(keys.read())


def test_a_new_cluster_with_higher_revisions_does_not_repeat_the_end_of_an_earlier_run() -> None:
    etcd, keys = run_of_generation_1()
    etcd.cluster = "1"
    snapshot(keys)
    etcd.write("ended", outcome_value(RunEnded(finished=True, reason="done")))
    etcd.cluster = "2"

    assert not any(isinstance(update, RunEnded) for update in keys.read())


class InterruptedWatch(Connection):
    """A watch that counts its interruptions."""

    def __init__(self) -> None:
        super().__init__(EtcdAddress("a", "127.0.0.1", 1), None, 1.0)
        self.interruptions = 0

    def interrupt(self) -> None:
        self.interruptions += 1


def test_a_watch_continues_directly_after_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change between the reading and the watch would remain unnoticed until the next reading."""
    etcd, keys = run_of_generation_1()
    revisions: list[int] = []

    def watch(
        prefix: str, revision: int, *_: Any, **__: Any
    ) -> Generator[list[WatchEvent], None, None]:
        assert prefix == "/everstep/run/"
        revisions.append(revision)
        yield []

    monkeypatch.setattr(etcd, "watch", watch)
    list(keys.read())
    list(keys.follow())

    assert revisions == [etcd.revision + 1]


def test_a_watch_ends_after_another_cluster_has_answered_any_request() -> None:
    etcd, keys = run_of_generation_1()
    etcd.cluster = "1"
    snapshot(keys)
    watch = InterruptedWatch()
    keys._open(watch)
    keys.watch_all(watches_all=True)
    assert watch.interruptions == 0

    etcd.cluster = "2"  # a renewal of the lease

    keys.watch_all(watches_all=True)
    assert watch.interruptions == 1, "a watch of the former cluster is silent for up to 2 min"


def test_a_watch_of_all_members_is_stale_until_all_members_were_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new coordinator whose first read failed would never get a full view."""
    etcd, keys = run_of_generation_1()
    keys.watch_all(watches_all=False)
    snapshot(keys)
    keys.watch_all(watches_all=True)

    def fail(*_: object, **__: object) -> Reading:
        raise EtcdUnreachableError("etcd has not responded for 600 s")

    with monkeypatch.context() as outage:
        outage.setattr(etcd, "read", fail)
        with pytest.raises(EtcdUnreachableError):
            snapshot(keys)
    watch = InterruptedWatch()
    keys._open(watch)
    assert watch.interruptions == 1, "no member was read"

    assert snapshot(keys).complete
    watch = InterruptedWatch()
    keys._open(watch)
    assert watch.interruptions == 0


def test_at_1000_members_etcd_serves_about_ten_full_reads_a_second() -> None:
    assert 1000 / watch_idle_seconds(1000) <= 12.5
    assert watch_idle_seconds(10) <= 6.0, "in small groups a silent watch is replaced soon"
