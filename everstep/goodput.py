"""A model of the time that a training run loses when machines leave and join; it needs no clock and no cluster.

`replay` takes a history of machines that left and joined, and a `Design`: the cost of each kind of change
for one way of training, every value with its source. `everstep report` uses it to estimate the loss of a
restarting design on a run's own history; `benchmarks/goodput.py` replays months of a spot market over
several designs. `everstep.capacity` uses its costs of the `live` mode. This module imports no other module of Everstep.

The model includes pauses, repeated work, starting machines and checkpoint stalls. It assumes that a
group's speed is proportional to its number of machines.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from itertools import groupby


class ChangeCause(StrEnum):
    """The reason why a group's machines change."""

    LOSS = "loss"  # without notice: the others must detect it first
    NOTICE = "notice"  # a drain, or a spot notice: the machine leaves in an orderly way
    JOIN = "join"


@dataclass(frozen=True)
class MachineChange:
    """Machines that leave or join at the same time, in seconds since the history began.

    A loss of 0 machines is a process that died on a machine that stays.
    """

    at_seconds: float
    cause: ChangeCause
    machines: int = 1


@dataclass(frozen=True)
class ChangeCost:
    """A duration in seconds, and the source of its value."""

    seconds: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Design:
    """The cost of changes for one way of training.

    Attributes:
        name: name of the design.
        loss: pause of the remaining machines after a loss, including its detection.
        notice: pause of the remaining machines after machines leave in an orderly way.
        join: pause of the training machines when others join.
        start_up: from a machine's arrival until it joins; the others continue.
        begin: pause of a group that starts from a checkpoint when no machine was training.
        repeated: work of the step in flight, done again after a loss.
        stall: pause for one checkpoint.
        checkpoint_seconds: training between two checkpoints.
        checkpoint_work: the same in machine-seconds of work, as for one checkpoint per epoch; if given, it
            replaces `checkpoint_seconds`.
        rolls_back: whether every change sets the group back to the last checkpoint. Otherwise only the loss
            of all machines does.
    """

    name: str
    loss: ChangeCost
    notice: ChangeCost
    join: ChangeCost
    start_up: ChangeCost
    begin: ChangeCost
    repeated: ChangeCost
    stall: ChangeCost
    checkpoint_seconds: float
    checkpoint_work: float = 0.0
    rolls_back: bool

    def pause(self, cause: ChangeCause) -> float:
        """Return the seconds that the training machines pause for a change."""
        return {
            ChangeCause.LOSS: self.loss,
            ChangeCause.NOTICE: self.notice,
            ChangeCause.JOIN: self.join,
        }[cause].seconds

    def costs(self) -> Iterator[tuple[str, ChangeCost]]:
        """Yield every cost by name."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, ChangeCost):
                yield field.name, value


@dataclass(frozen=True, kw_only=True)
class GoodputResult:
    """The wall clock and the machine time of one history, and the parts that were productive.

    Attributes:
        seconds: wall clock while there was at least one machine.
        productive_seconds: part of `seconds` spent on work that counted.
        machine_seconds: sum of the lifetimes of all machines.
        productive_machine_seconds: part of `machine_seconds` spent on work that counted.
        redone_seconds: wall clock spent on work that was repeated later.
        changes: number of changes.
    """

    seconds: float
    productive_seconds: float
    machine_seconds: float
    productive_machine_seconds: float
    redone_seconds: float
    changes: int

    @property
    def goodput(self) -> float:
        """Share of the wall clock with at least one machine that went into work that counted."""
        return self.productive_seconds / self.seconds if self.seconds else 0.0

    @property
    def machine_goodput(self) -> float:
        """Share of the machines' time that went into work that counted; starting up does not count."""
        if not self.machine_seconds:
            return 0.0
        return self.productive_machine_seconds / self.machine_seconds

    @property
    def lost_seconds(self) -> float:
        """Part of `seconds` that was not productive."""
        return self.seconds - self.productive_seconds

    def to_json(self) -> dict[str, float]:
        """Return all values, including the shares."""
        return {
            **asdict(self),
            "lost_seconds": self.lost_seconds,
            "goodput": self.goodput,
            "machine_goodput": self.machine_goodput,
        }


def replay(
    machines: int, changes: Iterable[MachineChange], end_seconds: float, design: Design
) -> GoodputResult:
    """Apply a design to a history.

    Args:
        machines: number of training machines when the history begins, at 0 s.
        changes: changes in order of time. A loss removes training machines before starting ones.
        end_seconds: end of the history; later changes do not count.
        design: the costs.
    """
    group = _SimulatedGroup(design, machines)
    included_changes = [change for change in changes if change.at_seconds <= end_seconds]
    for time, changes_at_time in groupby(included_changes, key=lambda change: change.at_seconds):
        group.advance(time)
        for change in changes_at_time:
            group.apply_change(change)
    group.advance(end_seconds)
    return GoodputResult(
        seconds=group.seconds,
        productive_seconds=group.productive_seconds,
        machine_seconds=group.machine_seconds,
        productive_machine_seconds=group.productive_work,
        redone_seconds=group.redone_seconds,
        changes=len(included_changes),
    )


class _SimulatedGroup:
    """The simulated group of one design. Work is counted in machine-seconds."""

    def __init__(self, design: Design, machines: int) -> None:
        self._design, self._group = design, machines
        self._starting: list[float] = []  # when each starting machine is ready, in order
        self._now = self._resumes = 0.0
        self._since_seconds = self._since_work = 0.0  # work since the last checkpoint
        self.seconds = self.machine_seconds = self.redone_seconds = 0.0
        self.productive_seconds = self.productive_work = 0.0

    def advance(self, end: float) -> None:
        """Advance to a time; add the machines that become ready meanwhile."""
        while self._starting and self._starting[0] <= end:
            ready = self._starting[0]
            self._advance_to(ready)
            count = sum(time <= ready for time in self._starting)
            del self._starting[:count]
            self._add_ready(count)
        self._advance_to(end)

    def apply_change(self, change: MachineChange) -> None:
        """Remove or add machines at the current time."""
        if change.cause is ChangeCause.JOIN:
            self._starting += [self._now + self._design.start_up.seconds] * change.machines
            return
        lost_machines = min(change.machines, self._group)
        was_training = self._group > 0
        self._group -= lost_machines
        del self._starting[: change.machines - lost_machines]
        if not self._group:
            self._undo(self._since_seconds, self._since_work)
        elif was_training and (lost_machines or not change.machines):
            self._interrupt(change.cause)

    def _advance_to(self, end: float) -> None:
        elapsed, machines = end - self._now, self._group + len(self._starting)
        if machines:
            self.seconds += elapsed
            self.machine_seconds += elapsed * machines
        if self._group:
            self._train(max(0.0, end - max(self._now, self._resumes)))
        self._now = end

    def _train(self, seconds: float) -> None:
        """Train without a change; checkpoints save the work and cost time."""
        design, group = self._design, self._group
        interval = design.checkpoint_work / group or design.checkpoint_seconds
        trained_seconds = seconds * interval / (interval + design.stall.seconds)
        self.productive_seconds += trained_seconds
        self.productive_work += trained_seconds * group
        since_checkpoint = (
            self._since_work / group if design.checkpoint_work else self._since_seconds
        )
        if since_checkpoint + trained_seconds < interval:
            self._since_seconds += trained_seconds
            self._since_work += trained_seconds * group
        else:
            self._since_seconds = (since_checkpoint + trained_seconds) % interval
            self._since_work = self._since_seconds * group

    def _add_ready(self, count: int) -> None:
        was_empty = not self._group
        self._group += count
        if was_empty:
            self._pause(self._design.begin.seconds)
        else:
            self._interrupt(ChangeCause.JOIN)

    def _interrupt(self, cause: ChangeCause) -> None:
        """Form a new group: the training machines pause."""
        if self._design.rolls_back:
            self._undo(self._since_seconds, self._since_work)
        elif cause is ChangeCause.LOSS:
            seconds = min(self._design.repeated.seconds, self._since_seconds)
            share = seconds / self._since_seconds if self._since_seconds else 0.0
            self._undo(seconds, self._since_work * share)
        self._pause(self._design.pause(cause))

    def _undo(self, seconds: float, work: float) -> None:
        self.productive_seconds -= seconds
        self.productive_work -= work
        self.redone_seconds += seconds
        self._since_seconds -= seconds
        self._since_work -= work

    def _pause(self, seconds: float) -> None:
        self._resumes = max(self._resumes, self._now + seconds)


# --- designs ------------------------------------------------------------------------------------

MEASURED = "docs/measurements.md"

TORCHRUN_LOSS = ChangeCost(
    42.5, f"loss of a node under torchrun's etcd backend, including detection: {MEASURED}"
)
TORCHRUN_JOIN = ChangeCost(
    11.0, f"pause of the others when a node joins under torchrun's etcd backend: {MEASURED}"
)
TORCHRUN_NOTICE = ChangeCost(
    42.5,
    "like a loss: an agent cannot leave torchrun's backend; its lease has to expire. One drain even ended the job",
)
TORCHRUN_BEGIN = ChangeCost(
    32.5,
    "torchrun's whole last call of 30 s if a node is missing, and 2.5 s to start processes on a CPU",
)
START_UP = ChangeCost(
    11.9, f"from the return of a vanished node until it trains, on the twin: {MEASURED}"
)
NO_COST = ChangeCost(0.0, "none")


def restart_design(
    checkpoint_seconds: float,
    *,
    name: str = "restart",
    checkpoint_work: float = 0.0,
    stall: ChangeCost = NO_COST,
) -> Design:
    """Return a design whose workers restart at every change from the last checkpoint, like torchrun's etcd backend."""
    return Design(
        name=name,
        loss=TORCHRUN_LOSS,
        notice=TORCHRUN_NOTICE,
        join=TORCHRUN_JOIN,
        start_up=START_UP,
        begin=TORCHRUN_BEGIN,
        repeated=NO_COST,  # part of the work since the checkpoint
        stall=stall,
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_work=checkpoint_work,
        rolls_back=True,
    )


def live_design(
    *, state_bytes: float, step_seconds: float, bytes_per_second: float, checkpoint_seconds: float
) -> Design:
    """Return the design of Everstep's `live` mode: workers survive changes, and new ones get their state from a peer.

    Args:
        state_bytes: size of the parameters and the momentum.
        step_seconds: duration of one optimizer step, which is repeated after a loss.
        bytes_per_second: throughput of the network between machines and to the storage.
        checkpoint_seconds: time between checkpoints, which are written in the background.
    """
    copy = state_bytes / bytes_per_second
    transfer = f"{state_bytes / 1e6:.0f} MB at {bytes_per_second * 8 / 1e9:g} Gbit/s"
    return Design(
        name="live",
        loss=ChangeCost(2.81, f"all processes of a node killed, the worst of 3: {MEASURED}"),
        notice=ChangeCost(0.092, f"a drain's extra time, the worst of 3: {MEASURED}"),
        join=ChangeCost(
            0.243 + copy, f"0.243 s, the worst of 12 joins ({MEASURED}), and {transfer}"
        ),
        start_up=START_UP,
        begin=ChangeCost(
            0.243 + copy, f"forming, the worst of 12 joins, and a checkpoint of {transfer}"
        ),
        repeated=ChangeCost(step_seconds, "one step"),
        stall=ChangeCost(
            0.016 * state_bytes / 204.7e6, "0.016 s a snapshot of 204.7 MB, measured on a CPU"
        ),
        checkpoint_seconds=checkpoint_seconds,
        rolls_back=False,
    )


def assumptions(design: Design) -> Sequence[str]:
    """Return a line of text for each cost of a design that is not zero, and one for its checkpoint interval."""
    lines = [
        f"{name.replace('_', ' ')} {cost.seconds:.3g} s: {cost.source}"
        for name, cost in design.costs()
        if cost.seconds
    ]
    if design.checkpoint_work:
        return [*lines, f"a checkpoint every {design.checkpoint_work:,.0f} machine-seconds of work"]
    return [*lines, f"a checkpoint every {design.checkpoint_seconds:g} s of training"]
