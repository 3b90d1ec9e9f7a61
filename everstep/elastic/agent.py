"""The thin shell around `membership`: threads, leases and keys for one node's agent.

One thread decides (it alone touches the `Membership`), one keeps the lease alive, one watches, one
looks at those who may be lost. Everything that happens becomes an event in one queue, so the pure
core sees one history and never a lock. What stands in etcd is `run_keys`' affair.
"""

import contextlib
import logging
import math
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from everstep.elastic.bounds import read_bounds
from everstep.elastic.etcd import Etcd, EtcdRefusedError, EtcdUnreachableError
from everstep.elastic.generations import Generation, Member, Rules
from everstep.elastic.lapse import Lapse
from everstep.elastic.membership import Membership
from everstep.elastic.membership_events import (
    Action,
    Announce,
    Begin,
    Bounds,
    Depart,
    Ended,
    Event,
    LeaseLapsed,
    Leave,
    Propose,
    Reachable,
    Ready,
    Reclaim,
    Register,
    Registered,
    Regroup,
    Stop,
    Superseded,
    Tick,
    Unreachable,
    Withdraw,
    Withdrawn,
)
from everstep.elastic.recovery import Standing
from everstep.elastic.run_keys import News, RunKeys
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

TTL_SECONDS = 2  # the shortest lease that etcd grants at its default heartbeat
RENEWALS = 3  # in a lease's time: the more, the longer a lost node's lease outlives it
LOOK_SECONDS = 0.3  # for a word on somebody's lease; an older one says nothing
LOOK_EVERY_SECONDS = 0.1
STALLED_SECONDS = 0.3  # a worker that waits says so several times in so long
BOUNDS_SECONDS = 1.0  # how often the file with the bounds is looked at


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
        self._keys = RunKeys(etcd, run)
        self._ttl_seconds = ttl_seconds
        self._open_store, self._on_stop, self._on_regroup = open_store, on_stop, on_regroup
        self._on_ended = on_ended
        self._core = Membership(rules)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._lease = 0
        self._places: queue.SimpleQueue[Place | Exception] = queue.SimpleQueue()
        self._departed = threading.Event()
        self._looks = threading.Event()
        self._stalled_at = -math.inf
        self._suspects: dict[bool, list[str]] = {True: [], False: []}  # workers stalled, or not
        self._closed = threading.Event()
        self._committed = Standing()

    def start(self) -> None:
        """Read what etcd holds and begin to follow it.

        Raises:
            EtcdUnreachableError: etcd did not answer within the client's patience.
        """
        with contextlib.closing(self._etcd):  # the caller's thread asks no more
            self._take_in(self._keys.read())
        for name, run in (
            ("decide", self._decide),
            ("watch", self._watch),
            ("lease", self._keep_lease),
            ("suspects", self._follow_suspects),
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

    def stalled(self) -> None:
        """Say that workers wait for others for longer than usual; as long as they do, several times a second."""
        self._stalled_at = time.monotonic()
        self._looks.set()

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
        self._looks.set()
        with contextlib.suppress(EverstepError):
            self._deregister()
        self._etcd.close()

    def end_run(self, ended: Ended) -> None:
        """Tell everyone who waits, now or within a minute, that the run is over."""
        with contextlib.closing(self._etcd):
            self._keys.put_outcome(ended)

    def commit(self, number: int, taken_in: int, step: int) -> bool:
        """Commit a step for generation `number`: false where it is not current, or etcd does not say."""
        try:
            with contextlib.closing(self._etcd):
                return self._keys.commit(number, Standing(taken_in, step))
        except EverstepError as error:
            log.warning("step %d is not committed, a later one will be: %s", step, error)
            return False

    @property
    def committed(self) -> Standing:
        """The newest committed checkpoint.

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
                self._note_suspects()
        except Exception as error:  # whoever waits in rendezvous must hear of any end
            log.debug("the membership thread ends", exc_info=True)
            self._places.put(error)
            self._on_stop(f"membership ended: {error}")

    def _note_suspects(self) -> None:
        """For the thread that looks at them, since this one alone touches the core."""
        self._suspects = {
            stalled: self._core.suspects(stalled=stalled) for stalled in (True, False)
        }
        if self._suspects[False]:
            self._looks.set()

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
        self._keys.put_member(self._member(identity, after), lease)
        self._lease = lease
        self._events.put(Registered(identity))

    def _reclaim(self, claim: Reclaim) -> None:
        """Put the key back that lapsed, in one transaction with the question whether that is right."""
        lease = self._etcd.grant(self._ttl_seconds)
        member = self._member(claim.identity, claim.after, leaving=claim.leaving)
        regained = self._keys.put_member_back(member, lease, claim.revision)
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
        try:
            self._keys.put_member(self._member(identity, after, leaving=leaving), self._lease)
        except EtcdRefusedError:  # the lease has lapsed meanwhile: the key must not come back
            self._events.put(LeaseLapsed())

    def _member(self, identity: str, after: int, *, leaving: bool = False) -> Member:
        return Member(identity, self._node.name, self._node.address, after, leaving)

    def _propose(self, proposal: Propose) -> None:
        generation = Generation(proposal.number, proposal.members, self._open_store())
        try:
            agreed = self._keys.propose(generation, proposal.replaces)
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
        while not self._closed.wait(self._ttl_seconds / RENEWALS):
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

    # --- the thread that looks at suspects ---

    def _follow_suspects(self) -> None:
        lapses: dict[str, Lapse] = {}
        while self._looks.wait() and not self._closed.wait(LOOK_EVERY_SECONDS):
            self._looks.clear()
            stalled = time.monotonic() - self._stalled_at < STALLED_SECONDS
            lapses = {name: lapses.get(name) or Lapse() for name in self._suspects[stalled]}
            with contextlib.suppress(EverstepError):  # etcd does not say, then nothing is known
                for name, lapse in lapses.items():
                    self._look_at(name, lapse)
            if self._suspects[False]:
                self._looks.set()

    def _look_at(self, name: str, lapse: Lapse) -> None:
        lapse.lease = lapse.lease or self._keys.lease_of(name)
        asked_at = time.monotonic()
        left = self._etcd.seconds_left(lapse.lease, request_seconds=LOOK_SECONDS)
        if left is None:  # its owner may put its key back under another one
            lapse.lease = 0
        elif lapse.told(left, asked_at, time.monotonic()):
            log.info("the lease of %s has lapsed", name)
            self._etcd.revoke(lapse.lease)

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
                self._take_in(self._keys.follow())
            except OSError as error:
                log.debug("the watch starts afresh: %s", error)
            with contextlib.suppress(EverstepError):
                self._take_in(self._keys.read())

    def _take_in(self, news: Iterable[News]) -> None:
        for one in news:
            if isinstance(one, Standing):
                self._committed = one
            else:
                self._events.put(one)
