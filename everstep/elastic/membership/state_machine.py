"""Membership of a run: members, generations and the rule that forms them.

Pure: no clock, no socket, no torch.

A *member* is one node's agent, alive as long as its etcd lease. A *generation* is a numbered group
of members, agreed by one transaction on one key: it replaces exactly the generation that its
proposer observed, so numbers only grow and at most one generation is current. Its number is the
fencing token of everything its members commit.

Each agent feeds its observations (`Event`) to its own `Membership` and carries out the returned
`Action`s. There is no leader process: the first waiting member by rank proposes, and a second
proposer's transaction fails. One rule keeps two groups from training at the same time: *a generation is
proposed only when every live member of the current generation has stopped*. Each member stops as soon as it
learns of a change.

An outage of etcd is not such a change. Leases lapse during it, so members' keys are removed; each
member puts its own key back by a transaction that succeeds only while its generation is still current.
Until all members have had time for that, a missing key proves nothing about its member.

A generation or a commit that this agent cannot read is unknown. Until the agent can read it, the agent's workers
continue in their group and join no other.

In a large run only a few *coordinators* watch all members, and instruct the others (`coordinators`).

    register -> wait -> train -> (stop now | stop after the step) -> wait ...
                  '-> leave, or ended
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from everstep.elastic.membership.coordinators import is_large
from everstep.elastic.membership.earlier_run import EarlierRun
from everstep.elastic.membership.events import (
    Action,
    Announce,
    Begin,
    BoundsChanged,
    Depart,
    EarlierRunEnded,
    Event,
    LeaseLapsed,
    Leave,
    MemberRemoved,
    MembershipSnapshot,
    Probed,
    Progressed,
    Reachable,
    Ready,
    Reclaim,
    Register,
    Registered,
    Regroup,
    Resumed,
    RunEnded,
    Stop,
    Superseded,
    Unreachable,
    UnreadableKeys,
    Withdraw,
    Withdrawn,
)
from everstep.elastic.membership.generations import (
    Generation,
    GroupLimits,
    Member,
    training_members,
)
from everstep.elastic.membership.group_changes import GroupChanges, name_list
from everstep.elastic.membership.late_members import LateMembers
from everstep.elastic.membership.lease_suspects import suspects_between_groups, suspects_of_stall
from everstep.elastic.membership.peer_probes import PeerProbes
from everstep.elastic.membership.proposer import Proposer
from everstep.elastic.membership.run_view import RunView
from everstep.elastic.membership.shortage import Shortage, find_shortage


@dataclass
class Membership:
    """One agent's knowledge of the run, and the actions that follow from it.

    Attributes:
        limits: limits of a group.
        identity: identity of the valid registration; None without one.
        view: view of the run's keys.
        own_generation: generation of this agent's workers; None if they are in no generation.
        outcome: outcome of the run; None while it continues.
        wants_group: whether the workers are ready, and not yet in a generation.
        leaving: whether this agent's node leaves.
    """

    limits: GroupLimits
    identity: str | None = None
    view: RunView = field(default_factory=RunView)
    _may_be_only_copy: bool = False  # last report about the state of this agent's workers
    _assigned_number: int = 0  # the last generation that this agent's workers were assigned to
    own_generation: Generation | None = None
    outcome: RunEnded | None = None
    wants_group: bool = False
    leaving: bool = False
    _registering: bool = False
    _lapsed_identity: str = ""  # identity of a training agent whose key was removed
    _reclaiming: bool = False
    _is_etcd_unreachable: bool = False
    _unreadable: UnreadableKeys = field(default_factory=UnreadableKeys)  # if any, no group forms
    _outage_grace_until: float = float("-inf")
    _last_request: tuple[str, int] = ("", 0)  # kind of the last Stop or Regroup, and its generation
    _probes: PeerProbes = field(default_factory=PeerProbes)
    _last_step_generation: int = 0  # the newest generation in which the workers have taken a step
    _changes: GroupChanges = field(default_factory=GroupChanges)
    _waits_after: int = 0  # `after` in the last value of this agent's key
    _proposer: Proposer = field(default_factory=Proposer)
    _late_members: LateMembers = field(default_factory=LateMembers)
    _earlier_run: EarlierRun = field(default_factory=EarlierRun)

    @property
    def members(self) -> dict[str, Member]:
        """The members, by identity."""
        return self.view.members

    @property
    def current(self) -> Generation | None:
        """The current generation according to etcd."""
        return self.view.current

    @property
    def heartbeat_identity(self) -> str | None:
        """The identity under which this agent sends heartbeats.

        A fenced agent continues to send them until the others have continued without it, so that they wait until it is
        registered again.
        """
        will_rejoin = self.own_generation is not None or self.wants_group
        if self.identity or self.leaving or not will_rejoin:
            return self.identity
        return self._lapsed_identity if self.view.has_fenced(self._lapsed_identity) else None

    @property
    def watches_all(self) -> bool:
        """True if this agent has to watch all members' keys."""
        return not is_large(self.limits) or self.identity in self.view.ranked_coordinators(
            self.limits
        )

    @property
    def _has_full_view(self) -> bool:
        return self.view.is_complete and self.watches_all

    def handle(self, event: Event, now: float) -> list[Action]:
        """Process one event; `now` is any monotonic clock, in seconds."""
        return self.handle_all([event], now)

    def handle_all(self, events: Iterable[Event], now: float) -> list[Action]:
        """Process events in their order, then decide once.

        A decision looks at every member. In a large group events arrive by the hundred, so an agent that
        decided after each of them would fall behind.
        """
        actions: list[Action] = []
        for event in events:
            if isinstance(event, Reachable) and self._is_etcd_unreachable:
                self._is_etcd_unreachable = False
                self._outage_grace_until = now + self.limits.outage_grace_seconds
            actions += self._learn(event, now)
        return [*actions, *self._decide(now)]

    def wake_at(self, now: float) -> float | None:
        """Return when a `Tick` could change something; None if only an event can."""
        due_times = [self._outage_grace_until]
        if is_large(self.limits) and self.identity:
            due_times += self.view.coordinators.next_due(self.identity, self.current)
        if self.own_generation or (is_large(self.limits) and self._has_full_view):
            due_times += self._changes.next_due(self.limits)
        if self.wants_group and self._proposer.propose_at is not None:
            due_times.append(self._proposer.propose_at)
        elif self.wants_group and not self.identity:
            due_times.append(self._probes.retry_at)
        if self.identity:
            due_times += self._probes.next_due(self.view)
        due_times += self._proposer.next_due(self.view, self.limits)
        due_times += self._earlier_run.next_due()
        return min((moment for moment in due_times if moment > now), default=None)

    @property
    def has_progressed(self) -> bool:
        """True if this agent's workers have taken a step in any generation."""
        return self._last_step_generation > 0

    @property
    def shortage(self) -> Shortage | None:
        """The shortage of members for which this agent waits, if any."""
        if not self.wants_group or not self.identity or not self._has_full_view:
            return None
        return self._earlier_run.describe(find_shortage(self.view, self.limits), self.view)

    def suspects(self, *, stalled: bool) -> list[str]:
        """Return the members that may have been lost without notice; this agent probes their leases.

        While workers train, it does so only if its workers wait unusually long for others (`stalled`).
        """
        if not self.identity or not self._has_full_view:
            return []
        if self.own_generation:
            suspects = suspects_of_stall(self.view, self.identity, self.own_generation, self.limits)
            return suspects if stalled else []
        return (
            suspects_between_groups(self.view, self.identity, self.limits)
            if self.wants_group
            else []
        )

    # --- events ---

    def _learn(self, event: Event, now: float) -> list[Action]:
        match event:
            case Ready(may_be_only_copy):
                return self._become_ready(may_be_only_copy=may_be_only_copy)
            case Leave():
                return self._begin_to_leave()
            case Withdrawn():
                return self._withdraw()
            case Registered(identity):
                return self._become_registered(identity)
            case LeaseLapsed():
                self._lapse()
            case Superseded():
                self._lapsed_identity, self._reclaiming = "", False
            case Probed():
                return self._take_probe(event, now)
            case Resumed(identity):
                self._late_members.record(identity, self.view, now)
            case BoundsChanged(min_members, max_members):
                self.limits = replace(self.limits, min_members=min_members, max_members=max_members)
            case _:
                self._observe(event)
        return []

    def _observe(self, event: Event) -> None:
        match event:
            case Unreachable():
                self._is_etcd_unreachable = True
            case MembershipSnapshot():
                self._adopt(event)
            case UnreadableKeys():
                self._note_unreadable(event)
            case Progressed(number):
                self._note_step(number)
            case RunEnded():
                self.outcome = event
            case EarlierRunEnded():
                self._earlier_run.record(event)
            case _:
                self.view.observe(event)
        if self.identity and (
            (isinstance(event, MemberRemoved) and event.identity == self.identity)
            or self.view.has_fenced(self.identity)
        ):
            self._lapse()

    def _adopt(self, snapshot: MembershipSnapshot) -> None:
        if snapshot.store_was_replaced or snapshot.revision < self.view.revision:
            self._proposer.repeat()
            self._earlier_run = EarlierRun()  # its revision was one of the former store
        self._note_unreadable(snapshot.unreadable)
        self.view.adopt(snapshot)
        if snapshot.complete and self.identity and self.identity not in self.members:
            self._lapse()  # the key was removed while this agent did not watch

    def _note_unreadable(self, unreadable: UnreadableKeys) -> None:
        """Record which keys cannot be read; once all can, propose again, since the keys may have changed."""
        if self._unreadable and not unreadable:
            self._proposer.repeat()
        self._unreadable = unreadable

    def _lapse(self) -> None:
        """Record that this agent's key was removed; it may be restored until the others continue without it."""
        if self.own_generation and self.identity:
            self._lapsed_identity = self.identity
        self.identity = None
        self.view.coordinators.forget_claims()

    def _become_ready(self, *, may_be_only_copy: bool) -> list[Action]:
        group, self.own_generation, self.wants_group = self.own_generation, None, True
        self._may_be_only_copy = may_be_only_copy
        has_other_copy = not may_be_only_copy and (group is None or self._others_have_state(group))
        if self.leaving and has_other_copy:
            self.wants_group, self.identity = False, None
            return [Depart()]
        if not self.identity:
            return []
        if group and self._failed_without_step(group):
            actions = self._probes.probe_after_failure(self.view, self.identity, group)
            if actions:
                return actions  # this agent waits for the next group once the probe has a result
        return [self._announce()]

    def _others_have_state(self, group: Generation) -> bool:
        """Return True if others continue with the state of a generation whose workers have stopped here.

        False if etcd has lost the generation, or if it has lost this agent's key and no newer generation exists: then
        it is unknown whether the others continue, and the nodes may all leave.
        """
        if self.current is None or not self.view.revision:
            return False
        is_present = bool(self.identity) or self.view.has_fenced(self._lapsed_identity)
        return is_present or self.current.number > group.number

    def _failed_without_step(self, group: Generation) -> bool:
        """Return True if a generation ended without a step although no member was lost."""
        regroup_requested = self._last_request == ("regroup", group.number)
        return (
            self._last_step_generation < group.number
            and not regroup_requested
            and self.view.instructions.reason("stop", group.number) is None
            and all(name in self.members for name in group.members)
        )

    def _note_step(self, number: int) -> None:
        if self.own_generation and self.own_generation.number == number:
            self._last_step_generation = number
            self._probes.connectivity.record_step(self.own_generation.members)

    def _take_probe(self, probed: Probed, now: float) -> list[Action]:
        previous = self._members_to_avoid()
        self._probes.record(probed, self.identity, now)
        if not self.identity:
            return self._probes.admit(probed, self.view, now) if self.wants_group else []
        if self.wants_group:
            return [self._announce()]
        return [self._announce_change()] if self._members_to_avoid() != previous else []

    def _members_to_avoid(self) -> tuple[str, ...]:
        return self._probes.avoided(self.view)

    def _become_registered(self, identity: str) -> list[Action]:
        reclaimed, self._reclaiming, self._lapsed_identity = self._reclaiming, False, ""
        self.identity, self._registering = identity, False
        return [self._announce()] if reclaimed and self.wants_group else []

    def _withdraw(self) -> list[Action]:
        """Leave the group, or stop waiting for one; a leaving node then departs."""
        self.wants_group, self.own_generation, self.identity = False, None, None
        self.view.coordinators.forget_claims()
        return [Depart()] if self.leaving else [Withdraw()]

    def _begin_to_leave(self) -> list[Action]:
        if self.leaving:
            return []
        self.leaving = True
        if self.own_generation is None and self._may_be_only_copy and self._holds_state():
            return []
        if self.own_generation is None:  # no worker runs here: there is no step to wait for
            self.wants_group, self.identity = False, None
            return [Depart()]
        return [self._announce_change()] if self.identity else []

    def _holds_state(self) -> bool:
        """Return True if waiting workers may hold the only state: they were in the last generation, or etcd lost it."""
        if self.current is None or not self.view.revision:
            return self.wants_group and self._assigned_number > 0
        return self.wants_group and self.identity in self.current.ranks

    def _announce(self) -> Announce:
        """Announce that this agent waits; update its own view, too, since etcd's event arrives later."""
        after, avoids = self.view.max_number, self._members_to_avoid()
        self._waits_after = after
        if self.identity in self.members:
            member = self.members[self.identity]
            self.members[self.identity] = replace(member, after=after, avoids=avoids)
        return Announce(after, leaving=False, avoids=avoids)

    def _announce_change(self) -> Announce:
        """Announce a change of anything but the generation that this agent waits for."""
        return Announce(
            self._announced_after(), leaving=self.leaving, avoids=self._members_to_avoid()
        )

    def _announced_after(self) -> int:
        if not self.view.is_complete:
            return self._waits_after
        member = self.members.get(self.identity or "")
        return member.after if member else 0

    # --- decisions ---

    def _decide(self, now: float) -> list[Action]:
        if self.outcome:
            return self._act_once("ended", [self.outcome])
        actions = self._coordinate(self.identity, now) if self.identity else []
        return [*actions, *self._decide_for_workers(now)]

    def _decide_for_workers(self, now: float) -> list[Action]:
        if self.identity and (probe := self._probes.probe_avoided(self.view, self.identity, now)):
            return [*probe, *self._decide(now)]
        if self.own_generation:
            return self._decide_in_group(self.own_generation, now)
        if not self.wants_group or self._unreadable:
            return []
        if not self.identity:
            return [] if self._reclaiming else self._register(now)
        if self.current and self._includes_own_workers(self.current):
            self.own_generation, self.wants_group = self.current, False
            self._proposer.reset()
            self._assigned_number = self.current.number
            self._changes.begin(self.own_generation, self.limits, now)
            own_rank = self.own_generation.ranks[self.identity]
            announcement = [self._announce_change()] if self.leaving else []
            return [Begin(self.own_generation, own_rank), *announcement, *self._decide(now)]
        if not self._has_full_view:
            return []
        if outcome := self._earlier_run.outcome(self.view, self.limits, now):
            self.outcome = outcome
            return self._decide(now)
        return self._proposer.decide(
            self.view,
            self.identity,
            self.limits,
            self._probes.connectivity,
            now,
            in_outage_grace=self._in_outage_grace(now),
            rejoin_grace_seconds=self._changes.rejoin_grace_seconds(self.current, now),
            awaited_until=self._late_members.awaited_until(self.view, self.limits),
        )

    def _decide_in_group(self, group: Generation, now: float) -> list[Action]:
        if self.current and not self.current.is_same(group):
            return self._act_once("stop", [Stop(_replacement(self.current, group))])
        if not self.identity:
            return self._reclaim(group)
        if actions := self._stop_if_required(group, now):
            return actions
        if not self.view.revision:  # the generation's key was removed: the group can commit nothing
            return self._act_once("regroup", [Regroup("etcd has no generation")])
        if is_large(self.limits):
            reason = self.view.instructions.reason("regroup", group.number)
            return [] if reason is None else self._act_once("regroup", [Regroup(reason)])
        if self.view.is_complete and (reason := self._reason_to_regroup(group, now)):
            return self._act_once("regroup", [Regroup(reason)])
        return []

    def _stop_if_required(self, group: Generation, now: float) -> list[Action]:
        """Stop the workers if a member is lost or, in a large run, if an instruction says so."""
        if is_large(self.limits):
            return self._follow_instruction_to_stop(group)
        if not self.view.is_complete:  # the limits were lowered: all keys are read next
            return []
        regroups = self._last_request == ("regroup", group.number)
        reason = self._reason_to_stop(group, now, regroups=regroups)
        return self._act_once("stop", [Stop(reason)]) if reason else []

    def _reason_to_stop(self, group: Generation, now: float, *, regroups: bool) -> str:
        lost_nodes = self._changes.lost_nodes(
            self.view, group, in_outage_grace=self._in_outage_grace(now)
        )
        if not lost_nodes or self._changes.may_be_ahead(
            self.view, group, self.limits, now, regroups=regroups
        ):
            return ""
        return f"lost {name_list(lost_nodes)}"

    def _reason_to_regroup(self, group: Generation, now: float) -> str:
        """Return why the group should change after a step; ignore joiners while no new group can form."""
        return self._changes.reason_to_regroup(
            self.view, group, self.limits, now, admits=not self._unreadable
        )

    # --- a large run ---

    def _coordinate(self, identity: str, now: float) -> list[Action]:
        """Claim or carry out the role of a coordinator."""
        if not is_large(self.limits):
            return []
        actions = self.view.coordinators.claim(identity, self.current, self.limits, now)
        if not self._has_full_view:
            return actions
        if self.wants_group and self.view.is_left_out(identity, self.limits):
            actions += self.view.coordinators.give_up_role(identity, now)
        return [*actions, *self._instruct(now)]

    def _instruct(self, now: float) -> list[Action]:
        """Instruct the members of the current generation to end it if it cannot, or should not, continue."""
        group = self.current
        if group is None or not training_members(self.members, group):
            return []
        self._changes.begin(group, self.limits, now)
        request, revision = self.view.instructions.request, self.view.revision
        regroups = self.view.instructions.reason("regroup", group.number) is not None
        if reason := self._reason_to_stop(group, now, regroups=regroups):
            return request("stop", group.number, reason, revision)
        if reason := self._reason_to_regroup(group, now):
            return request("regroup", group.number, reason, revision)
        return []

    def _follow_instruction_to_stop(self, group: Generation) -> list[Action]:
        if self.current and self.current.fenced:
            fenced_nodes = [self.view.node(name) for name in self.current.fenced]
            return self._act_once("stop", [Stop(f"lost {name_list(fenced_nodes)}")])
        reason = self.view.instructions.reason("stop", group.number)
        return [] if reason is None else self._act_once("stop", [Stop(reason)])

    # --- leases, registration ---

    def _reclaim(self, group: Generation) -> list[Action]:
        """Restore this agent's key; stop if that was refused, or if etcd has lost the generation, too."""
        if self._reclaiming or self._last_request == ("stop", group.number):
            return []  # workers that were stopped need no key until they are ready again
        if self._unreadable.generation:
            return []  # it is unknown whether the others have continued
        if self.view.has_fenced(self._lapsed_identity):
            return self._act_once("stop", [Stop("the others suspected that this node is lost")])
        if not self.view.revision:
            return self._act_once("stop", [Stop("etcd has no generation")])
        if not self._lapsed_identity:
            reason = "this node's lease has lapsed: the others continue without it"
            return self._act_once("stop", [Stop(reason)])
        self._reclaiming = True
        after, avoids = group.number - 1, self._members_to_avoid()
        self._waits_after = after
        return [Reclaim(self._lapsed_identity, after, self.leaving, self.view.revision, avoids)]

    def _in_outage_grace(self, now: float) -> bool:
        """Return True if a key may be missing only because etcd was unavailable."""
        return self._is_etcd_unreachable or now < self._outage_grace_until

    def _act_once(self, kind: str, actions: list[Action]) -> list[Action]:
        """Return the actions unless they were returned for this generation before; a Stop outranks a Regroup."""
        number = self.own_generation.number if self.own_generation else 0
        if self._last_request == (kind, number) or (
            kind == "regroup" and self._last_request == ("stop", number)
        ):
            return []
        self._last_request = (kind, number)
        return actions

    def _register(self, now: float) -> list[Action]:
        """Register, but only after a probe of the members if there are any."""
        if self._registering:
            return []
        probe = self._probes.probe_before_registration(self.view, self.limits, now)
        if probe is not None:
            return probe
        self._registering = True
        self._waits_after = self.view.max_number
        return [Register(self.view.max_number, self._members_to_avoid())]

    def _includes_own_workers(self, generation: Generation) -> bool:
        """Return True if a generation newly includes this agent's workers.

        The `after` of this agent's key does not suffice: while the key is missing, only the number of the last
        assignment shows that a generation is not new.
        """
        after = max(self._announced_after(), self._assigned_number)
        return self.identity in generation.ranks and generation.number > after


def _replacement(current: Generation, group: Generation) -> str:
    """Return the reason to stop a group that another one has replaced."""
    if current.number == group.number:  # etcd has lost its data
        return f"another generation {group.number} has replaced this one"
    return f"generation {current.number} has replaced {group.number}"
