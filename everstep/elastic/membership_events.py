"""What a `Membership` is told, its events, and what it answers, its actions."""

from dataclasses import dataclass

from everstep.elastic.generations import Generation, Member

# --- events: what an agent learned ---


@dataclass(frozen=True)
class Snapshot:
    """Everything etcd holds, read at one revision."""

    members: tuple[Member, ...]
    generation: Generation | None
    revision: int  # last change of the generation's key, 0 where there is none


@dataclass(frozen=True)
class MemberPut:
    """A member registered, or said something new of itself."""

    member: Member


@dataclass(frozen=True)
class MemberGone:
    """A member's key is gone: it left, or its lease lapsed."""

    identity: str


@dataclass(frozen=True)
class GenerationPut:
    """A generation was agreed."""

    generation: Generation
    revision: int


@dataclass(frozen=True)
class Ended:
    """The run is over for everyone: finished, or failed for good. Also the action that tells the agent."""

    finished: bool
    reason: str


@dataclass(frozen=True)
class Registered:
    """This agent's own key stands under a fresh lease."""

    identity: str


@dataclass(frozen=True)
class Ready:
    """This agent has no worker running and wants to be in the next generation."""


@dataclass(frozen=True)
class Leave:
    """This agent's node has been told to go."""


@dataclass(frozen=True)
class Withdrawn:
    """A worker of this agent has died, or is not ready yet: it can be in no group until `Ready`."""


@dataclass(frozen=True)
class LeaseLapsed:
    """etcd no longer knows this agent's lease."""


@dataclass(frozen=True)
class Superseded:
    """This agent's key could not be put back: another generation is the current one."""


@dataclass(frozen=True)
class Unreachable:
    """etcd does not answer this agent."""


@dataclass(frozen=True)
class Reachable:
    """etcd answers this agent again."""


@dataclass(frozen=True)
class Bounds:
    """From now on so few and so many members train together."""

    min_members: int
    max_members: int


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = (
    Snapshot
    | MemberPut
    | MemberGone
    | GenerationPut
    | Ended
    | Registered
    | Ready
    | Leave
    | Withdrawn
    | LeaseLapsed
    | Superseded
    | Unreachable
    | Reachable
    | Bounds
    | Tick
)


# --- actions: what the agent is to do ---


@dataclass(frozen=True)
class Register:
    """Put a key under a fresh lease, waiting for a generation above `after`; answer with `Registered`."""

    after: int


@dataclass(frozen=True)
class Reclaim:
    """Put this agent's own key back under a fresh lease, if the generation's key is still at `revision`.

    Answer with `Registered`, or with `Superseded`.
    """

    identity: str
    after: int
    leaving: bool
    revision: int


@dataclass(frozen=True)
class Announce:
    """Put this agent's key anew with these words."""

    after: int
    leaving: bool


@dataclass(frozen=True)
class Propose:
    """Try to make this the current generation, in the place of the one at `replaces`."""

    number: int
    members: tuple[str, ...]
    replaces: int


@dataclass(frozen=True)
class Begin:
    """Start the workers as this rank of this generation."""

    generation: Generation
    rank: int


@dataclass(frozen=True)
class Stop:
    """End the workers at once: the group they belong to is no more."""

    reason: str


@dataclass(frozen=True)
class Regroup:
    """Let the workers end after a step they all agree on: somebody wants in or out."""

    reason: str


@dataclass(frozen=True)
class Withdraw:
    """Take this agent's key away at once, so that the others need not wait for its lease to lapse."""


@dataclass(frozen=True)
class Depart:
    """Take this agent's key away; nothing of it is needed any more."""


Action = (
    Register | Reclaim | Announce | Propose | Begin | Stop | Regroup | Withdraw | Depart | Ended
)
