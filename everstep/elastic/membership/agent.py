"""One node's agent: the threads, leases and keys around the pure `state_machine.Membership`.

One thread decides (only it changes the `Membership`), one renews the lease, one watches etcd, one exchanges
heartbeats, one probes the leases of members that may be lost, one probes the connections to other nodes, and one
reads the group's bounds. Everything that happens becomes an event in one queue, so the state machine sees a single
history and needs no lock.
`run_keys` defines the keys in etcd.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from everstep.elastic.membership.bounds import read_bounds
from everstep.elastic.membership.etcd_client import Etcd
from everstep.elastic.membership.events import (
    Action,
    Announce,
    Begin,
    BoundsChanged,
    Coordinate,
    Depart,
    Event,
    Evict,
    GiveUp,
    Instruct,
    Leave,
    Postpone,
    Probe,
    Probed,
    Progressed,
    Propose,
    Ready,
    Reclaim,
    Register,
    Regroup,
    Resign,
    RunEnded,
    Stop,
    Tick,
    Withdraw,
    Withdrawn,
)
from everstep.elastic.membership.generations import Generation, GroupLimits
from everstep.elastic.membership.heartbeats import Heartbeats
from everstep.elastic.membership.lease_prober import LeaseProber
from everstep.elastic.membership.own_key import AgentIdentity, OwnKey, lease_seconds
from everstep.elastic.membership.reachability import ProbeServer
from everstep.elastic.membership.run_keys import RunKeys, Update
from everstep.elastic.membership.shortage import ShortageLog
from everstep.elastic.membership.state_machine import Membership
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.errors import EverstepError

log = logging.getLogger(__name__)


DECIDE_INTERVAL_SECONDS = 1.0  # the longest time without a decision
BOUNDS_INTERVAL_SECONDS = 1.0  # interval between two readings of the file with the bounds
WATCH_INTERVAL_SECONDS = 0.5  # shortest interval between the starts of two watches
GIVE_UP_FIX = (
    "Check the network between the nodes: network policies, security groups, and the interface in "
    "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME."
)


class LeftError(Exception):
    """This node has left, as requested."""


class RunEndedError(Exception):
    """The run is over, with this outcome."""

    def __init__(self, outcome: RunEnded) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


@dataclass(frozen=True)
class NodeAssignment:
    """This node's rank in a generation."""

    generation: Generation
    rank: int


class Agent:
    """The agent of one node in one run.

    Args:
        etcd: client of etcd.
        run: name of the run; agents of one run find each other by it.
        node: this node.
        limits: limits of the group.
        open_store: function that opens the store of a generation that this node proposes, and returns its `host:port`.
        on_stop: called with a reason when the workers must leave their group immediately.
        on_regroup: called with a reason when the workers should leave their group after a step that all agree on.
        on_ended: called when the run is over for all.
        on_commit: called with the progress of a newly committed checkpoint.
        ttl_seconds: duration of this node's lease; None to derive it from the number of members.
        bounds_file: file with the group's bounds if these may change during the run; see `bounds`.
        heartbeats: whether to exchange heartbeats; otherwise only leases detect a silent loss.

    Attributes:
        has_started: whether this agent follows etcd; before that, the node can be in no group.
    """

    def __init__(
        self,
        etcd: Etcd,
        run: str,
        node: AgentIdentity,
        limits: GroupLimits,
        *,
        open_store: Callable[[], str],
        on_stop: Callable[[str], None],
        on_regroup: Callable[[str], None],
        on_ended: Callable[[RunEnded], None],
        on_commit: Callable[[StepProgress], None] = lambda _: None,
        ttl_seconds: int | None = None,
        bounds_file: str | None = None,
        heartbeats: bool = True,
    ) -> None:
        self._etcd, self._node = etcd, node
        self._bounds_file = bounds_file
        self._keys = RunKeys(etcd, run)
        self._open_store, self._on_stop, self._on_regroup = open_store, on_stop, on_regroup
        self._on_ended, self._on_commit = on_ended, on_commit
        self._core = Membership(limits)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._assignments: queue.SimpleQueue[NodeAssignment | Exception] = queue.SimpleQueue()
        self._assigned_generation: Generation | None = None
        self._has_departed = False
        self._is_over = threading.Event()  # departed, closed or failed, or the run is over
        self.has_started = False
        self._lease_prober = LeaseProber(etcd, self._keys)
        self._shortage_log = ShortageLog()
        self._heartbeats = Heartbeats(etcd, self._keys, self._events.put) if heartbeats else None
        self._closed = threading.Event()
        self._newest_commit = StepProgress()
        self._progressed_number = 0  # number of the current generation once it has taken a step
        self._reachability = ProbeServer(node.address)
        self._probes: queue.SimpleQueue[Probe | None] = queue.SimpleQueue()
        self._own_key = OwnKey(
            etcd,
            self._keys,
            node,
            ttl_seconds=ttl_seconds or lease_seconds(limits.max_members),
            endpoint=lambda: self._reachability.endpoint,
            report=self._events.put,
        )

    def start(self) -> None:
        """Read the run's keys from etcd and begin to follow them.

        Raises:
            EtcdRefusedError: etcd refused the request, for example the password.
            EtcdUnreachableError: etcd did not respond in time.
        """
        self._keys.watch_all(watches_all=self._core.watches_all)
        with contextlib.closing(self._etcd):  # the caller's thread sends no further request
            self._handle_updates(self._keys.read())
        self.has_started = True
        self._reachability.start()
        if self._heartbeats:
            self._heartbeats.open(self._reachability.listener)
        for name, run in (
            *([("heartbeats", self._heartbeats.run)] if self._heartbeats else []),
            ("decide", self._decide),
            ("watch", self._watch),
            ("lease", self._own_key.keep_lease),
            ("suspects", self._lease_prober.run),
            ("bounds", self._follow_bounds),
            ("probes", self._follow_probes),
        ):
            threading.Thread(
                target=self._run_and_close, args=(run,), name=f"everstep-{name}", daemon=True
            ).start()

    def report_ready(self, *, may_be_only_copy: bool = False) -> None:
        """Report that this node's workers are in no group and are ready for the next one.

        Args:
            may_be_only_copy: whether their state may be in no other place; then a leaving node does not depart yet.
        """
        self._events.put(Ready(may_be_only_copy))

    def withdraw(self) -> None:
        """Report that this node's workers cannot be in a group until they are ready again."""
        self._events.put(Withdrawn())

    def next_assignment(self) -> NodeAssignment:
        """Wait for the next generation with this node.

        Raises:
            LeftError: this node has left.
            RunEndedError: the run is over.
            EverstepError: etcd could not be reached or refused a request, or this node gave up.
            Exception: a thread of this agent has ended with this error.
        """
        assignment = self._assignments.get()
        if isinstance(assignment, Exception):
            self._assignments.put(assignment)  # every later call must raise it, too
            raise assignment
        return assignment

    @property
    def generation_number(self) -> int:
        """Number of the newest generation with this node: `on_stop` and `on_regroup` refer to it.

        They may be called before another thread has taken the assignment.
        """
        return self._assigned_generation.number if self._assigned_generation else 0

    def report_stall(self) -> None:
        """Report that workers wait unusually long for others; called several times a second while they wait."""
        self._lease_prober.report_stall()

    def report_progress(self, number: int) -> None:
        """Report that the workers have taken a step with generation `number`; called again for later steps."""
        if self._heartbeats:
            self._heartbeats.record_training(number)
        if number != self._progressed_number:
            self._progressed_number = number
            self._events.put(Progressed(number))

    def is_alone_without_progress(self) -> bool:
        """Return True if this agent observes no other member, and has observed no step of the run."""
        members = {**self._core.members, **self._core.view.coordinators.members}
        others = [member for member in members.values() if member.node != self._node.name]
        return (
            not others and not self._core.has_progressed and self._newest_commit == StepProgress()
        )

    def leave(self) -> None:
        """Announce to the others that this node leaves; return immediately."""
        self._events.put(Leave())

    def wait_departed(self, seconds: float) -> bool:
        """Wait at most `seconds` until this node has departed; return False if it has not.

        Return early if it will not depart: the run is over, or this agent is closed or has failed.
        """
        self._is_over.wait(seconds)
        return self._has_departed

    def close(self) -> None:
        """Deregister immediately, so that no agent waits for a lease to lapse, and stop following etcd."""
        if self._closed.is_set():
            return
        self._stop_threads()
        self._own_key.remove()
        self._etcd.close()

    def _stop_threads(self) -> None:
        self._closed.set()
        self._is_over.set()
        self._events.put(Tick())
        self._lease_prober.close()
        if self._heartbeats:
            self._heartbeats.close()
        self._own_key.close()
        self._probes.put(None)
        self._reachability.close()

    def end_run(self, outcome: RunEnded, number: int) -> bool:
        """Announce to all agents that the run is over.

        Args:
            outcome: the outcome.
            number: generation whose workers have the outcome, which fences the announcement like a commit; 0 if they
                were in no generation yet.

        Returns:
            False if generation `number` is not current: the others continue without this node. False as well if etcd
            does not respond or refuses the request.
        """
        try:
            with contextlib.closing(self._etcd):
                generation = self._generation(number)
                is_announced = bool(generation or not number) and self._keys.put_outcome(
                    outcome, generation
                )
        except EverstepError as error:
            log.error("the end of the run is not announced (%s): %s", outcome.reason, error)
            return False
        if not is_announced:
            log.warning(
                "generation %s is not current and cannot end the run: %s", number, outcome.reason
            )
        return is_announced

    def commit(self, number: int, snapshot_generation: int, step: int, run: str = "") -> bool:
        """Commit a step for generation `number`; return False if the commit is refused or etcd does not respond."""
        generation = self._generation(number)
        if not generation:
            return False
        try:
            with contextlib.closing(self._etcd):
                return self._keys.commit(generation, StepProgress(snapshot_generation, step, run))
        except EverstepError as error:
            log.warning("step %d is not committed, a later one will be: %s", step, error)
            return False

    def _generation(self, number: int) -> Generation | None:
        """Return this node's newest generation if it has this number: no other one can be current."""
        newest = self._assigned_generation
        return newest if newest and newest.number == number else None

    @property
    def committed(self) -> StepProgress:
        """The newest committed checkpoint; it never goes back.

        Commits and generations are observed in etcd's order: this agent has observed every commit before
        the generations that it observes.
        """
        return self._newest_commit

    def _run_and_close(self, run: Callable[[], None]) -> None:
        """Run one thread's loop; an exception ends the whole agent.

        An agent with a dead thread would renew its lease and never act: all others would wait for it.
        """
        try:
            run()
        except Exception as error:
            log.debug("the agent ends with its thread", exc_info=True)
            self._fail(error)
        finally:
            self._etcd.close()  # each thread has its own connection

    def _fail(self, error: Exception) -> None:
        self._assignments.put(error)
        self._on_stop(f"membership ended: {error}")
        self._stop_threads()
        self._own_key.remove()

    # --- the deciding thread ---

    def _decide(self) -> None:
        while not self._closed.is_set():
            events = [self._next_event(), *self._more_events()]
            for action in self._core.handle_all(events, time.monotonic()):
                self._carry_out(action)
            self._keys.watch_all(watches_all=self._core.watches_all)
            always = self._core.suspects(stalled=False)
            self._lease_prober.suspect(
                stalled=always or self._core.suspects(stalled=True),
                always=always,
                members=len(self._core.members),
            )
            if self._heartbeats:
                self._heartbeats.follow(self._core.heartbeat_identity, self._core.view)
            if shortage := self._shortage_log.due(self._core.shortage, time.monotonic()):
                log.info("%s", shortage)
            self._own_key.decided_at = time.monotonic()

    def _next_event(self) -> Event:
        now = time.monotonic()
        wake_at = self._core.wake_at(now)
        wait = DECIDE_INTERVAL_SECONDS if wake_at is None else wake_at - now + 0.001
        try:
            return self._events.get(timeout=max(0.0, min(wait, DECIDE_INTERVAL_SECONDS)))
        except queue.Empty:
            return Tick()

    def _more_events(self) -> Iterator[Event]:
        """Yield the events that have arrived in the meantime."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._events.get_nowait()

    def _carry_out(self, action: Action) -> None:
        match action:
            case Register(after, avoids):
                self._own_key.register(after, avoids)
            case Reclaim():
                self._own_key.reclaim(action)
            case Announce():
                self._own_key.announce(self._core.identity, action)
            case Propose():
                self._propose(action)
            case Begin(generation, rank):
                self._assigned_generation, self._progressed_number = generation, 0
                self._assignments.put(NodeAssignment(generation, rank))
            case Stop(reason):
                self._on_stop(reason)
            case Regroup(reason):
                self._on_regroup(reason)
            case Withdraw():
                self._own_key.remove()
            case Depart():
                self._own_key.remove()
                self._has_departed = True
                self._is_over.set()
                self._assignments.put(LeftError(self._node.name))
            case _:
                self._carry_out_locally(action)

    def _carry_out_locally(self, action: Action) -> None:
        """Execute an action that `_carry_out` does not handle itself."""
        match action:
            case Probe():
                self._probes.put(action)
            case Evict(identity):
                self._evict(identity)
            case Postpone(reason):
                log.warning("not registered yet: %s", reason)
            case Coordinate():
                self._own_key.coordinate(self._core.identity)
            case Resign():
                if self._core.identity:
                    self._keys.remove_coordinator(self._core.identity)
            case Instruct():
                self._keys.instruct(action)
            case GiveUp(reason):
                log.error("this node gives up, the others continue: %s", reason)
                self._fail(EverstepError(reason, GIVE_UP_FIX))
            case RunEnded():
                self._assignments.put(RunEndedError(action))
                self._on_ended(action)
                self._is_over.set()

    def _propose(self, proposal: Propose) -> None:
        generation = Generation(
            proposal.number,
            proposal.members,
            self._open_store(),
            endpoints=proposal.endpoints,
            orders=proposal.orders,
        )
        is_agreed = self._keys.propose(generation, proposal.replaces)
        log.info(
            "generation %d with %d nodes: %s",
            generation.number,
            len(generation.members),
            "agreed" if is_agreed else "another proposal was first",
        )

    def _evict(self, identity: str) -> None:
        """Revoke the lease of a member that did not stop in time; a failed attempt is repeated later."""
        log.warning("%s did not leave its generation in time: its lease is revoked", identity)
        with contextlib.suppress(EverstepError):
            if lease := self._keys.lease_of(identity):
                self._etcd.revoke(lease)

    # --- the thread that probes the connections to other nodes ---

    def _follow_probes(self) -> None:
        while (probe := self._probes.get()) is not None:
            unreachable = self._reachability.probe(probe.targets)
            targets = frozenset(name for name, _ in probe.targets)
            if unreachable:
                log.warning("cannot train with %s: no connection", ", ".join(sorted(unreachable)))
            self._events.put(Probed(targets, unreachable))

    # --- the thread that reads the bounds ---

    def _follow_bounds(self) -> None:
        previous = None
        while self._bounds_file and not self._closed.wait(BOUNDS_INTERVAL_SECONDS):
            bounds = read_bounds(self._bounds_file)
            if bounds and bounds != previous:
                previous = bounds
                log.info("from now on, %d to %d nodes train together", *bounds)
                self._events.put(BoundsChanged(*bounds))

    # --- the watching thread ---

    def _watch(self) -> None:
        while not self._closed.is_set():
            started_at = time.monotonic()
            try:
                self._handle_updates(self._keys.follow())
            except OSError as error:
                log.debug("the watch starts again: %s", error)
                # An etcd or a proxy that refuses watches would be sent requests without a pause.
                self._closed.wait(max(0.0, started_at + WATCH_INTERVAL_SECONDS - time.monotonic()))
            with contextlib.suppress(EverstepError):
                self._handle_updates(self._keys.read())

    def _handle_updates(self, updates: Iterable[Update]) -> None:
        for update in updates:
            if isinstance(update, StepProgress):  # an etcd restored from a backup undoes no commit
                self._newest_commit = max(self._newest_commit, update)
                self._on_commit(self._newest_commit)
            else:
                self._events.put(update)
