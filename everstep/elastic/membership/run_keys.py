"""The etcd keys of a run, through which its agents communicate.

Under `/everstep/<run>/`:

    committed                 generation and step of the newest committed checkpoint
    coordinators/<identity>   a coordinator of a large run, under its agent's lease
    ended                     outcome of the run, kept for five minutes
    generation                the current generation, agreed by transaction
    instructions/<kind>       the newest instruction of the coordinators
    members/<identity>        a member, under its agent's lease: removed with it

The members come last, so that an agent that does not watch them watches one range of keys.
This module decides nothing: each change becomes an event for `state_machine`. The exception is a value that cannot
be read (`key_values`): a member, a coordinator, an instruction or an outcome then counts as absent. While
`generation` or `committed` cannot be read, no group may form (`UnreadableKeys`).
"""

import logging
import random
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Literal

from everstep.elastic.membership.etcd_client import (
    NOT_FOUND,
    REQUEST_SECONDS,
    Etcd,
    EtcdRefusedError,
    KeyValue,
    Reading,
)
from everstep.elastic.membership.etcd_connection import Connection
from everstep.elastic.membership.events import (
    CoordinatorPut,
    CoordinatorRemoved,
    EarlierRunEnded,
    Event,
    GenerationPut,
    Instruct,
    Instruction,
    MemberPut,
    MemberRemoved,
    MembershipSnapshot,
    RunEnded,
    UnreadableKeys,
)
from everstep.elastic.membership.generations import Generation, GroupLimits, Member
from everstep.elastic.membership.key_reader import KeyReader
from everstep.elastic.membership.key_values import (
    commit_value,
    generation_value,
    instruction_value,
    member_value,
    outcome_value,
    read_commit,
    read_generation,
    read_instruction,
    read_member,
    read_outcome,
)
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.elastic.transport.channel import RESPONSE_SECONDS

log = logging.getLogger(__name__)

WATCH_IDLE_SECONDS_PER_MEMBER = 0.1
WATCH_IDLE_SECONDS = 5.0  # the keys are read again after this time without an event
COMMIT_SECONDS = RESPONSE_SECONDS - REQUEST_SECONDS  # timeout; ends before the worker's wait
FENCE_SECONDS = 1.0  # timeout of a fence; the lease has lapsed by then
OUTCOME_SECONDS = 300  # time for which etcd keeps the outcome of a run
READ_AGAIN_SECONDS = 1.0  # interval between two attempts to read a generation that cannot be read
NO_GROUP = "no group forms until a key is repaired; workers that train continue"


Update = Event | StepProgress
"""An event for `state_machine`, or the newest committed checkpoint."""


def watch_idle_seconds(members: int) -> float:
    """Return the time without an event after which an agent reads all keys again.

    All agents together read all members in this time, so it grows with their number: at 1,000 members
    there are ten reads a second. A connection whose other end is gone breaks much earlier.
    """
    seconds = max(WATCH_IDLE_SECONDS, members * WATCH_IDLE_SECONDS_PER_MEMBER)
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads the reads of the agents


class RunKeys:
    """The keys of one run, as one agent reads and writes them. Safe to use from any thread.

    Every method that sends a request, except `follow`, raises EtcdUnreachableError if etcd does not respond in time.
    """

    def __init__(self, etcd: Etcd, run: str) -> None:
        self._etcd, self._prefix = etcd, f"/everstep/{run}/"
        self._generation_key = f"{self._prefix}generation"
        self._commit_key = f"{self._prefix}committed"
        self._outcome_key = f"{self._prefix}ended"
        self._group_keys = (self._generation_key, self._commit_key)
        self._last_revision = self._started_revision = 0
        self._own_revisions: dict[str, int] = {}  # of the last change of each own key
        self._cluster = ""  # the cluster in which the keys were last read
        self._reader = KeyReader()
        self._unreadable = UnreadableKeys()
        self._member_count = 0
        self._watches_all = self._reads_all = True
        self._watch: Connection | None = None

    # --- reading ---

    def read(self) -> Iterator[Update]:
        """Yield the current content of the keys that this agent watches."""
        reads_all = self._watches_all
        reading = self._etcd.read(self._prefix, end=self._end(reads_all=reads_all))
        # Set only after the request: if it failed, the next watch would not count as stale.
        self._reads_all = reads_all
        store_was_replaced = self._note_store(reading)
        entries = {entry.key: entry for entry in reading.entries}
        self._reader.keep(entries)
        members = self._members_in("members", entries.values())
        generation_entry = entries.get(self._generation_key)
        generation = self._generation(generation_entry) if generation_entry else None
        self._member_count = len(generation.members if generation else members)
        for key in (self._outcome_key, self._commit_key):
            if key in entries:
                yield from self._contents(entries[key])
        self._unreadable = self._unreadable_keys()
        yield MembershipSnapshot(
            members,
            generation,
            generation_entry.mod_revision if generation_entry else 0,
            self._reads_all,
            self._members_in("coordinators", entries.values()),
            tuple(
                self._instruction(entry)
                for entry in entries.values()
                if entry.key.startswith(self._instruction_key(""))
            ),
            self._unreadable,
            store_was_replaced,
        )

    def _note_store(self, reading: Reading) -> bool:
        """Record the store of a reading; return True if it has replaced the store of the last reading.

        A store that was wiped may have the ID of the former one, which is a hash of its members' addresses. A store
        that was restored may have another ID.
        """
        has_gone_back = reading.revision < self._last_revision
        store_was_replaced = has_gone_back or (
            bool(self._cluster) and reading.cluster != self._cluster
        )
        if store_was_replaced:
            log.warning(
                "etcd was wiped or restored from a backup; its current content is used, except for an older commit"
            )
        if store_was_replaced or not self._started_revision:
            self._started_revision = reading.revision
        self._last_revision, self._cluster = reading.revision, reading.cluster
        return store_was_replaced

    def _members_in(self, folder: str, entries: Iterable[KeyValue]) -> tuple[Member, ...]:
        prefix = self._key_of("", folder)
        members = (self._member(entry, folder) for entry in entries if entry.key.startswith(prefix))
        return tuple(member for member in members if member)

    def _end(self, *, reads_all: bool) -> str | None:
        """Return the end of the range of keys to read; None if the members, which come last, are read, too."""
        return None if reads_all else self._key_of("")

    def watch_all(self, *, watches_all: bool) -> None:
        """Set whether the members are watched; end a stale watch, so that its thread reads the keys again.

        Called at least once a second, since a watch is also stale if the response to another request came from another
        cluster.
        """
        self._watches_all = watches_all
        self._interrupt_stale()

    def _interrupt_stale(self) -> None:
        is_other_cluster = bool(self._cluster) and self._etcd.cluster != self._cluster
        if self._watch and (is_other_cluster or self._reads_all != self._watches_all):
            self._watch.interrupt()

    def _open(self, watch: Connection) -> None:
        self._watch = watch
        self._interrupt_stale()  # the setting has changed since the keys were read

    def lease_of(self, identity: str) -> int:
        """Return the lease of a member's key; 0 if the key does not exist."""
        entries, _ = self._etcd.get(self._key_of(identity), retry_seconds=0.0)
        return entries[0].lease if entries else 0

    def follow(self) -> Iterator[Update]:
        """Yield the changes since the last reading until the watch ends; then the keys must be read again.

        Raises:
            OSError: the watch broke.
        """
        watch = self._etcd.watch(
            self._prefix,
            self._last_revision + 1,
            self._idle_seconds(),
            on_open=self._open,
            end=self._end(reads_all=self._reads_all),
            cluster=self._cluster,
        )
        with closing(watch):
            for changes in watch:
                for change in changes:
                    yield from self._updates(change.kind, change.entry)
                    if change.kind == "delete" and change.entry.key in self._group_keys:
                        return

    def _idle_seconds(self) -> float:
        """Return the maximum silence of the watch, shorter for the few agents of a large run that watch all members."""
        return watch_idle_seconds(
            min(self._member_count, GroupLimits().full_view_members)
            if self._reads_all
            else self._member_count
        )

    # --- writing ---

    def put_member(self, member: Member, lease: int) -> None:
        """Write a member's key under its lease.

        Raises:
            EtcdRefusedError: the lease is not valid.
        """
        self._put_own(self._key_of(member.identity), member, lease)

    def _put_own(self, key: str, member: Member, lease: int) -> None:
        """Write a key that only this agent writes."""
        mod_revision = self._own_revisions.get(key, 0)
        self._own_revisions[key] = self._etcd.put(
            key, member_value(member), lease, mod_revision=mod_revision
        )

    def restore_member(self, member: Member, lease: int, revision: int) -> bool:
        """Restore a lapsed member's key if the generation's key still has this revision; return False otherwise.

        As in `Etcd.put`, a late attempt must not undo later changes.
        """
        key = self._key_of(member.identity)
        entries, _ = self._etcd.get(key)
        is_restored = self._etcd.put_while_unchanged(
            key,
            member_value(member),
            guard_key=self._generation_key,
            mod_revision=revision,
            own_mod_revision=entries[0].mod_revision if entries else 0,
            lease=lease,
        )
        # The response to a successful attempt may have been lost; no other key is under this lease.
        return is_restored or any(entry.lease == lease for entry in self._etcd.get(key)[0])

    def put_coordinator(self, member: Member, lease: int) -> None:
        """Write a coordinator's key under its lease.

        Raises:
            EtcdRefusedError: the lease is not valid.
        """
        self._put_own(self._key_of(member.identity, "coordinators"), member, lease)

    def remove_coordinator(self, identity: str) -> None:
        """Remove a coordinator's key."""
        self._etcd.delete(self._key_of(identity, "coordinators"))

    def instruct(self, request: Instruct) -> None:
        """Write an instruction unless its generation has been replaced or already has an instruction."""
        self._etcd.put_while_unchanged(
            self._instruction_key(request.kind),
            instruction_value(request.number, request.reason),
            guard_key=self._generation_key,
            mod_revision=request.revision,
            own_mod_revision=request.replaces,
        )

    def propose(self, generation: Generation, replaces: int) -> bool:
        """Make a generation current if the generation's key still has revision `replaces`; return False otherwise."""
        return self._etcd.put_if_unchanged(
            self._generation_key, generation_value(generation), replaces
        )

    def fence(
        self, generation: Generation, revision: int, fencer: Member, suspects: Collection[Member]
    ) -> bool:
        """Remove the keys of suspects and record in the generation that they may not put them again.

        One transaction: it succeeds only if the generation's key still has this revision, and the keys
        of all suspects and of the fencer have not been registered again since. So a member that
        was suspended while it suspected others cannot fence members of a later generation, and if two
        members suspect each other, only one succeeds. Then the leases of the suspects are revoked, because
        the keys could be put under them again.

        Returns:
            False if a condition does not hold.
        """
        names = tuple(member.identity for member in suspects)
        value = generation_value(replace(generation, fenced=(*generation.fenced, *names)))
        deleted_entries = self._etcd.put_and_delete(
            self._generation_key,
            value,
            mod_revision=revision,
            create_revisions={
                self._key_of(member.identity): member.order for member in (fencer, *suspects)
            },
            keys_to_delete=[self._key_of(name) for name in names],
            retry_seconds=FENCE_SECONDS,
        )
        for entry in deleted_entries or []:
            self._etcd.revoke(entry.lease)
        return deleted_entries is not None

    def commit(self, generation: Generation, committed: StepProgress) -> bool:
        """Commit a step for a generation.

        One transaction: it succeeds only if the keys of the generation and of the newest commit are
        unchanged since they were read. So commits only advance: a slow request for an earlier step does not
        replace a later step.

        Returns:
            False if the generation is not current, a more advanced step is committed already, or `COMMIT_SECONDS` have
            passed.

        Raises:
            UnreadableKeyError: one of the two keys cannot be read.
        """
        deadline = time.monotonic() + COMMIT_SECONDS
        while time.monotonic() < deadline:
            generation_entries = self._read_until(deadline, self._generation_key)
            if not generation_entries:
                return False
            if not read_generation(generation_entries[0]).is_same(generation):
                return False
            commit_entries = self._read_until(deadline, self._commit_key)
            previous = read_commit(commit_entries[0]) if commit_entries else StepProgress()
            if previous >= committed:  # equal: the response to the same commit was lost
                return previous == committed
            if self._put_commit(
                generation.number, committed, generation_entries[0], commit_entries, deadline
            ):
                return True
        return False

    def _read_until(self, deadline: float, key: str) -> list[KeyValue]:
        return self._etcd.get(key, retry_seconds=deadline - time.monotonic())[0]

    def _put_commit(
        self,
        number: int,
        committed: StepProgress,
        generation_entry: KeyValue,
        commit_entries: list[KeyValue],
        deadline: float,
    ) -> bool:
        return self._etcd.put_while_unchanged(
            self._commit_key,
            commit_value(committed, number),
            guard_key=self._generation_key,
            mod_revision=generation_entry.mod_revision,
            own_mod_revision=commit_entries[0].mod_revision if commit_entries else 0,
            retry_seconds=min(COMMIT_SECONDS / 2, deadline - time.monotonic()),
        )

    def put_outcome(self, outcome: RunEnded, generation: Generation | None) -> bool:
        """Announce for five minutes how the run ended; the durable record is in the run folder.

        While the generation cannot be read, it is read again.

        Args:
            outcome: the outcome.
            generation: generation whose workers have the outcome, which must be current; None if they were in no
                generation yet: then there must be none.

        Returns:
            False if the condition does not hold.
        """
        value = outcome_value(outcome)
        while True:  # a fence changes the key of a generation that stays current
            entries, current = self._current_generation()
            if not (
                generation.is_same(current) if generation and current else generation is current
            ):
                return False
            lease = self._etcd.grant(OUTCOME_SECONDS)
            try:
                if self._etcd.put_while_unchanged(
                    self._outcome_key,
                    value,
                    guard_key=self._generation_key,
                    mod_revision=entries[0].mod_revision if entries else 0,
                    lease=lease,
                ):
                    return True
            except EtcdRefusedError as refused:
                if refused.code != NOT_FOUND:
                    raise
                # The lease has lapsed in an outage of etcd: try again.

    def _current_generation(self) -> tuple[list[KeyValue], Generation | None]:
        """Return the generation's key and its value, None if there is none; wait while it cannot be read."""
        reader = KeyReader()
        while True:
            entries, _ = self._etcd.get(self._generation_key)
            if not entries:
                return entries, None
            if generation := reader.read(entries[0], read_generation, "no outcome is announced"):
                return entries, generation
            time.sleep(READ_AGAIN_SECONDS)

    # --- entries ---

    def _updates(self, kind: Literal["put", "delete"], entry: KeyValue) -> Iterator[Update]:
        if kind == "delete":
            self._reader.forget(entry.key)
        if entry.key.startswith(self._key_of("")):
            member = self._member(entry) if kind == "put" else None
            yield MemberPut(member) if member else MemberRemoved(self._identity(entry))
        elif entry.key.startswith(self._key_of("", "coordinators")):
            member = self._member(entry, "coordinators") if kind == "put" else None
            identity = self._identity(entry, "coordinators")
            yield CoordinatorPut(member) if member else CoordinatorRemoved(identity)
        elif entry.key.startswith(self._instruction_key("")):
            yield self._instruction(entry if kind == "put" else replace(entry, mod_revision=0))
        elif kind == "put":
            yield from self._contents(entry)
            if self._unreadable != (unreadable := self._unreadable_keys()):
                self._unreadable = unreadable
                yield unreadable

    def _contents(self, entry: KeyValue) -> Iterator[Update]:
        """Yield the content of a key that no agent owns, unless it cannot be read."""
        content: Update | None = None
        if entry.key == self._generation_key and (generation := self._generation(entry)):
            content = GenerationPut(generation, entry.mod_revision)
        elif entry.key == self._commit_key:
            content = self._reader.read(entry, read_commit, NO_GROUP)
        elif entry.key == self._outcome_key:
            content = self._outcome(entry)
        if content:
            yield content

    def _unreadable_keys(self) -> UnreadableKeys:
        generation, committed = (self._reader.is_unreadable(key) for key in self._group_keys)
        return UnreadableKeys(generation=generation, committed=committed)

    def _key_of(self, identity: str, folder: str = "members") -> str:
        return f"{self._prefix}{folder}/{identity}"

    def _instruction_key(self, kind: str) -> str:
        return f"{self._prefix}instructions/{kind}"

    def _identity(self, entry: KeyValue, folder: str = "members") -> str:
        return entry.key.removeprefix(self._key_of("", folder))

    def _member(self, entry: KeyValue, folder: str = "members") -> Member | None:
        parse = partial(read_member, self._identity(entry, folder))
        return self._reader.read(entry, parse, "a member is ignored")

    def _generation(self, entry: KeyValue) -> Generation | None:
        return self._reader.read(entry, read_generation, NO_GROUP)

    def _outcome(self, entry: KeyValue) -> RunEnded | EarlierRunEnded | None:
        """Return an outcome; if it is from before this agent's start, it may belong to an earlier run of the name."""
        outcome = self._reader.read(entry, read_outcome, "an outcome is ignored")
        if outcome and entry.mod_revision <= self._started_revision:
            return EarlierRunEnded(outcome, entry.mod_revision)
        return outcome

    def _instruction(self, entry: KeyValue) -> Instruction:
        """Return an instruction; without a readable one, an instruction for no generation.

        Coordinators can replace a key only if they know its revision.
        """
        kind = entry.key.removeprefix(self._instruction_key(""))
        is_removed = not entry.mod_revision
        instruction = (
            None
            if is_removed
            else self._reader.read(entry, read_instruction, "an instruction is ignored")
        )
        return instruction or Instruction(kind, 0, "", entry.mod_revision)
