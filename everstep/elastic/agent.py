"""The thin shell around `membership`: threads, leases and keys for one node's agent.

One thread decides (it alone touches the `Membership`), one keeps the lease alive, one watches.
Everything that happens becomes an event in one queue, so the pure core sees one history and never a
lock. Keys in etcd, under `/everstep/<run>/`: `members/<identity>` (with the lease), `generation`,
`committed`, `outcome`.
"""

import contextlib
import json
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from everstep.elastic.bounds import read_bounds
from everstep.elastic.etcd import Entry, Etcd, EtcdRefusedError, EtcdUnreachableError
from everstep.elastic.generations import Generation, Member, Rules
from everstep.elastic.membership import Membership
from everstep.elastic.membership_events import (
    Action,
    Announce,
    Begin,
    Bounds,
    Depart,
    Ended,
    Event,
    GenerationPut,
    LeaseLapsed,
    Leave,
    MemberGone,
    MemberPut,
    Propose,
    Reachable,
    Ready,
    Reclaim,
    Register,
    Registered,
    Regroup,
    Snapshot,
    Stop,
    Superseded,
    Tick,
    Unreachable,
    Withdraw,
    Withdrawn,
)
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

TTL_SECONDS = 2  # the shortest lease that etcd grants at its default heartbeat
WATCH_IDLE_SECONDS = 5.0  # a watch silent for longer is read afresh
COMMIT_PATIENCE_SECONDS = 14.0  # for each of two requests; a worker waits 30 s for the answer
BOUNDS_SECONDS = 1.0  # how often the file with the bounds is looked at
OUTCOME_SECONDS = 60  # how long the word that a run is over stands in etcd


class LeftError(Exception):
    """This node has left, as it was told to."""


class RunEndedError(Exception):
    """The run is over; `ended` says how."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.reason)
        self.ended = ended


@dataclass(frozen=True)
class Node:
    """What an agent says of itself."""

    name: str
    address: str


@dataclass(frozen=True)
class Place:
    """This node's place in a generation."""

    generation: Generation
    rank: int


class Agent:
    """One node's part in a run.

    Args:
        etcd: the client.
        run: name of the run; agents of one run find each other by it.
        node: this node.
        rules: limits of the group.
        open_store: makes the meeting point of a generation this node proposes; its `host:port`.
        on_stop: called with a reason when the workers must end at once.
        on_regroup: called with a reason when they should end after a step they agree on.
        on_ended: called when the run is over for everyone.
        bounds_file: tells from how few to how many members train together, should that change while
            this agent runs; see `bounds`.
    """

    def __init__(
        self,
        etcd: Etcd,
        run: str,
        node: Node,
        rules: Rules,
        *,
        open_store: Callable[[], str],
        on_stop: Callable[[str], None],
        on_regroup: Callable[[str], None],
        on_ended: Callable[[Ended], None],
        ttl_seconds: int = TTL_SECONDS,
        bounds_file: str | None = None,
    ) -> None:
        self._etcd, self._node = etcd, node
        self._bounds_file = bounds_file
        self._prefix = f"/everstep/{run}/"
        self._ttl_seconds = ttl_seconds
        self._open_store, self._on_stop, self._on_regroup = open_store, on_stop, on_regroup
        self._on_ended = on_ended
        self._core = Membership(rules)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._lease = 0
        self._places: queue.SimpleQueue[Place | Exception] = queue.SimpleQueue()
        self._departed = threading.Event()
        self._closed = threading.Event()
        self._watching_from = 0
        self._came_at = 0
        self._committed = (0, 0)

    def start(self) -> None:
        """Read what etcd holds and begin to follow it.

        Raises:
            EtcdUnreachableError: etcd did not answer within the client's patience.
        """
        with contextlib.closing(self._etcd):  # the caller's thread asks no more
            self._read()
        for name, run in (
            ("decide", self._decide),
            ("watch", self._watch),
            ("lease", self._keep_lease),
            ("bounds", self._follow_bounds),
        ):
            threading.Thread(
                target=self._run_and_close, args=(run,), name=f"everstep-{name}", daemon=True
            ).start()

    def rendezvous(self) -> Place:
        """Wait to be in a generation.

        Raises:
            LeftError: this node has been told to go.
            RunEndedError: the run is over.
            EverstepError: etcd could not be reached, or refused.
        """
        self.ready()
        return self.next_place()

    def ready(self) -> None:
        """Say that this node's workers are in no group and want to be in the next."""
        self._events.put(Ready())

    def withdraw(self) -> None:
        """Say that this node's workers can be in no group until they are ready again."""
        self._events.put(Withdrawn())

    def next_place(self) -> Place:
        """Wait for the generation that this node is in next; raises as `rendezvous` does."""
        place = self._places.get()
        if isinstance(place, Exception):
            self._places.put(place)  # there will be no other answer
            raise place
        return place

    def leave(self) -> None:
        """Tell the others that this node goes; returns at once."""
        self._events.put(Leave())

    def wait_departed(self, seconds: float) -> bool:
        """Whether this node's key has been taken away within so many seconds."""
        return self._departed.wait(seconds)

    def close(self) -> None:
        """Deregister at once, so that nobody waits for a lease to lapse, and stop following etcd."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._events.put(Tick())
        with contextlib.suppress(EverstepError):
            self._deregister()
        self._etcd.close()

    def end_run(self, ended: Ended) -> None:
        """Tell everyone who waits, now or within `OUTCOME_SECONDS`, that the run is over."""
        with contextlib.closing(self._etcd):
            # The lasting truth is the run folder's; this only wakes who waits.
            lease = self._etcd.grant(OUTCOME_SECONDS)
            said = json.dumps({"finished": ended.finished, "reason": ended.reason})
            self._etcd.put(f"{self._prefix}outcome", said, lease)

    def commit(self, number: int, taken_in: int, step: int) -> bool:
        """Commit a step for generation `number`: false where it is not current, or etcd does not say.

        One transaction: it holds only if the generation's key is still the one that was read.
        """
        key = f"{self._prefix}generation"
        said = json.dumps({"lineage": taken_in, "step": step, "generation": number})
        try:
            with contextlib.closing(self._etcd):
                entries, _ = self._etcd.get(key, patience_seconds=COMMIT_PATIENCE_SECONDS)
                if not entries or Generation.from_json(entries[0].value).number != number:
                    return False
                return self._etcd.put_while_unchanged(
                    f"{self._prefix}committed",
                    said,
                    witness=key,
                    modified=entries[0].modified,
                    patience_seconds=COMMIT_PATIENCE_SECONDS,
                )
        except EverstepError as error:
            log.warning("step %d is not committed, a later one will be: %s", step, error)
            return False

    @property
    def committed(self) -> tuple[int, int]:
        """Generation and step of the newest committed checkpoint; zeros where there is none.

        In etcd's order with the generations: when one is heard of, so is every commit before it.
        """
        return self._committed

    def waiting_members(self) -> int:
        """How many members wait outside the current generation."""
        core = self._core
        inside = core.current.members if core.current else ()
        return sum(
            not member.leaving and name not in inside for name, member in list(core.members.items())
        )

    def _run_and_close(self, run: Callable[[], None]) -> None:
        try:
            run()
        finally:
            self._etcd.close()  # each thread has a connection of its own

    # --- the deciding thread ---

    def _decide(self) -> None:
        try:
            while not self._closed.is_set():
                events = [self._next_event(), *self._more_events()]
                for action in self._core.handle_all(events, time.monotonic()):
                    self._carry_out(action)
        except Exception as error:  # whoever waits in rendezvous must hear of any end
            log.debug("the membership thread ends", exc_info=True)
            self._places.put(error)
            self._on_stop(f"membership ended: {error}")

    def _next_event(self) -> Event:
        wake_at = self._core.wake_at(time.monotonic())
        if wake_at is None:
            return self._events.get()
        try:
            return self._events.get(timeout=max(0.0, wake_at - time.monotonic()) + 0.001)
        except queue.Empty:
            return Tick()

    def _more_events(self) -> Iterator[Event]:
        """What has come in the meantime."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._events.get_nowait()

    def _carry_out(self, action: Action) -> None:  # noqa: C901 - one case an action
        match action:
            case Register(after):
                self._register(after)
            case Reclaim():
                self._reclaim(action)
            case Announce(after, leaving):
                self._announce(after, leaving=leaving)
            case Propose():
                self._propose(action)
            case Begin(generation, rank):
                self._places.put(Place(generation, rank))
            case Stop(reason):
                self._on_stop(reason)
            case Regroup(reason):
                self._on_regroup(reason)
            case Withdraw():
                self._deregister()
            case Depart():
                self._deregister()
                self._departed.set()
                self._places.put(LeftError(self._node.name))
            case Ended():
                self._places.put(RunEndedError(action))
                self._on_ended(action)

    def _register(self, after: int) -> None:
        identity = f"{self._node.name}-{uuid.uuid4().hex[:8]}"
        lease = self._etcd.grant(self._ttl_seconds)
        member = Member(identity, self._node.name, self._node.address, after)
        self._etcd.put(f"{self._prefix}members/{identity}", member.to_json(), lease)
        self._lease = lease
        self._events.put(Registered(identity))

    def _reclaim(self, claim: Reclaim) -> None:
        """Put the key back that lapsed, in one transaction with the question whether that is right."""
        lease = self._etcd.grant(self._ttl_seconds)
        member = Member(
            claim.identity, self._node.name, self._node.address, claim.after, claim.leaving
        )
        regained = self._etcd.put_while_unchanged(
            f"{self._prefix}members/{claim.identity}",
            member.to_json(),
            witness=f"{self._prefix}generation",
            modified=claim.revision,
            lease=lease,
        )
        self._lease = lease if regained else 0
        log.warning("the lease lapsed; %s", "it is renewed" if regained else "the others went on")
        self._events.put(Registered(claim.identity) if regained else Superseded())

    def _announce(self, after: int, *, leaving: bool) -> None:
        identity = self._core.identity
        if identity is None:
            return
        if not self._lease:  # without one the key would never go
            self._events.put(LeaseLapsed())
            return
        member = Member(identity, self._node.name, self._node.address, after, leaving)
        try:
            self._etcd.put(f"{self._prefix}members/{identity}", member.to_json(), self._lease)
        except (
            EtcdRefusedError
        ):  # the lease has lapsed meanwhile: without it the key must not come back
            self._events.put(LeaseLapsed())

    def _propose(self, proposal: Propose) -> None:
        generation = Generation(proposal.number, proposal.members, self._open_store())
        key = f"{self._prefix}generation"
        try:
            agreed = self._etcd.put_if_unchanged(key, generation.to_json(), proposal.replaces)
        except EtcdUnreachableError:
            self._core.proposal_failed()
            raise
        log.info(
            "generation %d of %d: %s",
            generation.number,
            len(generation.members),
            "agreed" if agreed else "another was first",
        )

    def _deregister(self) -> None:
        if self._lease:
            lease, self._lease = self._lease, 0
            self._etcd.revoke(lease)

    # --- the lease thread ---

    def _keep_lease(self) -> None:
        away = False
        while not self._closed.wait(self._ttl_seconds / 4):
            lease = self._lease
            if not lease:
                continue
            alive = self._renew(lease)
            if away != (alive is None):  # first of all: what follows is to be seen in its light
                away = alive is None
                log.warning("etcd %s", "does not answer" if away else "answers again")
                self._events.put(Unreachable() if away else Reachable())
            if alive is False and lease == self._lease:
                self._lease = 0
                self._events.put(LeaseLapsed())

    def _renew(self, lease: int) -> bool | None:
        """Whether a lease stands; None where etcd does not say, and only its own word ends a lease."""
        try:
            return self._etcd.keep_alive(
                lease, request_seconds=self._ttl_seconds / 3, patience_seconds=self._ttl_seconds / 2
            )
        except EtcdRefusedError:
            return False
        except EtcdUnreachableError:
            return None

    # --- the thread that looks at the bounds ---

    def _follow_bounds(self) -> None:
        known = None
        while self._bounds_file and not self._closed.wait(BOUNDS_SECONDS):
            said = read_bounds(self._bounds_file)
            if said and said != known:
                known = said
                log.info("from %d to %d nodes train together", *said)
                self._events.put(Bounds(*said))

    # --- the watching thread ---

    def _watch(self) -> None:
        while not self._closed.is_set():
            try:
                for changes in self._etcd.watch(
                    self._prefix, self._watching_from + 1, WATCH_IDLE_SECONDS
                ):
                    for change in changes:
                        self._pass_on(change.kind, change.entry)
            except OSError as error:
                log.debug("the watch starts afresh: %s", error)
            with contextlib.suppress(EverstepError):
                self._read()

    def _read(self) -> None:
        entries, revision = self._etcd.get(self._prefix)
        self._came_at = self._came_at or revision
        self._watching_from = revision
        members = tuple(
            self._member(e) for e in entries if e.key.startswith(f"{self._prefix}members/")
        )
        agreed = next((e for e in entries if e.key == f"{self._prefix}generation"), None)
        generation = Generation.from_json(agreed.value) if agreed else None
        for entry in entries:
            if entry.key in (f"{self._prefix}outcome", f"{self._prefix}committed"):
                self._pass_on("put", entry)
        self._events.put(Snapshot(members, generation, agreed.modified if agreed else 0))

    def _pass_on(self, kind: str, entry: Entry) -> None:
        name = entry.key.removeprefix(self._prefix)
        if name.startswith("members/"):
            if kind == "put":
                self._events.put(MemberPut(self._member(entry)))
            else:
                self._events.put(MemberGone(name.removeprefix("members/")))
        elif kind == "put" and name == "generation":
            self._events.put(GenerationPut(Generation.from_json(entry.value), entry.modified))
        elif kind == "put" and name == "committed":
            said = json.loads(entry.value)
            self._committed = (said["lineage"], said["step"])
        elif kind == "put" and name == "outcome" and entry.modified > self._came_at:
            # One that stood before this agent came is of an earlier run under the same name.
            self._events.put(Ended(**json.loads(entry.value)))

    def _member(self, entry: Entry) -> Member:
        identity = entry.key.removeprefix(f"{self._prefix}members/")
        return replace(Member.from_json(identity, entry.value, entry.created), order=entry.created)
