"""Events that a `Membership` receives, and the actions that it returns."""

from dataclasses import dataclass

from everstep.elastic.membership.generations import Generation, Member

# --- events: observations of an agent ---


@dataclass(frozen=True)
class Instruction:
    """A coordinator has instructed all members of a generation to end it.

    Attributes:
        kind: `stop` (immediately) or `regroup` (after a step that all agree on).
        number: number of the generation.
        reason: reason for its end.
        revision: revision of the last change of the instruction's key.
    """

    kind: str
    number: int
    reason: str
    revision: int


@dataclass(frozen=True)
class UnreadableKeys:
    """The keys that every new group needs and that exist, but that this agent cannot read.

    Attributes:
        generation: whether the key of the current generation is one of them.
        committed: whether the key of the newest commit is one of them.
    """

    generation: bool = False
    committed: bool = False

    def __bool__(self) -> bool:
        return self.generation or self.committed


@dataclass(frozen=True)
class MembershipSnapshot:
    """The keys of the run, read at one revision.

    Attributes:
        members: all members; empty if the snapshot is not complete.
        generation: the current generation; None if there is none, or if it is unknown.
        revision: revision of the last change of the generation's key, 0 if there is none.
        complete: whether the members were read and are watched.
        coordinators: the coordinators of a large run.
        instructions: the newest instruction of each kind.
        unreadable: the keys that exist, but could not be read.
        store_was_replaced: whether etcd was wiped or restored since the last snapshot: earlier revisions are invalid.
    """

    members: tuple[Member, ...]
    generation: Generation | None
    revision: int
    complete: bool = True
    coordinators: tuple[Member, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    unreadable: UnreadableKeys = UnreadableKeys()
    store_was_replaced: bool = False


@dataclass(frozen=True)
class CoordinatorPut:
    """An agent has become a coordinator; `order` is the revision of its claim."""

    member: Member


@dataclass(frozen=True)
class CoordinatorRemoved:
    """A coordinator has resigned, or its lease has ended."""

    identity: str


@dataclass(frozen=True)
class MemberPut:
    """A member registered, or updated its key."""

    member: Member


@dataclass(frozen=True)
class MemberRemoved:
    """A member's key was removed: it left, or its lease lapsed."""

    identity: str


@dataclass(frozen=True)
class GenerationPut:
    """A generation was agreed.

    Attributes:
        generation: the generation.
        revision: revision of the last change of its key.
    """

    generation: Generation
    revision: int


@dataclass(frozen=True)
class RunEnded:
    """The run is over for all agents. As an action, it makes the agent end its workers.

    Attributes:
        finished: whether the run is complete; otherwise it has failed permanently.
        reason: description of the result, or of the failure.
    """

    finished: bool
    reason: str


@dataclass(frozen=True)
class EarlierRunEnded:
    """A run of this name ended shortly before this agent started: its own run, or an earlier one.

    Attributes:
        outcome: how it ended.
        revision: revision at which that was announced.
    """

    outcome: RunEnded
    revision: int


@dataclass(frozen=True)
class Registered:
    """This agent's own key exists under a new lease."""

    identity: str


@dataclass(frozen=True)
class Ready:
    """This agent has no worker in a group, and its workers are ready for the next generation.

    Attributes:
        may_be_only_copy: whether the state of its workers may be in no other place.
    """

    may_be_only_copy: bool = False


@dataclass(frozen=True)
class Leave:
    """This agent's node must leave."""


@dataclass(frozen=True)
class Withdrawn:
    """A worker of this agent has died or is not ready: the node cannot be in a group until `Ready`."""


@dataclass(frozen=True)
class LeaseLapsed:
    """This agent's lease has lapsed."""


@dataclass(frozen=True)
class Superseded:
    """This agent's key could not be put back: the generation's key has changed."""


@dataclass(frozen=True)
class Unreachable:
    """etcd does not respond to this agent."""


@dataclass(frozen=True)
class Reachable:
    """etcd responds to this agent again."""


@dataclass(frozen=True)
class BoundsChanged:
    """The limits of the group have changed."""

    min_members: int
    max_members: int


@dataclass(frozen=True)
class Progressed:
    """The workers have taken a step with the generation of this number."""

    number: int


@dataclass(frozen=True)
class Probed:
    """The result of `Probe`.

    Attributes:
        targets: identities of the probed members.
        unreachable: members that could not be reached, in either direction.
    """

    targets: frozenset[str]
    unreachable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Resumed:
    """A heartbeat of a fenced member has arrived: it was late, not lost, and will register again."""

    identity: str


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = (
    MembershipSnapshot
    | MemberPut
    | MemberRemoved
    | CoordinatorPut
    | CoordinatorRemoved
    | Instruction
    | GenerationPut
    | UnreadableKeys
    | RunEnded
    | EarlierRunEnded
    | Registered
    | Ready
    | Leave
    | Withdrawn
    | LeaseLapsed
    | Superseded
    | Unreachable
    | Reachable
    | BoundsChanged
    | Progressed
    | Probed
    | Resumed
    | Tick
)


# --- actions: tasks for the agent ---


@dataclass(frozen=True)
class Register:
    """Put this agent's key under a new lease; report `Registered`.

    Attributes:
        after: number of a generation; this agent waits for a later one.
        avoids: identities of the members that it cannot train with.
    """

    after: int
    avoids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reclaim:
    """Put this agent's own key back under a new lease; report `Registered`, or `Superseded` if that is refused.

    Attributes:
        identity: identity of the key.
        after: number of a generation; this agent trains with, or waits for, a later one.
        leaving: whether this agent's node leaves.
        revision: revision that the last change of the generation's key must have.
        avoids: identities of the members that this agent cannot train with.
    """

    identity: str
    after: int
    leaving: bool
    revision: int
    avoids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Announce:
    """Update this agent's key with these values, which `Member` describes."""

    after: int
    leaving: bool
    avoids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Propose:
    """Try to make this the current generation.

    Attributes:
        number: number of the generation.
        members: identities in rank order.
        replaces: revision that the last change of the generation's key must have; 0 if it must not exist.
        endpoints: `Generation.endpoints`; only in a large run.
        orders: `Generation.orders`; only in a large run.
    """

    number: int
    members: tuple[str, ...]
    replaces: int
    endpoints: tuple[str, ...] = ()
    orders: tuple[int, ...] = ()


@dataclass(frozen=True)
class Begin:
    """Start training with this rank in this generation."""

    generation: Generation
    rank: int


@dataclass(frozen=True)
class Stop:
    """Stop the workers immediately: their group no longer exists."""

    reason: str


@dataclass(frozen=True)
class Regroup:
    """Let the workers leave after a step that all agree on: a member joins or leaves."""

    reason: str


@dataclass(frozen=True)
class Withdraw:
    """Remove this agent's key immediately, so that the others need not wait for its lease to lapse."""


@dataclass(frozen=True)
class Depart:
    """Remove this agent's key permanently."""


@dataclass(frozen=True)
class Probe:
    """Test the connections to members in both directions; report `Probed`.

    Attributes:
        targets: identities and endpoints.
    """

    targets: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Postpone:
    """Inform the user that this node does not register yet."""

    reason: str


@dataclass(frozen=True)
class Evict:
    """Remove the key of a member that did not leave a broken generation in time."""

    identity: str


@dataclass(frozen=True)
class GiveUp:
    """End this agent: its node cannot train with the others. Their run continues."""

    reason: str


@dataclass(frozen=True)
class Coordinate:
    """Put this agent's key as a coordinator under its lease."""


@dataclass(frozen=True)
class Resign:
    """Remove this agent's key as a coordinator."""


@dataclass(frozen=True)
class Instruct:
    """Put an instruction if neither the generation's key nor the instruction's own has changed.

    Attributes:
        kind: kind of the instruction.
        number: number of the generation that must end.
        reason: reason for its end.
        revision: revision of the last change of the generation's key.
        replaces: revision of the last change of the instruction's key, 0 if it does not exist.
    """

    kind: str
    number: int
    reason: str
    revision: int
    replaces: int


Action = (
    Register
    | Reclaim
    | Announce
    | Propose
    | Begin
    | Stop
    | Regroup
    | Withdraw
    | Depart
    | Probe
    | Evict
    | Postpone
    | GiveUp
    | Coordinate
    | Resign
    | Instruct
    | RunEnded
)
