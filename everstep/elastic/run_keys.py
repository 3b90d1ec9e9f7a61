"""What one run's agents tell each other by etcd: the keys, and what is written in them.

Under `/everstep/<run>/`:

    members/<identity>   a member, under its agent's lease: gone with it
    generation           the current generation, agreed by transaction
    committed            generation and step of the newest committed checkpoint
    outcome              how the run ended, for a minute

Nothing is decided here. What changes becomes an event for `membership`.
"""

import json
from collections.abc import Iterator
from typing import Literal

from everstep.elastic.etcd import Entry, Etcd
from everstep.elastic.generations import Generation, Member
from everstep.elastic.membership_events import (
    Ended,
    Event,
    GenerationPut,
    MemberGone,
    MemberPut,
    Snapshot,
)
from everstep.elastic.recovery import Standing

WATCH_IDLE_SECONDS = 5.0  # a watch silent for longer is read afresh
COMMIT_PATIENCE_SECONDS = 14.0  # for each of two requests; a worker waits 30 s for the answer
OUTCOME_SECONDS = 60  # how long the word that a run is over stands in etcd


News = Event | Standing
"""An event for `membership`, or the newest committed checkpoint."""


class RunKeys:
    """The keys of one run, as one agent reads and writes them; from any thread.

    Every method raises EtcdUnreachableError where etcd does not answer within the client's patience.
    """

    def __init__(self, etcd: Etcd, run: str) -> None:
        self._etcd, self._prefix = etcd, f"/everstep/{run}/"
        self._generation = f"{self._prefix}generation"
        self._committed = f"{self._prefix}committed"
        self._outcome = f"{self._prefix}outcome"
        self._read_at = self._came_at = 0

    # --- reading ---

    def read(self) -> Iterator[News]:
        """Everything as it stands."""
        entries, revision = self._etcd.get(self._prefix)
        self._came_at = self._came_at or revision
        self._read_at = revision
        members = tuple(
            self._member(entry) for entry in entries if entry.key.startswith(self._key_of(""))
        )
        agreed = next((entry for entry in entries if entry.key == self._generation), None)
        generation = Generation.from_json(agreed.value) if agreed else None
        for entry in entries:
            if entry.key in (self._outcome, self._committed):
                yield from self._news("put", entry)
        yield Snapshot(members, generation, agreed.modified if agreed else 0)

    def lease_of(self, identity: str) -> int:
        """The lease that a member's key goes with; 0 where there is no such key."""
        entries, _ = self._etcd.get(self._key_of(identity), patience_seconds=0.0)
        return entries[0].lease if entries else 0

    def follow(self) -> Iterator[News]:
        """What changes from the last reading on, until the watch ends; then it is to be read afresh.

        Raises:
            OSError: the watch broke.
        """
        for changes in self._etcd.watch(self._prefix, self._read_at + 1, WATCH_IDLE_SECONDS):
            for change in changes:
                yield from self._news(change.kind, change.entry)

    # --- writing ---

    def put_member(self, member: Member, lease: int) -> None:
        """Write a member down for as long as its lease stands; EtcdRefusedError where it does not."""
        self._etcd.put(self._key_of(member.identity), member.to_json(), lease)

    def put_member_back(self, member: Member, lease: int, revision: int) -> bool:
        """Write a member down that had lapsed, if the generation's key is still of this revision."""
        return self._etcd.put_while_unchanged(
            self._key_of(member.identity),
            member.to_json(),
            witness=self._generation,
            modified=revision,
            lease=lease,
        )

    def propose(self, generation: Generation, replaces: int) -> bool:
        """Make a generation the current one, if that key is still of the revision that it `replaces`."""
        return self._etcd.put_if_unchanged(self._generation, generation.to_json(), replaces)

    def commit(self, number: int, committed: Standing) -> bool:
        """Commit a step for generation `number`; false where it is not current.

        One transaction: it holds only if the generation's key is still the one that was read.
        """
        said = {"lineage": committed.lineage, "step": committed.step, "generation": number}
        entries, _ = self._etcd.get(self._generation, patience_seconds=COMMIT_PATIENCE_SECONDS)
        if not entries or Generation.from_json(entries[0].value).number != number:
            return False
        return self._etcd.put_while_unchanged(
            self._committed,
            json.dumps(said),
            witness=self._generation,
            modified=entries[0].modified,
            patience_seconds=COMMIT_PATIENCE_SECONDS,
        )

    def put_outcome(self, ended: Ended) -> None:
        """Tell everybody who waits, now or within a minute; the lasting truth is the run folder's."""
        said = json.dumps({"finished": ended.finished, "reason": ended.reason})
        self._etcd.put(self._outcome, said, self._etcd.grant(OUTCOME_SECONDS))

    # --- entries ---

    def _news(self, kind: Literal["put", "delete"], entry: Entry) -> Iterator[News]:
        if entry.key.startswith(self._key_of("")):
            put = kind == "put"
            yield MemberPut(self._member(entry)) if put else MemberGone(self._identity(entry))
        elif kind == "put" and entry.key == self._generation:
            yield GenerationPut(Generation.from_json(entry.value), entry.modified)
        elif kind == "put" and entry.key == self._committed:
            said = json.loads(entry.value)
            yield Standing(said["lineage"], said["step"])
        elif kind == "put" and entry.key == self._outcome and entry.modified > self._came_at:
            # One that stood before this agent came is of an earlier run under the same name.
            yield Ended(**json.loads(entry.value))

    def _key_of(self, identity: str) -> str:
        return f"{self._prefix}members/{identity}"

    def _identity(self, entry: Entry) -> str:
        return entry.key.removeprefix(self._key_of(""))

    def _member(self, entry: Entry) -> Member:
        return Member.from_json(self._identity(entry), entry.value, entry.created)
