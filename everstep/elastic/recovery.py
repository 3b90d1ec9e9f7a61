"""What a worker does with its state when its group changes: a state machine.

Pure: no clock, no socket, no torch. `live_worker` carries out what it says; the simulator of the
tests drives the very same object through thousands of schedules.

    apart -> meeting -> comparing -> (restoring | copying -> comparing) -> training -> apart ...

A worker lives through any number of generations. Its state is a list of parts (parameters,
statistics, momentum); what matters of it is how far it is, its `Standing`. The rules:

1. *A step is applied when its sum has arrived*, and not before. Until then only the gradient buffer
   and the batch statistics have been touched, and `RollBack` puts those back. A sum holds every
   member's part, so a step applied anywhere is whole, whoever dies afterwards.
2. *The most advanced whole state wins.* Members of one generation differ by one step at most: some
   had the last sum, some did not. Those who had it give their state to the others; if nobody did,
   the step is repeated. So it is never lost while one who has it lives, and never applied twice.
3. *A state is as old as the generation that last agreed on it*; that outranks its step. A worker that
   was frozen, fenced out and thawed may be further in steps, but in a history that the others have
   left: it takes theirs.
4. *A state that is being overwritten counts as none* until the last byte is there. A worker that dies
   while it gives leaves its receivers torn, and torn states are never given to anybody.
5. *The disk is one more worker.* Where nobody has a whole state, or where a checkpoint was committed
   that is further than everybody, rank 0 takes up the newest one, and the others its state. So what
   was committed is never taken back: the committed states of a run are one history.
6. *What was computed of the step in flight is kept*, by those who hold the state that the group goes on
   from: they have agreed on who computes what, and on nothing else since. The others forget theirs: it
   may be of another history, or computed by somebody else meanwhile. Only the rest is computed again.

Why not "rank 0's state for everyone", as DistributedDataParallel does: rank 0 may be the one that
missed the last sum, and a step that a survivor has applied and reported would be undone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from everstep.elastic.leftover import Span, merged


class Phase(Enum):
    """Where a worker stands between two generations."""

    APART = auto()  # in no group; has asked to be in the next
    MEETING = auto()  # building the next generation's group
    COMPARING = auto()  # telling its standing and hearing the others'
    RESTORING = auto()  # rank 0 takes up a checkpoint
    COPYING = auto()  # giving or taking state
    TRAINING = auto()  # steps


@dataclass(frozen=True, order=True)
class Standing:
    """How far a state is; the greater, the more advanced.

    Attributes:
        lineage: the generation that last agreed on it; 0 before any, which is no state at all.
        step: completed steps.
    """

    lineage: int = 0
    step: int = 0


@dataclass(frozen=True)
class Report:
    """What one worker tells the others of its state.

    Attributes:
        standing: how far it is; of lineage 0 where there is no state, or a torn one.
        committed: how far the newest committed checkpoint is, as far as its agent knows.
        sums: a checksum of each part, in the order of the parts.
        kept: what this worker has computed of the step that follows.
    """

    standing: Standing
    committed: Standing = field(default_factory=Standing)
    sums: tuple[int, ...] = ()
    kept: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Who gives what to whom; the same on every worker, since all read the same reports.

    Attributes:
        standing: of the state that all will have.
        holders: ranks that have it, in order.
        lacks: for each other rank, the numbers of the parts it has to take.
        kept: what the holders have computed of the step that follows.
    """

    standing: Standing
    holders: tuple[int, ...]
    lacks: Mapping[int, tuple[int, ...]]
    kept: tuple[Span, ...] = ()

    def giver(self, part: int) -> int:
        """The rank that gives a part: holders take turns, so that all their links are used."""
        return self.holders[part % len(self.holders)]


def plan(reports: Sequence[Report]) -> Plan | None:
    """Who has the state to go on from, and what the others lack of it; None where only the disk has it.

    Args:
        reports: of all workers, by rank.
    """
    best = max(report.standing for report in reports)
    if best.lineage == 0 or best < max(report.committed for report in reports):
        return None
    first = next(rank for rank, report in enumerate(reports) if report.standing == best)
    sums = reports[first].sums
    # Equal standing and other bytes would be a fault of the hardware: such a worker is no holder.
    holders = [
        rank
        for rank, report in enumerate(reports)
        if (report.standing, report.sums) == (best, sums)
    ]
    lacks = {
        rank: tuple(part for part in range(len(sums)) if _differs(report, sums, part))
        for rank, report in enumerate(reports)
        if rank not in holders
    }
    kept = merged(span for rank in holders for span in reports[rank].kept)
    return Plan(best, tuple(holders), lacks, kept)


def _differs(report: Report, sums: tuple[int, ...], part: int) -> bool:
    return part >= len(report.sums) or report.sums[part] != sums[part]


# --- events: what happened to the worker
# -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Warm:
    """Program, model and data are ready; there is no state worth telling of yet."""


@dataclass(frozen=True)
class Called:
    """A generation was agreed that this worker is a member of."""

    generation: int
    rank: int
    world_size: int
    committed: Standing = field(default_factory=Standing)


@dataclass(frozen=True)
class Met:
    """The group of the generation stands."""


@dataclass(frozen=True)
class Compared:
    """Everybody's report, by rank."""

    reports: tuple[Report, ...]


@dataclass(frozen=True)
class Restored:
    """Rank 0's state is that of the newest checkpoint, or a fresh one of step 0."""

    step: int


@dataclass(frozen=True)
class Copied:
    """Everything lacking has been taken, or given."""


@dataclass(frozen=True)
class Summed:
    """The exchange of a step is complete. `votes`: how many workers want to regroup after it."""

    votes: int


@dataclass(frozen=True)
class Agreed:
    """The workers have agreed to regroup outside a step, for instance in an evaluation."""


@dataclass(frozen=True)
class Lost:
    """The group is broken: a collective failed, or the agent said that a peer is gone."""

    reason: str


Event = Warm | Called | Met | Compared | Restored | Copied | Summed | Agreed | Lost


# --- actions: what the worker is to do
# -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskIn:
    """Tell the agent that this worker is in no group and wants to be in the next."""


@dataclass(frozen=True)
class Meet:
    """Build the generation's process group."""

    generation: int
    rank: int
    world_size: int


@dataclass(frozen=True)
class Compare:
    """Exchange reports with the whole group; this one still lacks the checksums."""

    report: Report


@dataclass(frozen=True)
class Restore:
    """Take up the newest checkpoint, or the fresh state; rank 0 alone."""


@dataclass(frozen=True)
class Copy:
    """Give and take parts."""

    plan: Plan


@dataclass(frozen=True)
class Train:
    """Take the next step."""


@dataclass(frozen=True)
class Apply:
    """Let the optimizer take the step whose sum has arrived."""


@dataclass(frozen=True)
class RollBack:
    """Put back what the step in flight has touched, batch statistics; what was computed of it may be kept."""


@dataclass(frozen=True)
class Part:
    """Leave the group, at once and whatever it is doing."""


Action = AskIn | Meet | Compare | Restore | Copy | Train | Apply | RollBack | Part


@dataclass
class Recovery:
    """One worker's part. Feed it events; it answers with what to do, in order.

    Attributes:
        generation: the one this worker is in, or was in last.
        standing: how far its state is.
        committed: how far the newest checkpoint was when this generation was agreed.
        unbroken_since: the generation from which on its state was never another's: a snapshot taken
            since then is of the group's own history and may still be committed.
    """

    phase: Phase = Phase.APART
    generation: int = 0
    rank: int = 0
    world_size: int = 0
    standing: Standing = field(default_factory=Standing)
    unbroken_since: int = 0
    committed: Standing = field(default_factory=Standing)
    _taking: Standing | None = None  # what the state will be when the copy is complete

    @property
    def step(self) -> int:
        """Completed steps."""
        return self.standing.step

    def fence(self, taken_in: int) -> int:
        """The generation under whose number a snapshot taken in `taken_in` may be committed; 0: under none.

        Not the one this worker was last called to: while that is forming, the worker may yet turn out
        to be of a history that the group has left. May be asked from another thread: what is read
        first is what changes last.
        """
        agreed = self.standing.lineage
        return agreed if taken_in >= self.unbroken_since else 0

    def handle(self, event: Event) -> list[Action]:
        """Learn what happened; an event that does not fit the phase is late, and changes nothing."""
        match event, self.phase:
            case Lost(), Phase.APART:
                return []
            case Lost(), _:
                return self._break()
            case Warm(), Phase.APART:
                return [AskIn()]
            case Called(), Phase.APART if event.generation > self.generation:
                return self._meet(event)
            case Met(), Phase.MEETING:
                return self._compare()
            case Compared(reports), Phase.COMPARING:
                return self._judge(reports)
            case _:
                return self._go_on(event)

    def _go_on(self, event: Event) -> list[Action]:
        match event, self.phase:
            case Restored(step), Phase.RESTORING:
                self.standing = Standing(self.generation, step)
                self.unbroken_since = self.generation
                return self._compare()
            case Copied(), Phase.COPYING:
                return self._copied()
            case Summed(votes), Phase.TRAINING:
                return self._apply(votes)
            case Agreed(), Phase.TRAINING:
                return self._part()
            case _:
                return []

    def _meet(self, called: Called) -> list[Action]:
        self.phase, self.generation = Phase.MEETING, called.generation
        self.rank, self.world_size = called.rank, called.world_size
        self.committed = called.committed
        return [Meet(called.generation, called.rank, called.world_size)]

    def _compare(self) -> list[Action]:
        self.phase = Phase.COMPARING
        return [Compare(Report(self.standing, self.committed))]

    def _judge(self, reports: tuple[Report, ...]) -> list[Action]:
        chosen = plan(reports)
        if chosen is None:
            if self.rank == 0:
                self.phase = Phase.RESTORING
                return [Restore()]
            return self._compare()  # meets rank 0's second report
        lacks = chosen.lacks.get(self.rank, ())
        self.phase, self._taking = Phase.COPYING, chosen.standing
        if self.rank in chosen.lacks:
            self.unbroken_since = self.generation
        if lacks:
            self.standing = Standing()  # torn from here on
        return [Copy(chosen)]

    def _copied(self) -> list[Action]:
        """All have one state now, and it is this generation's."""
        taken = self._taking or self.standing
        self.phase, self._taking = Phase.TRAINING, None
        self.standing = Standing(self.generation, taken.step)
        return [Train()]

    def _apply(self, votes: int) -> list[Action]:
        self.standing = Standing(self.generation, self.standing.step + 1)
        return [Apply(), *(self._part() if votes else [Train()])]

    def _part(self) -> list[Action]:
        self.phase = Phase.APART
        return [Part(), AskIn()]

    def _break(self) -> list[Action]:
        training = self.phase is Phase.TRAINING
        self._taking = None
        return [*([RollBack()] if training else []), *self._part()]
