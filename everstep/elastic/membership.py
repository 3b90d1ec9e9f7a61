"""Who trains together: members, generations and the rule that forms them.

Pure: no clock, no socket, no torch.

A *member* is one node's agent, alive as long as its etcd lease. A *generation* is a numbered group
of members, agreed by one transaction on one key: it replaces exactly the generation that its
proposer saw, so numbers only grow and at most one generation is current. Its number is the fencing
token of everything its members commit.

Each agent feeds what it learns (`Event`) to its own `Membership` and carries out what comes back
(`Action`). There is no leader process: whoever is first among those who wait proposes, and a second
proposer's transaction fails. The rule that keeps two groups from training at once: *a generation is
proposed only when every live member of the current one has stopped*, which each does as soon as it
learns of a change.

An outage of etcd is no such change. Leases lapse in it, so members' keys go; each member puts its
own back, by a transaction that holds only while its generation is still the current one. Until all
have had time for that, a key that is missing says nothing of its member.

    register -> wait -> train -> (stop at once | stop after the step) -> wait ...
                  '-> leave, or ended
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from everstep.elastic.generations import (
    Generation,
    Member,
    Rules,
    busy,
    neighbour,
    rank,
    trains,
    waiting,
)
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
    Unreachable,
    Withdraw,
    Withdrawn,
)

MOST_SUSPECTS = 8  # at a time: a whole rack may be lost


@dataclass
class Membership:
    """What one agent knows, and what follows from it."""

    rules: Rules
    identity: str | None = None  # of the registration that stands
    members: dict[str, Member] = field(default_factory=dict)
    current: Generation | None = None  # as etcd has it
    revision: int = 0  # of that key
    mine: Generation | None = None  # the one this agent's workers run in
    ended: Ended | None = None
    wants: bool = False  # Ready, and not yet in a generation
    leaving: bool = False
    _registering: bool = False
    _lapsed: str = ""  # identity under which this agent trains though its key is gone
    _reclaiming: bool = False
    _away: bool = False  # etcd does not answer
    _doubt_until: float = float("-inf")
    _proposed: int = -1  # the revision that a running proposal replaces
    _complete_since: float | None = None  # since when enough members wait, unchanged
    _waiting_seen: frozenset[str] = frozenset()
    _ahead_since: float | None = None  # since when a peer has left the group in order
    _told: tuple[str, int] = ("", 0)  # last of Stop or Regroup, and for which generation

    def handle(self, event: Event, now: float) -> list[Action]:
        """Learn one thing; `now` is any clock that only goes forward, in seconds."""
        return self.handle_all([event], now)

    def handle_all(self, events: Iterable[Event], now: float) -> list[Action]:
        """Learn things in their order, then decide once.

        Deciding looks at every member. In a large group news comes by the hundred, so an agent that
        decided on each piece of it would fall behind.
        """
        actions: list[Action] = []
        for event in events:
            if isinstance(event, Reachable) and self._away:
                self._away, self._doubt_until = False, now + self.rules.doubt_seconds
            actions += self._learn(event)
        return [*actions, *self._decide(now)]

    def wake_at(self, now: float) -> float | None:
        """When a `Tick` could change something, or None: then only an event can."""
        due = [self._doubt_until]
        if self.mine and self._ahead_since is not None:
            due.append(self._ahead_since + self.rules.orderly_seconds)
        elif self.wants and self._complete_since is not None:
            due.append(self._complete_since + self.rules.settle_seconds)
        return min((moment for moment in due if moment > now), default=None)

    def suspects(self, *, stalled: bool) -> list[str]:
        """Members that may have been lost without a word: whose leases this agent is to look at.

        Few look at few, since etcd answers them all. While workers train each agent looks at its
        neighbour, and only if they wait for others for longer than usual (`stalled`). Between two groups the
        first of those who wait, who will propose, looks at those who have not stopped.
        """
        if not self.identity:
            return []
        if self.mine:
            name = neighbour(self.identity, self.members, self.mine) if stalled else None
            return [name] if name else []
        running = busy(self.members, self.current) if self.wants else []
        if not running:
            return []
        first = rank(waiting(self.members, self.current), self.current)[:1]
        if [member.identity for member in first] != [self.identity]:
            return []
        return [member.identity for member in running[:MOST_SUSPECTS]]

    # --- learning ---

    def _learn(self, event: Event) -> list[Action]:
        match event:
            case Ready():
                return self._become_ready()
            case Leave():
                return self._begin_to_leave()
            case Withdrawn():
                return self._withdraw()
            case Registered(identity):
                return self._become_registered(identity)
            case LeaseLapsed():
                self._lapse()
            case Superseded():
                self._lapsed, self._reclaiming = "", False
            case Unreachable():
                self._away = True
            case Bounds(least, most):
                self.rules = replace(self.rules, min_members=least, max_members=most)
            case _:
                self._see(event)
        return []

    def _see(self, event: Event) -> None:
        match event:
            case Snapshot():
                self._adopt(event)
            case MemberPut(member):
                self.members[member.identity] = member
            case MemberGone(identity):
                self.members.pop(identity, None)
                if identity == self.identity:
                    self._lapse()
            case GenerationPut(generation, revision):
                self._see_generation(generation, revision)
            case Ended():
                self.ended = event

    def _adopt(self, seen: Snapshot) -> None:
        self.members = {member.identity: member for member in seen.members}
        if seen.generation:
            self._see_generation(seen.generation, seen.revision)
        elif self.current:  # etcd was wiped: its revisions begin anew, our numbers must not
            self.revision, self._proposed = 0, -1
        if self.identity and self.identity not in self.members:
            self._lapse()  # while nobody watched

    def _lapse(self) -> None:
        """Its key is gone. One that trains may put it back, as long as nobody has gone on without it."""
        if self.mine and self.identity:
            self._lapsed = self.identity
        self.identity = None

    def _see_generation(self, generation: Generation, revision: int) -> None:
        if revision > self.revision:
            self.current, self.revision = generation, revision

    def _become_ready(self) -> list[Action]:
        self.wants, self.mine = True, None
        if self.leaving:
            self.wants, self.identity = False, None
            return [Depart()]
        return [self._announce()] if self.identity else []

    def _become_registered(self, identity: str) -> list[Action]:
        reclaimed, self._reclaiming, self._lapsed = self._reclaiming, False, ""
        self.identity, self._registering = identity, False
        return [self._announce()] if reclaimed and self.wants else []

    def _withdraw(self) -> list[Action]:
        """Out of whatever group it was in or waited for; a node that leaves is then through with it."""
        self.wants, self.mine, self.identity = False, None, None
        return [Depart()] if self.leaving else [Withdraw()]

    def _begin_to_leave(self) -> list[Action]:
        if self.leaving:
            return []
        self.leaving = True
        if self.mine is None and self._holds_state():
            return []
        if self.mine is None:  # nothing runs here: no step to wait for
            self.wants, self.identity = False, None
            return [Depart()]
        return [Announce(self._own_after(), leaving=True)] if self.identity else []

    def _holds_state(self) -> bool:
        """Whether workers that wait here were in the last generation, and may have what nobody else has."""
        inside = self.current is not None and self.identity in self.current.places
        return self.rules.living and self.wants and inside

    def _announce(self) -> Announce:
        """Say that this agent waits; also kept in the own view, since etcd's echo comes later."""
        after = self._number()
        if self.identity in self.members:
            self.members[self.identity] = replace(self.members[self.identity], after=after)
        return Announce(after, leaving=False)

    def _own_after(self) -> int:
        own = self.members.get(self.identity or "")
        return own.after if own else 0

    def _number(self) -> int:
        return self.current.number if self.current else 0

    # --- deciding ---

    def _decide(self, now: float) -> list[Action]:
        if self.ended:
            return self._once("ended", [self.ended])
        if self.mine:
            return self._decide_in_group(self.mine, now)
        if not self.wants:
            return []
        if not self.identity:
            return [] if self._reclaiming else self._register()
        if self.current and self._begun(self.current):
            self.mine, self.wants, self._complete_since = self.current, False, None
            self._ahead_since = None
            place = self.mine.places[self.identity]
            leave = [Announce(self._own_after(), leaving=True)] if self.leaving else []
            return [Begin(self.mine, place), *leave, *self._decide(now)]
        return self._perhaps_propose(now)

    def _decide_in_group(self, group: Generation, now: float) -> list[Action]:
        if self._number() > group.number:
            return self._once(
                "stop", [Stop(f"generation {self._number()} has replaced {group.number}")]
            )
        if not self.identity:
            return self._reclaim(group)
        if (lost := self._lost(group, now)) and not self._may_be_ahead(group, now):
            return self._once("stop", [Stop(f"lost {', '.join(lost)}")])
        if why := self._wants_change(group):
            return self._once("regroup", [Regroup(why)])
        return []

    def _reclaim(self, group: Generation) -> list[Action]:
        """Put the own key back; stop where that was refused, or where etcd has lost the generation too."""
        if self._reclaiming:
            return []
        if not self._lapsed or not self.revision:
            why = "this node's lease has lapsed: the others go on without it"
            return self._once("stop", [Stop(why)])
        self._reclaiming = True
        return [Reclaim(self._lapsed, group.number - 1, self.leaving, self.revision)]

    def _in_doubt(self, now: float) -> bool:
        """Whether a key may be missing only because etcd was away."""
        return self._away or now < self._doubt_until

    def _may_be_ahead(self, group: Generation, now: float) -> bool:
        """Whether those who are missing have left after the step that all agreed on, a moment ago.

        To stop the workers now would break that step's exchange where it is still on its way to
        them. Whoever died instead shows by a broken connection at once, or by this grace's end.
        """
        waits = all(name in self.members for name in group.members)
        if not waits and self._told != ("regroup", group.number):
            return False
        if self._ahead_since is None:
            self._ahead_since = now
        return now - self._ahead_since < self.rules.orderly_seconds

    def _once(self, kind: str, actions: list[Action]) -> list[Action]:
        """The actions, unless they were given for this generation already; a Stop outranks a Regroup."""
        number = self.mine.number if self.mine else 0
        if self._told == (kind, number) or (kind == "regroup" and self._told == ("stop", number)):
            return []
        self._told = (kind, number)
        return actions

    def _register(self) -> list[Action]:
        if self._registering:
            return []
        self._registering = True
        return [Register(self._number())]

    def _begun(self, generation: Generation) -> bool:
        return self.identity in generation.places and generation.number > self._own_after()

    def _perhaps_propose(self, now: float) -> list[Action]:
        ranked = rank(waiting(self.members, self.current), self.current)
        too_few = len(ranked) < self.rules.min_members
        if too_few or busy(self.members, self.current) or self._in_doubt(now):
            self._complete_since = None
            return []
        names = frozenset(member.identity for member in ranked)
        if self._complete_since is None or names != self._waiting_seen:
            self._complete_since, self._waiting_seen = now, names
        if not self._settled(ranked, now) or ranked[0].identity != self.identity:
            return []
        if self._proposed == self.revision:
            return []  # on its way; a lost race shows as a new revision
        self._proposed = self.revision
        chosen = tuple(member.identity for member in ranked[: self.rules.max_members])
        number = 1 + max(self._number(), *(member.after for member in ranked))
        return [Propose(number, chosen, self.revision)]

    def _settled(self, ranked: list[Member], now: float) -> bool:
        """A group that trained before goes on at once; a first one gives the others time to arrive."""
        full = len(ranked) >= self.rules.max_members
        continued = self.current is not None and any(
            m.identity in self.current.places for m in ranked
        )
        since = self._complete_since if self._complete_since is not None else now
        return full or continued or now - since >= self.rules.settle_seconds

    def proposal_failed(self) -> None:
        """Let the next event propose again: the transaction could not be carried out."""
        self._proposed = -1

    def _lost(self, group: Generation, now: float) -> list[str]:
        """Names of those who trained with us and no longer do, without having waited for us."""
        gone = [
            identity for identity in group.members if not trains(self.members.get(identity), group)
        ]
        if self._in_doubt(now):  # then only a member's own word counts
            gone = [identity for identity in gone if identity in self.members]
        return [self._node(name) for name in gone]

    def _node(self, identity: str) -> str:
        """The name of a member's node, also of one whose key is gone: an identity begins with it."""
        known = self.members.get(identity)
        return known.node if known else identity.rpartition("-")[0] or identity

    def _wants_change(self, group: Generation) -> str:
        inside = [self.members[name] for name in group.members if name in self.members]
        if leavers := [member.node for member in inside if member.leaving]:
            return f"{', '.join(leavers)} leaves"
        room = self.rules.max_members - len(group.members)
        joiners = [member.node for member in waiting(self.members, group)]
        return f"{', '.join(sorted(joiners))} joins" if joiners and room > 0 else ""
