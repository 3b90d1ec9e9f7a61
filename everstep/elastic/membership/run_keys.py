"""The etcd keys of a run, through which its agents communicate.

Under `/everstep/<run>/`:

    committed                 generation and step of the newest committed checkpoint
    coordinators/<identity>   a coordinator of a large run, under its agent's lease
    ended                     outcome of the run, kept for a minute
    generation                the current generation, agreed by transaction
    instructions/<kind>       the newest instruction of the coordinators
    members/<identity>        a member, under its agent's lease: removed with it

The members come last, so that an agent that does not watch them watches one range of keys.
This module decides nothing: each change becomes an event for `state_machine`.
"""

import json
import random
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Literal

from everstep.elastic.membership.etcd_client import Etcd, KeyValue
from everstep.elastic.membership.etcd_connection import Connection
from everstep.elastic.membership.events import (
    CoordinatorPut,
    CoordinatorRemoved,
    Event,
    GenerationPut,
    Instruct,
    Instruction,
    MemberPut,
    MemberRemoved,
    MembershipSnapshot,
    RunEnded,
)
from everstep.elastic.membership.generations import Generation, GroupLimits, Member
from everstep.elastic.recovery.state_machine import StepProgress

WATCH_IDLE_SECONDS_PER_MEMBER = 0.1
WATCH_IDLE_SECONDS = 5.0  # the keys are read again after this time without an event
COMMIT_SECONDS = 28.0  # timeout of a commit; a worker waits 30 s for the response
FENCE_SECONDS = 1.0  # timeout of a fence; the lease has lapsed by then
OUTCOME_SECONDS = 60  # time for which etcd keeps the outcome of a run


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

    Every method raises EtcdUnreachableError if etcd does not respond within the client's timeout.
    """

    def __init__(self, etcd: Etcd, run: str) -> None:
        self._etcd, self._prefix = etcd, f"/everstep/{run}/"
        self._generation_key = f"{self._prefix}generation"
        self._commit_key = f"{self._prefix}committed"
        self._outcome_key = f"{self._prefix}ended"
        self._last_revision = self._started_revision = 0
        self._member_count = 0
        self._watches_all = self._reads_all = True
        self._watch: Connection | None = None

    # --- reading ---

    def read(self) -> Iterator[Update]:
        """Yield the current content of the keys that this agent watches."""
        self._reads_all = self._watches_all
        entries, revision = self._etcd.get(self._prefix, end=self._end())
        if revision < self._last_revision:  # etcd was wiped, or restored from a backup
            self._started_revision = revision
        self._started_revision = self._started_revision or revision
        self._last_revision = revision
        members = self._members_in("members", entries)
        generation_entry = next(
            (entry for entry in entries if entry.key == self._generation_key), None
        )
        generation = Generation.from_json(generation_entry.value) if generation_entry else None
        self._member_count = len(generation.members if generation else members)
        for entry in entries:
            if entry.key in (self._outcome_key, self._commit_key):
                yield from self._updates("put", entry)
        yield MembershipSnapshot(
            members,
            generation,
            generation_entry.mod_revision if generation_entry else 0,
            self._reads_all,
            self._members_in("coordinators", entries),
            tuple(
                _instruction(entry)
                for entry in entries
                if entry.key.startswith(self._instruction(""))
            ),
        )

    def _members_in(self, folder: str, entries: list[KeyValue]) -> tuple[Member, ...]:
        prefix = self._key_of("", folder)
        return tuple(
            self._member(entry, folder) for entry in entries if entry.key.startswith(prefix)
        )

    def _end(self) -> str | None:
        """Return the end of the range of keys that are read: the members come last."""
        return None if self._reads_all else self._key_of("")

    def watch_all(self, *, watches_all: bool) -> None:
        """Set whether the members are watched; an agent that follows the keys reads them again."""
        if watches_all != self._watches_all:
            self._watches_all = watches_all
            self._interrupt()

    def _interrupt(self) -> None:
        if self._watch and self._reads_all != self._watches_all:
            self._watch.interrupt()

    def _open(self, watch: Connection) -> None:
        self._watch = watch
        self._interrupt()  # the setting has changed since the keys were read

    def lease_of(self, identity: str) -> int:
        """Return the lease of a member's key; 0 if the key does not exist."""
        entries, _ = self._etcd.get(self._key_of(identity), retry_seconds=0.0)
        return entries[0].lease if entries else 0

    def follow(self) -> Iterator[Update]:
        """Yield the changes since the last reading until the watch ends; then the keys must be read again.

        Raises:
            OSError: the watch broke.
        """
        idle_seconds = self._idle_seconds()
        for changes in self._etcd.watch(
            self._prefix,
            self._last_revision + 1,
            idle_seconds,
            on_open=self._open,
            end=self._end(),
        ):
            for change in changes:
                yield from self._updates(change.kind, change.entry)

    def _idle_seconds(self) -> float:
        """Return the maximum silence of the watch: in a large run few agents watch all members."""
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
        self._etcd.put(self._key_of(member.identity), member.to_json(), lease)

    def restore_member(self, member: Member, lease: int, revision: int) -> bool:
        """Restore a lapsed member's key if the generation's key still has this revision."""
        return self._etcd.put_while_unchanged(
            self._key_of(member.identity),
            member.to_json(),
            witness=self._generation_key,
            mod_revision=revision,
            lease=lease,
        )

    def put_coordinator(self, member: Member, lease: int) -> None:
        """Write a coordinator's key under its lease.

        Raises:
            EtcdRefusedError: the lease is not valid.
        """
        self._etcd.put(self._key_of(member.identity, "coordinators"), member.to_json(), lease)

    def remove_coordinator(self, identity: str) -> None:
        """Remove a coordinator's key."""
        self._etcd.delete(self._key_of(identity, "coordinators"))

    def instruct(self, request: Instruct) -> None:
        """Write an instruction unless its generation has been replaced or already has an instruction."""
        self._etcd.put_while_unchanged(
            self._instruction(request.kind),
            json.dumps({"number": request.number, "reason": request.reason}),
            witness=self._generation_key,
            mod_revision=request.revision,
            own_mod_revision=request.replaces,
        )

    def propose(self, generation: Generation, replaces: int) -> bool:
        """Make a generation current if its key still has the revision that it `replaces`."""
        return self._etcd.put_if_unchanged(self._generation_key, generation.to_json(), replaces)

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
        value = replace(generation, fenced=(*generation.fenced, *names)).to_json()
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

    def commit(self, number: int, committed: StepProgress) -> bool:
        """Commit a step for generation `number`.

        One transaction: it succeeds only if the keys of the generation and of the newest commit are
        unchanged since they were read. So commits only advance: a slow request for an earlier step does not
        replace a later step.

        Returns:
            False if the generation is not current, or a more advanced step is committed already.
        """
        deadline = time.monotonic() + COMMIT_SECONDS
        while (remaining_seconds := deadline - time.monotonic()) > 0:
            generation_entries, _ = self._etcd.get(
                self._generation_key, retry_seconds=remaining_seconds
            )
            if not generation_entries:
                return False
            if Generation.from_json(generation_entries[0].value).number != number:
                return False
            commit_entries, _ = self._etcd.get(self._commit_key, retry_seconds=remaining_seconds)
            previous = _progress(commit_entries[0]) if commit_entries else StepProgress()
            if previous >= committed:  # equal: the response to the same commit was lost
                return previous == committed
            if self._put_commit(number, committed, generation_entries[0], commit_entries):
                return True
        return False

    def _put_commit(
        self,
        number: int,
        committed: StepProgress,
        generation_entry: KeyValue,
        commit_entries: list[KeyValue],
    ) -> bool:
        record = {
            "agreed_generation": committed.agreed_generation,
            "step": committed.step,
            "generation": number,
            "run": committed.run,
        }
        return self._etcd.put_while_unchanged(
            self._commit_key,
            json.dumps(record),
            witness=self._generation_key,
            mod_revision=generation_entry.mod_revision,
            own_mod_revision=commit_entries[0].mod_revision if commit_entries else 0,
            retry_seconds=COMMIT_SECONDS / 2,
        )

    def put_outcome(self, outcome: RunEnded, number: int | None = None) -> bool:
        """Announce for a minute how the run ended; the durable record is in the run folder.

        Args:
            outcome: the outcome.
            number: generation whose worker reports the outcome, which must be current; 0 for a worker that was
                in no generation yet; None for no condition.
        """
        value = json.dumps({"finished": outcome.finished, "reason": outcome.reason})
        if number is None:
            self._etcd.put(self._outcome_key, value, self._etcd.grant(OUTCOME_SECONDS))
            return True
        while True:  # a fence changes the key of a generation that stays current
            entries, _ = self._etcd.get(self._generation_key)
            current = Generation.from_json(entries[0].value).number if entries else 0
            if current != number:
                return False
            if self._etcd.put_while_unchanged(
                self._outcome_key,
                value,
                witness=self._generation_key,
                mod_revision=entries[0].mod_revision if entries else 0,
                lease=self._etcd.grant(OUTCOME_SECONDS),
            ):
                return True

    # --- entries ---

    def _updates(self, kind: Literal["put", "delete"], entry: KeyValue) -> Iterator[Update]:
        is_put = kind == "put"
        if entry.key.startswith(self._key_of("")):
            yield MemberPut(self._member(entry)) if is_put else MemberRemoved(self._identity(entry))
        elif entry.key.startswith(self._key_of("", "coordinators")):
            yield (
                CoordinatorPut(self._member(entry, "coordinators"))
                if is_put
                else CoordinatorRemoved(self._identity(entry, "coordinators"))
            )
        elif is_put and entry.key.startswith(self._instruction("")):
            yield _instruction(entry)
        elif is_put and entry.key == self._generation_key:
            yield GenerationPut(Generation.from_json(entry.value), entry.mod_revision)
        elif is_put and entry.key == self._commit_key:
            yield _progress(entry)
        elif (
            is_put
            and entry.key == self._outcome_key
            and entry.mod_revision > self._started_revision
        ):
            # An outcome from before this agent's start belongs to an earlier run of the same name.
            yield RunEnded(**json.loads(entry.value))

    def _key_of(self, identity: str, folder: str = "members") -> str:
        return f"{self._prefix}{folder}/{identity}"

    def _instruction(self, kind: str) -> str:
        return f"{self._prefix}instructions/{kind}"

    def _identity(self, entry: KeyValue, folder: str = "members") -> str:
        return entry.key.removeprefix(self._key_of("", folder))

    def _member(self, entry: KeyValue, folder: str = "members") -> Member:
        return Member.from_json(self._identity(entry, folder), entry.value, entry.create_revision)


def _instruction(entry: KeyValue) -> Instruction:
    fields = json.loads(entry.value)
    return Instruction(
        entry.key.rpartition("/")[2], fields["number"], fields["reason"], entry.mod_revision
    )


def _progress(committed: KeyValue) -> StepProgress:
    record = json.loads(committed.value)
    return StepProgress(record["agreed_generation"], record["step"], record.get("run", ""))
