"""State machine of a worker whose group changes.

Pure: no clock, no socket, no torch. `live_worker` carries out its actions; the tests' simulator runs
the same object through thousands of schedules.

    detached -> connecting -> comparing -> copying -> training -> detached ...
                              comparing -> restoring -> comparing    if no worker has the state to continue from

A worker survives any number of generations. Its state is a list of tensors (parameters, statistics,
momentum), described by its `StepProgress`. The rules:

1. *A step is applied once its sum has arrived*, and not before. Until then only the gradient buffer
   and the batch statistics have changed, and `RollBack` restores the statistics. An all-reduce contains every member's
   share, so an applied step is complete, even if workers die afterwards.
2. *The most advanced complete state wins.* Members of one generation differ by one step at most: some
   received the last sum, some did not. The workers that received it send their state to the others; if none did, the
   step is repeated. So a step is never lost while one worker with it lives, and never applied twice. The callbacks at
   the end of an epoch count like a step: they change metrics, and some workers may have completed them.
3. *States are compared by the generation that last agreed on them, then by their steps.* A worker
   that was frozen, fenced out and thawed may have more steps, but of a history that the others have
   left, so it receives their state.
4. *A state that is being overwritten counts as no state* until the last byte has arrived. A worker that
   dies while it sends leaves torn states, and torn states are never sent to a worker.
5. *The disk counts as one more worker.* If no worker has a complete state, or if a committed checkpoint is
   more advanced than all of them, rank 0 loads the newest checkpoint, and the others receive its state. So a
   commit is never undone: the committed states of a run are one history.
6. *Gradients computed for the step in flight are kept* by the workers with the state that the group
   continues from: they have agreed on the division of that step, and on nothing else since. The others
   discard theirs, which may be of another history, or computed again by another worker in the meantime.
   Only the remaining units are computed again.
7. *A node departs only when its state is elsewhere.* The sum of a step counts the workers whose nodes leave, and if
   there are any, all confirm that they have applied the step. After that a worker that was counted may go: the others
   keep the state or, if all leave, one of them writes it. A worker that was not counted, because the notice came later,
   or without a confirmation, may have the only copy: its node takes part in one more group, unless a checkpoint of
   the state is committed first. Two nodes that leave at almost the same time would otherwise rely on each other.

Why not "rank 0's state for all", as DistributedDataParallel does: rank 0 may be the worker that
missed the last sum, and a step that a survivor has applied and reported would be undone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from everstep.elastic.data_order.leftover import Span, merge_spans


class Phase(Enum):
    """Phase of a worker, from one generation to the next."""

    DETACHED = auto()  # in no group; ready for the next one
    CONNECTING = auto()  # building the next generation's group
    COMPARING = auto()  # exchanging reports about the states
    RESTORING = auto()  # rank 0 loads a checkpoint
    COPYING = auto()  # sending or receiving tensors
    TRAINING = auto()  # taking steps


@dataclass(frozen=True, order=True)
class StepProgress:
    """Progress of a state; the greater, the more advanced.

    Attributes:
        agreed_generation: the generation that last agreed on the state; 0 means that there is no state.
        step: completed steps.
        run: identity of the run's folder, for a committed checkpoint; not compared.
        epoch_ended: whether the callbacks of the epoch that ends with this step have run since its last copy or
            restore.
    """

    agreed_generation: int = 0
    step: int = 0
    run: str = field(default="", compare=False)
    epoch_ended: bool = False


@dataclass(frozen=True)
class StateReport:
    """One worker's report about its state.

    Attributes:
        progress: progress of its state; `agreed_generation` is 0 if there is none or it is torn.
        committed: progress of the newest committed checkpoint that its agent has observed.
        checksums: a checksum of each tensor, in the order of the tensors; empty without a state.
        computed_units: units of the next step that this worker has computed.
    """

    progress: StepProgress
    committed: StepProgress = field(default_factory=StepProgress)
    checksums: tuple[int, ...] = ()
    computed_units: tuple[Span, ...] = ()


@dataclass(frozen=True)
class CopyPlan:
    """The ranks that send tensors, and the ranks that receive them.

    All workers compute the same plan from the same reports.

    Attributes:
        progress: progress of the state that all will have.
        sources: ranks with this state, in order.
        missing_tensors: indices of the tensors that each other rank must receive, by rank.
        computed_units: units of the next step that the sources have computed.
        unequal_ranks: ranks with the same progress and different bytes: memory or arithmetic failed somewhere.
    """

    progress: StepProgress
    sources: tuple[int, ...]
    missing_tensors: Mapping[int, tuple[int, ...]]
    computed_units: tuple[Span, ...] = ()
    unequal_ranks: tuple[int, ...] = ()

    def source_of(self, tensor: int) -> int:
        """Return the rank that sends a tensor: sources take turns, so that all their links are used."""
        return self.sources[tensor % len(self.sources)]


def plan_copy(reports: Sequence[StateReport]) -> CopyPlan | None:
    """Return the ranks with the state to continue from, and the parts of it that others lack.

    Args:
        reports: reports of all workers, by rank.

    Returns:
        None if rank 0 must load a checkpoint or initialize the state.
    """
    best_progress = max(report.progress for report in reports)
    if best_progress.agreed_generation == 0 or best_progress < max(
        report.committed for report in reports
    ):
        return None
    advanced_ranks = [
        rank for rank, report in enumerate(reports) if report.progress == best_progress
    ]
    checksums = _majority([reports[rank].checksums for rank in advanced_ranks])
    sources = [rank for rank in advanced_ranks if reports[rank].checksums == checksums]
    missing_tensors = {
        rank: tuple(
            tensor for tensor in range(len(checksums)) if _differs(report, checksums, tensor)
        )
        for rank, report in enumerate(reports)
        if rank not in sources
    }
    computed_units = merge_spans(span for rank in sources for span in reports[rank].computed_units)
    unequal_ranks = tuple(rank for rank in advanced_ranks if rank not in sources)
    return CopyPlan(best_progress, tuple(sources), missing_tensors, computed_units, unequal_ranks)


def _majority(checksums: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the most frequent checksums; in a tie, the checksums of the lowest rank.

    Equal progress with different bytes is a fault of one worker's memory or CPU. Except in large runs, whose
    coordinators have the first ranks, the lowest rank has been in the run for the longest time.
    """
    return max(checksums, key=checksums.count)  # the first of several maxima


def _differs(report: StateReport, checksums: tuple[int, ...], tensor: int) -> bool:
    return tensor >= len(report.checksums) or report.checksums[tensor] != checksums[tensor]


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class WarmedUp:
    """Program, model and data are loaded; there is no state yet."""


@dataclass(frozen=True)
class Assigned:
    """A generation with this worker was agreed.

    Attributes:
        generation: number of the generation.
        rank: this worker's rank in it.
        world_size: number of its workers.
        committed: progress of the newest committed checkpoint.
    """

    generation: int
    rank: int
    world_size: int
    committed: StepProgress = field(default_factory=StepProgress)


@dataclass(frozen=True)
class Connected:
    """The group of the generation is connected."""


@dataclass(frozen=True)
class Compared:
    """All reports have arrived, by rank."""

    reports: tuple[StateReport, ...]


@dataclass(frozen=True)
class Restored:
    """Rank 0 has loaded the newest checkpoint, or the initial state of step 0."""

    step: int


@dataclass(frozen=True)
class Copied:
    """All missing tensors were received, or sent."""


class Leavers(Enum):
    """The workers whose nodes leave, as a sum over all workers has counted them."""

    NONE = auto()
    OTHERS = auto()  # nodes of other workers only
    THIS = auto()  # this worker's node, but not all
    ALL = auto()


@dataclass(frozen=True)
class Summed:
    """The sum of a step has arrived.

    Attributes:
        votes: number of workers that vote to regroup after the step.
        leavers: the workers whose nodes leave; a checkpoint is written if there are any.
    """

    votes: int
    leavers: Leavers = Leavers.NONE


@dataclass(frozen=True)
class EpochEnded:
    """The callbacks at the end of an epoch have changed the state, with equal results on all workers."""


@dataclass(frozen=True)
class RegroupAgreed:
    """The workers have agreed to regroup outside a step, for instance in an evaluation.

    Attributes:
        leavers: the workers whose nodes leave.
    """

    leavers: Leavers = Leavers.NONE


@dataclass(frozen=True)
class Confirmed:
    """All workers of the group have the state from which they regroup.

    Attributes:
        leavers: the workers whose nodes leave.
    """

    leavers: Leavers


@dataclass(frozen=True)
class Written:
    """No write of this worker is in progress any longer, after a regroup because all workers leave."""


@dataclass(frozen=True)
class Committed:
    """A checkpoint is committed, by any worker.

    Attributes:
        progress: its progress.
    """

    progress: StepProgress


@dataclass(frozen=True)
class GroupLost:
    """The group is broken: a collective failed, or the agent reported a lost peer."""

    reason: str


Event = (
    WarmedUp
    | Assigned
    | Connected
    | Compared
    | Restored
    | Copied
    | Summed
    | EpochEnded
    | RegroupAgreed
    | Confirmed
    | Written
    | Committed
    | GroupLost
)


# --- actions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """Report to the agent that this worker is in no group and ready for the next one.

    Attributes:
        may_be_only_copy: whether its state may be in no other place, so that its node must not depart yet.
        writes: whether all workers leave: the report counts once no write is in progress, which is a `Written` event.
    """

    may_be_only_copy: bool = False
    writes: bool = False


@dataclass(frozen=True)
class Connect:
    """Build the generation's process group."""

    generation: int
    rank: int
    world_size: int


@dataclass(frozen=True)
class Compare:
    """Exchange reports with the whole group; `report` still lacks the checksums and the computed units."""

    report: StateReport


@dataclass(frozen=True)
class Restore:
    """Load the newest checkpoint, or initialize the state; on rank 0 only."""


@dataclass(frozen=True)
class AwaitRestored:
    """Wait until rank 0 has restored the state, however long that takes."""


@dataclass(frozen=True)
class Copy:
    """Send and receive tensors."""

    plan: CopyPlan


@dataclass(frozen=True)
class Train:
    """Take the next step."""


@dataclass(frozen=True)
class Apply:
    """Let the optimizer apply the step whose sum has arrived."""


@dataclass(frozen=True)
class Confirm:
    """Wait until all workers of the group have the state from which they regroup, because some of them leave."""

    leavers: Leavers


@dataclass(frozen=True)
class RollBack:
    """Restore the batch statistics that the step in flight has changed; its gradients may be kept."""


@dataclass(frozen=True)
class LeaveGroup:
    """Leave the group immediately, in any phase."""


Action = (
    Ready
    | Connect
    | Compare
    | Restore
    | AwaitRestored
    | Copy
    | Train
    | Apply
    | Confirm
    | RollBack
    | LeaveGroup
)


@dataclass
class Recovery:
    """One worker's recovery: it receives events and returns actions, in order.

    Attributes:
        phase: the worker's phase.
        generation: this worker's current or last generation.
        rank: its rank in that generation.
        world_size: number of workers in that generation.
        progress: progress of its state.
        unbroken_since: the generation since which its state was never replaced by another worker's state or a
            checkpoint: a snapshot taken since then belongs to the group's own history and may still be committed.
        committed: progress of the newest checkpoint when this generation was agreed, or of a later one.
    """

    phase: Phase = Phase.DETACHED
    generation: int = 0
    rank: int = 0
    world_size: int = 0
    progress: StepProgress = field(default_factory=StepProgress)
    unbroken_since: int = 0
    committed: StepProgress = field(default_factory=StepProgress)
    _incoming: StepProgress | None = None  # progress of the state when the copy is complete
    _kept_progress: StepProgress | None = None  # progress of a state that others keep or write

    @property
    def step(self) -> int:
        """Completed steps."""
        return self.progress.step

    @property
    def may_be_only_copy(self) -> bool:
        """True if this worker's state may be in no other place."""
        progress, committed = self.progress, self.committed
        # Without the end of the epoch: its callbacks run again after a restore.
        is_committed = (progress.agreed_generation, progress.step) <= (
            committed.agreed_generation,
            committed.step,
        )
        return (
            progress.agreed_generation > 0 and not is_committed and progress != self._kept_progress
        )

    def fence(self, snapshot_generation: int) -> int:
        """Return the generation that may commit a snapshot of `snapshot_generation`; 0 if none may.

        This is not the generation that the worker was last assigned to: while that is forming, the worker may
        turn out to be of a history that the group has left. Thread-safe: the value read first changes last.
        """
        agreed = self.progress.agreed_generation
        return agreed if snapshot_generation >= self.unbroken_since else 0

    def handle(self, event: Event) -> list[Action]:
        """Process an event; an event that does not fit the phase is late, and changes nothing."""
        match event, self.phase:
            case GroupLost(), Phase.DETACHED:
                return []
            case Written(), Phase.DETACHED:
                return [self._ready()]
            case Committed(progress), Phase.DETACHED:
                return self._record_commit(progress)
            case GroupLost(), _:
                return self._roll_back()
            case WarmedUp(), Phase.DETACHED:
                return [Ready()]
            case Assigned(), Phase.DETACHED if event.generation > self.generation:
                return self._connect(event)
            case Connected(), Phase.CONNECTING:
                return self._compare()
            case Compared(reports), Phase.COMPARING:
                return self._choose_state(reports)
            case _:
                return self._handle_in_group(event)

    def _handle_in_group(self, event: Event) -> list[Action]:
        match event, self.phase:
            case Restored(step), Phase.RESTORING:
                self.unbroken_since = self.generation
                self.progress = StepProgress(self.generation, step)  # last: see `fence`
                return self._compare_again()
            case Copied(), Phase.COPYING:
                return self._finish_copy()
            case Summed(votes, leavers), Phase.TRAINING:
                return self._apply(votes, leavers)
            case EpochEnded(), Phase.TRAINING:
                self.progress = replace(self.progress, epoch_ended=True)
                return [Train()]
            case RegroupAgreed(leavers), Phase.TRAINING:
                return self._regroup(leavers)
            case Confirmed(leavers), Phase.TRAINING:
                return self._depart(leavers)
            case _:
                return []

    def _connect(self, assigned: Assigned) -> list[Action]:
        self.phase, self.generation = Phase.CONNECTING, assigned.generation
        self.rank, self.world_size = assigned.rank, assigned.world_size
        self.committed = assigned.committed
        return [Connect(assigned.generation, assigned.rank, assigned.world_size)]

    def _compare(self) -> list[Action]:
        self.phase = Phase.COMPARING
        return [Compare(StateReport(self.progress, self.committed))]

    def _compare_again(self) -> list[Action]:
        """Compare once the state is restored: a collective, which has a limit, must not wait for the storage."""
        return [AwaitRestored(), *self._compare()]

    def _choose_state(self, reports: tuple[StateReport, ...]) -> list[Action]:
        plan = plan_copy(reports)
        if plan is None:
            if self.rank == 0:
                self.phase, self.progress = Phase.RESTORING, StepProgress()  # torn from here on
                return [Restore()]
            return self._compare_again()
        receives_tensors = bool(plan.missing_tensors.get(self.rank))
        self.phase, self._incoming = Phase.COPYING, plan.progress
        if self.rank in plan.missing_tensors:
            self.unbroken_since = self.generation
        if receives_tensors:
            self.progress = StepProgress()  # torn from here on
        return [Copy(plan)]

    def _finish_copy(self) -> list[Action]:
        """Record that all workers have one state now, agreed by this generation."""
        progress = self._incoming or self.progress
        self.phase, self._incoming = Phase.TRAINING, None
        self.progress = StepProgress(self.generation, progress.step)
        return [Train()]

    def _apply(self, votes: int, leavers: Leavers) -> list[Action]:
        self.progress = StepProgress(self.generation, self.progress.step + 1)
        return [Apply(), *(self._regroup(leavers) if votes else [Train()])]

    def _regroup(self, leavers: Leavers) -> list[Action]:
        return self._leave_group() if leavers is Leavers.NONE else [Confirm(leavers)]

    def _depart(self, leavers: Leavers) -> list[Action]:
        """Leave the group after the confirmation; other nodes or a checkpoint keep the state of a node that leaves."""
        if leavers is not Leavers.OTHERS:
            self._kept_progress = self.progress
        return self._leave_group(writes=leavers is Leavers.ALL)

    def _leave_group(self, *, writes: bool = False) -> list[Action]:
        self.phase = Phase.DETACHED
        return [LeaveGroup(), self._ready(writes=writes)]

    def _ready(self, *, writes: bool = False) -> Ready:
        return Ready(self.may_be_only_copy, writes)

    def _record_commit(self, progress: StepProgress) -> list[Action]:
        """Record a commit; report to the agent if the state was the only copy, and is not any longer."""
        was_only_copy = self.may_be_only_copy
        self.committed = max(self.committed, progress)
        return [self._ready()] if was_only_copy and not self.may_be_only_copy else []

    def _roll_back(self) -> list[Action]:
        was_training = self.phase is Phase.TRAINING
        self._incoming = None
        return [*([RollBack()] if was_training else []), *self._leave_group()]
