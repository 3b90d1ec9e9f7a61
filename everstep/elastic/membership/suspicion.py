"""Suspicion that members of a generation are lost. Pure: no clock, no socket, no etcd.

Each member sends a heartbeat ten times a second to its *observers*: all others or, in a large group, three
of them. An observer suspects a member that has been silent for unusually long (`arrivals`), and queries the
member's other observers. If they agree, it fences the suspect through etcd (`RunKeys.fence`), and only then
do the others continue without it.

No clock can tell a lost machine from a slow one, so a suspicion has no more power than the lapse of a
lease: it removes the member's key, which every rule of `state_machine` tolerates at any moment. A false
suspicion costs a regroup, in which the others wait for the suspect if it sends heartbeats again (`late_members`).
These rules make it rare:

1. *Silence counts only while the observer itself runs.* At most `MAX_COUNTED_SECONDS` count between two calls of
   `Suspicion.step`, and all messages that have arrived are read first. An observer that was starved or
   frozen has no evidence against a peer.
2. *Only a member whose heartbeats have arrived is suspected.* Where heartbeats cannot pass, only the
   lease decides.
3. *A completed step proves that all members are alive,* since its sum contains every member's share. So an agent
   that hangs next to workers that train, or lost UDP packets, end no group while steps are shorter than the
   accepted silence.
4. *One observer is not enough.* If a suspect has several observers, at least two must suspect it, and they must
   outnumber the observers that hear it. So an isolated node cannot fence others, and at most one of two halves
   is fenced, since the transaction requires the key of the node that fences.
5. *Observers take turns* by rank, in case the first is lost, too, or does not reach etcd: there is no leader.
6. *False suspicions of a node make later suspicions of it slower*: `FalseSuspicions`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from everstep.elastic.membership.arrivals import BEAT_SECONDS, Arrivals, FalseSuspicions

MAX_FULL_MESH = 9  # members: in a larger group each has few observers
FEW_OBSERVERS = 3
"""Observers of a member in a large group; they are far apart by rank, since neighbors may be lost together."""
MAX_COUNTED_SECONDS = 0.2  # maximum time counted between two calls of `Suspicion.step`
ALERT_LEVEL = 0.4  # suspicion level from which each message is processed immediately
QUERY_INTERVAL_SECONDS = 0.05  # interval between two queries about suspects
OPINION_SECONDS = 0.3  # an older opinion does not count
TURN_SECONDS = 0.15  # how long the next observer waits for the one before it
MAX_REPORTED_SUSPECTS = 8  # suspects in one message, and in one transaction


@dataclass(frozen=True)
class ObservedGroup:
    """The current generation, as its members observe it.

    Attributes:
        identity: identity of this member.
        members: identities by rank.
        nodes: names of the nodes of all members that have a key in etcd, in any group or none, by identity.
    """

    identity: str
    members: tuple[str, ...]
    nodes: Mapping[str, str]

    def observers(self, identity: str) -> list[str]:
        """Return the members that have a key and observe a member, nearest by rank first."""
        rank = self.members.index(identity)
        names = [self._at(rank + distance) for distance in self._distances()]
        return [name for name in names if name in self.nodes]

    def observed_members(self) -> list[str]:
        """Return the members that send heartbeats to this member."""
        rank = self.members.index(self.identity)
        return [self._at(rank - distance) for distance in self._distances()]

    def _at(self, rank: int) -> str:
        return self.members[rank % len(self.members)]

    def _distances(self) -> list[int]:
        size = len(self.members)
        if size <= MAX_FULL_MESH:
            return list(range(1, size))
        return [1 + size * part // FEW_OBSERVERS for part in range(FEW_OBSERVERS)]


@dataclass(frozen=True)
class HeartbeatMessage:
    """One heartbeat, with its sender's opinions.

    Attributes:
        sender: identity of the sender.
        suspects: members that the sender suspects.
        heard_members: members of the query whose heartbeats arrive at the sender.
        is_response: whether it is the response to a query; no member responds to a response.
    """

    sender: str
    suspects: tuple[str, ...] = ()
    heard_members: tuple[str, ...] = ()
    is_response: bool = False


@dataclass(frozen=True)
class OutgoingMessage:
    """A message to send."""

    recipient: str
    message: HeartbeatMessage


@dataclass
class Suspicion:
    """One member's heartbeats and suspects, and the opinions of the other observers about the suspects."""

    _group: ObservedGroup | None = None
    _called_at: float | None = None  # time of the last call of `step`
    _active_seconds: float = 0.0  # seconds in which this member ran
    _arrivals: dict[str, Arrivals] = field(default_factory=dict)
    _suspects: set[str] = field(default_factory=set)
    _awaited_suspects: dict[str, str] = field(default_factory=dict)  # last suspect, by node
    _resumed: set[str] = field(
        default_factory=set
    )  # members without a key whose heartbeats have arrived
    _opinions: dict[tuple[str, str], tuple[bool, float]] = field(default_factory=dict)
    _agreed_since: dict[str, float] = field(default_factory=dict)
    _false_suspicions: dict[str, FalseSuspicions] = field(default_factory=dict)  # by node
    _beat_at: float = float("-inf")
    _query_at: float = float("-inf")

    def follow(self, group: ObservedGroup | None) -> None:
        """Observe the members of a generation; None if this member is in no generation."""
        self._note_returns(group.nodes if group else {})
        observed_members = group.observed_members() if group else []
        self._group = group
        self._arrivals = {name: self._arrivals.get(name) or Arrivals() for name in observed_members}
        self._suspects &= self._arrivals.keys()

    def step(
        self, messages: Iterable[HeartbeatMessage], now: float, trained_at: float | None = None
    ) -> list[OutgoingMessage]:
        """Process the messages that have arrived, judge the silent members, and return the messages to send.

        Args:
            messages: all messages that have arrived since the last call.
            now: any monotonic clock, in seconds.
            trained_at: time, by that clock, at which this member's workers completed the last training step of this
                generation; None before the first.
        """
        elapsed = now - self._called_at if self._called_at is not None else 0.0
        self._active_seconds += min(max(elapsed, 0.0), MAX_COUNTED_SECONDS)
        self._called_at = now
        group = self._group
        if group is None:
            return []
        replies = [reply for message in messages for reply in self._receive(message, group)]
        if trained_at is not None:
            self._record_training(self._active_seconds - max(0.0, now - trained_at))
        self._judge(group)
        return [*replies, *self._beat(group, now), *self._query_observers(group, now)]

    @property
    def is_alert(self) -> bool:
        """True if a member is late or was removed, so that the next call of `step` is due soon."""
        present_nodes = self._group.nodes if self._group else {}
        return any(
            name not in present_nodes or arrivals.level(self._active_seconds) >= ALERT_LEVEL
            for name, arrivals in self._arrivals.items()
        )

    @property
    def suspects(self) -> tuple[str, ...]:
        """The suspected members that still have a key."""
        if not self._suspects:
            return ()
        present_nodes = self._group.nodes if self._group else {}
        return tuple(sorted(name for name in self._suspects if name in present_nodes))[
            :MAX_REPORTED_SUSPECTS
        ]

    def take_resumed(self) -> frozenset[str]:
        """Return the members without a key that have sent a heartbeat since the last call."""
        resumed, self._resumed = frozenset(self._resumed), set()
        return resumed

    def to_fence(self) -> tuple[str, ...]:
        """Return the suspects on which the observers agree, when it is this member's turn to fence them."""
        group = self._group
        if group is None or group.identity not in group.nodes:
            return ()
        agreed_suspects = [name for name in self.suspects if self._is_agreed(group, name)]
        self._agreed_since = {
            name: self._agreed_since.get(name, self._active_seconds) for name in agreed_suspects
        }
        return tuple(name for name in agreed_suspects if self._is_my_turn(group, name))

    # --- one member ---

    def _receive(self, message: HeartbeatMessage, group: ObservedGroup) -> list[OutgoingMessage]:
        if message.sender not in group.members:
            return []
        if message.sender in self._arrivals:
            self._record_arrival(message.sender)
        if message.sender not in group.nodes:
            self._resumed.add(message.sender)
        for is_heard, names in ((False, message.suspects), (True, message.heard_members)):
            for name in names[:MAX_REPORTED_SUSPECTS]:
                self._opinions[message.sender, name] = is_heard, self._active_seconds
        if message.is_response or not message.suspects:
            return []
        heard_members = tuple(
            name for name in message.suspects[:MAX_REPORTED_SUSPECTS] if self._hears(name)
        )
        reply = HeartbeatMessage(group.identity, self.suspects, heard_members, is_response=True)
        return [OutgoingMessage(message.sender, reply)]

    def _record_training(self, completed_at: float) -> None:
        """Record a training step, which the workers of all observed members have completed."""
        for name, arrivals in self._arrivals.items():
            if completed_at > arrivals.stepped_at:
                arrivals.stepped_at = completed_at
                if name in self._suspects and arrivals.level(self._active_seconds) < 1:
                    self._clear(name)

    def _record_arrival(self, name: str) -> None:
        self._arrivals[name].record(self._active_seconds)
        self._clear(name)

    def _clear(self, name: str) -> None:
        """Drop the suspicion of a member, if there is one."""
        self._suspects.discard(name)
        for node in [node for node, awaited in self._awaited_suspects.items() if awaited == name]:
            self._note_return(node)

    def _hears(self, name: str) -> bool:
        """Return True if enough heartbeats of a member have arrived and it is not a suspect."""
        arrivals = self._arrivals.get(name)
        return arrivals is not None and arrivals.is_steady and name not in self._suspects

    def _judge(self, group: ObservedGroup) -> None:
        for name, arrivals in self._arrivals.items():
            node = group.nodes.get(name)
            if node is None or name in self._suspects:
                continue
            level = arrivals.level(self._active_seconds)
            if level < 1:  # no threshold is lower
                continue
            if level >= self._suspicions_of(node).threshold(self._active_seconds):
                self._suspects.add(name)
                self._awaited_suspects[node] = name
                self._suspicions_of(node).record_suspicion(self._active_seconds)
                self._query_at = float("-inf")

    def _note_returns(self, nodes: Mapping[str, str]) -> None:
        """Record that nodes of suspects are registered again, under another identity."""
        for identity, node in nodes.items() if self._awaited_suspects else ():
            if self._awaited_suspects.get(node, identity) != identity:
                self._note_return(node)

    def _note_return(self, node: str) -> None:
        del self._awaited_suspects[node]
        self._suspicions_of(node).record_return(self._active_seconds)

    def _suspicions_of(self, node: str) -> FalseSuspicions:
        return self._false_suspicions.setdefault(node, FalseSuspicions())

    # --- messages ---

    def _beat(self, group: ObservedGroup, now: float) -> list[OutgoingMessage]:
        if now < self._beat_at:
            return []
        self._beat_at = max(self._beat_at, now - BEAT_SECONDS / 2) + BEAT_SECONDS
        beat = HeartbeatMessage(group.identity, self.suspects)
        return [OutgoingMessage(name, beat) for name in group.observers(group.identity)]

    def _query_observers(self, group: ObservedGroup, now: float) -> list[OutgoingMessage]:
        """Return a query to the other observers of each suspect."""
        if not self.suspects or now < self._query_at:
            return []
        self._query_at = now + QUERY_INTERVAL_SECONDS
        others = {name for suspect in self.suspects for name in self._other_members(group, suspect)}
        query = HeartbeatMessage(group.identity, self.suspects)
        return [OutgoingMessage(name, query) for name in sorted(others - set(self.suspects))]

    # --- agreement ---

    def _other_members(self, group: ObservedGroup, suspect: str) -> list[str]:
        return [name for name in group.observers(suspect) if name != group.identity]

    def _is_agreed(self, group: ObservedGroup, suspect: str) -> bool:
        others = self._other_members(group, suspect)
        opinions = [self._opinion(name, suspect) for name in others if name not in self._suspects]
        agreements, denials = opinions.count(False), opinions.count(True)
        return (not others or agreements > 0) and agreements + 1 > denials

    def _opinion(self, name: str, suspect: str) -> bool | None:
        """Return True if another observer hears a suspect; None without a recent opinion."""
        is_heard, heard_at = self._opinions.get((name, suspect), (None, float("-inf")))
        return is_heard if self._active_seconds - heard_at <= OPINION_SECONDS else None

    def _is_my_turn(self, group: ObservedGroup, suspect: str) -> bool:
        available = [name for name in group.observers(suspect) if name not in self._suspects]
        position = available.index(group.identity)
        return self._active_seconds - self._agreed_since[suspect] >= position * TURN_SECONDS
