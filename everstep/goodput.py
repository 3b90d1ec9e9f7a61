"""What changes of its machines cost a training run: a model, without a clock or a cluster.

`replay` takes a history of machines that came and went, and a `Design`: what a way of training pays
for each kind of change, every figure with its source. `everstep report` asks it what a design that
restarts would have lost on a run's own history; `benchmarks/goodput.py` replays months of a spot
market over several designs. Both stand on it, and it on nothing, so it lies above their rooms.

What is modelled: pauses, work done again, machines that start, stalls of checkpoints. What is not:
a group's speed is taken to grow with its machines, and a failure never to follow from another.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from itertools import groupby


class Cause(StrEnum):
    """Why the machines of a group change."""

    LOSS = "loss"  # nobody says goodbye: has to be detected first
    NOTICE = "notice"  # a drain, or a spot notice: leaves in order
    JOIN = "join"


@dataclass(frozen=True)
class Change:
    """At a time, in seconds since the history began, so many machines went or came.

    A loss of 0 machines is a process that died on a machine that stays.
    """

    at: float
    cause: Cause
    machines: int = 1


@dataclass(frozen=True)
class Cost:
    """A duration, and where its figure is from."""

    seconds: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Design:
    """What a way of training pays for changes.

    Attributes:
        name: what to call it.
        loss: pause of those who stay, from the loss to work going on; the detection is part of it.
        notice: the same where machines leave in order.
        join: pause of those who train when machines join.
        start_up: from a machine's arrival until it joins; the others train on.
        begin: pause of a group that begins from a checkpoint, when nobody was training.
        repeated: work of the step in flight, done again after a loss.
        stall: pause for one checkpoint.
        checkpoint_seconds: training between two checkpoints.
        checkpoint_work: the same in machine-seconds of work, as for one checkpoint an epoch; where it
            is given, `checkpoint_seconds` does not count.
        rolls_back: whether every change sets everybody back to the last checkpoint. Otherwise only the
            loss of all machines does.
    """

    name: str
    loss: Cost
    notice: Cost
    join: Cost
    start_up: Cost
    begin: Cost
    repeated: Cost
    stall: Cost
    checkpoint_seconds: float
    checkpoint_work: float = 0.0
    rolls_back: bool

    def pause(self, cause: Cause) -> float:
        """Seconds that those who train pause for a change."""
        return {Cause.LOSS: self.loss, Cause.NOTICE: self.notice, Cause.JOIN: self.join}[
            cause
        ].seconds

    def costs(self) -> Iterator[tuple[str, Cost]]:
        """Every figure by name."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Cost):
                yield field.name, value


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of the time of one history.

    Attributes:
        seconds: wall clock while there was a machine at all.
        productive_seconds: of these, spent on work that counted.
        machine_seconds: sum over all machines of the time that they were there.
        productive_machine_seconds: of these, spent on work that counted.
        redone_seconds: wall clock spent on work that had to be done again.
        changes: how many there were.
    """

    seconds: float
    productive_seconds: float
    machine_seconds: float
    productive_machine_seconds: float
    redone_seconds: float
    changes: int

    @property
    def goodput(self) -> float:
        """Share of the wall clock, while there was a machine, that went into work that counted."""
        return self.productive_seconds / self.seconds if self.seconds else 0.0

    @property
    def machine_goodput(self) -> float:
        """Share of the machines' time that went into work that counted; a starting machine's does not."""
        if not self.machine_seconds:
            return 0.0
        return self.productive_machine_seconds / self.machine_seconds

    @property
    def lost_seconds(self) -> float:
        """Wall clock, while there was a machine, that brought nothing."""
        return self.seconds - self.productive_seconds

    def to_json(self) -> dict[str, float]:
        """All figures, the shares included."""
        return {
            **asdict(self),
            "lost_seconds": self.lost_seconds,
            "goodput": self.goodput,
            "machine_goodput": self.machine_goodput,
        }


def replay(machines: int, changes: Iterable[Change], until: float, design: Design) -> Outcome:
    """Let a design live through a history.

    Args:
        machines: how many train when the history begins, at 0 s.
        changes: in the order of time. What goes is taken from those who train before those who start.
        until: when the history ends; later changes do not count.
        design: what it pays.
    """
    world = _World(design, machines)
    seen = 0
    for at, together in groupby((c for c in changes if c.at <= until), key=lambda c: c.at):
        world.advance(at)
        for change in together:
            world.meet(change)
            seen += 1
    world.advance(until)
    return Outcome(
        seconds=world.seconds,
        productive_seconds=world.good_seconds,
        machine_seconds=world.machine_seconds,
        productive_machine_seconds=world.good_work,
        redone_seconds=world.redone_seconds,
        changes=seen,
    )


class _World:
    """One design's group as time goes on. Work is counted in seconds of one machine."""

    def __init__(self, design: Design, machines: int) -> None:
        self._design, self._group = design, machines
        self._starting: list[float] = []  # when each machine that starts is ready, in order
        self._now = self._resumes = 0.0
        self._since_seconds = self._since_work = 0.0  # what the last checkpoint does not hold
        self.seconds = self.machine_seconds = self.good_seconds = self.good_work = 0.0
        self.redone_seconds = 0.0

    def advance(self, to: float) -> None:
        """Until a time, machines that are ready on the way taken in."""
        while self._starting and self._starting[0] <= to:
            ready = self._starting[0]
            self._pass(ready)
            count = sum(at <= ready for at in self._starting)
            del self._starting[:count]
            self._take_in(count)
        self._pass(to)

    def meet(self, change: Change) -> None:
        """Machines go or come, now."""
        if change.cause is Cause.JOIN:
            self._starting += [self._now + self._design.start_up.seconds] * change.machines
            return
        gone = min(change.machines, self._group)
        trained = self._group > 0
        self._group -= gone
        del self._starting[: change.machines - gone]
        if not self._group:
            self._undo(self._since_seconds, self._since_work)
        elif trained and (gone or not change.machines):
            self._interrupt(change.cause)

    def _pass(self, to: float) -> None:
        lasted, there = to - self._now, self._group + len(self._starting)
        if there:
            self.seconds += lasted
            self.machine_seconds += lasted * there
        if self._group:
            self._train(max(0.0, to - max(self._now, self._resumes)))
        self._now = to

    def _train(self, seconds: float) -> None:
        """Work without a change; a checkpoint now and then makes it safe, and takes its time."""
        design, group = self._design, self._group
        every = design.checkpoint_work / group or design.checkpoint_seconds
        worked = seconds * every / (every + design.stall.seconds)
        self.good_seconds += worked
        self.good_work += worked * group
        before = self._since_work / group if design.checkpoint_work else self._since_seconds
        if before + worked < every:
            self._since_seconds += worked
            self._since_work += worked * group
        else:
            self._since_seconds = (before + worked) % every
            self._since_work = self._since_seconds * group

    def _take_in(self, count: int) -> None:
        alone = not self._group
        self._group += count
        if alone:
            self._pause(self._design.begin.seconds)
        else:
            self._interrupt(Cause.JOIN)

    def _interrupt(self, cause: Cause) -> None:
        """Those who train have to form a new group."""
        if self._design.rolls_back:
            self._undo(self._since_seconds, self._since_work)
        elif cause is Cause.LOSS:
            seconds = min(self._design.repeated.seconds, self._since_seconds)
            share = seconds / self._since_seconds if self._since_seconds else 0.0
            self._undo(seconds, self._since_work * share)
        self._pause(self._design.pause(cause))

    def _undo(self, seconds: float, work: float) -> None:
        self.good_seconds -= seconds
        self.good_work -= work
        self.redone_seconds += seconds
        self._since_seconds -= seconds
        self._since_work -= work

    def _pause(self, seconds: float) -> None:
        self._resumes = max(self._resumes, self._now + seconds)


# --- designs ------------------------------------------------------------------------------------

MEASURED = "docs/measurements.md"

TORCHRUN_LOSS = Cost(
    42.5, f"a node vanishes under torchrun's etcd backend, detection included: {MEASURED}"
)
TORCHRUN_JOIN = Cost(
    11.0, f"a node joins under torchrun's etcd backend, the others' pause: {MEASURED}"
)
TORCHRUN_NOTICE = Cost(
    42.5,
    "as a loss: torchrun's backend has no leave, the lease runs out; in fact one drain ended the job",
)
TORCHRUN_BEGIN = Cost(
    32.5,
    "30 s last call, waited out whenever a node is lacking, and 2.5 s of process start on a CPU",
)
START_UP = Cost(11.9, f"a vanished node's return until it trains, on the twin: {MEASURED}")
NOTHING = Cost(0.0, "none")


def restart(
    checkpoint_seconds: float,
    *,
    name: str = "restart",
    checkpoint_work: float = 0.0,
    stall: Cost = NOTHING,
) -> Design:
    """Workers end at every change and start again from the last checkpoint, as under torchrun's etcd backend."""
    return Design(
        name=name,
        loss=TORCHRUN_LOSS,
        notice=TORCHRUN_NOTICE,
        join=TORCHRUN_JOIN,
        start_up=START_UP,
        begin=TORCHRUN_BEGIN,
        repeated=NOTHING,  # part of the work since the checkpoint
        stall=stall,
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_work=checkpoint_work,
        rolls_back=True,
    )


def live(
    *, state_bytes: float, step_seconds: float, bytes_per_second: float, checkpoint_seconds: float
) -> Design:
    """Everstep's `live` mode: workers live through changes, state comes from a peer.

    Args:
        state_bytes: parameters and momentum.
        step_seconds: one optimizer step, all of it done again after a loss.
        bytes_per_second: of the network between machines and to the storage.
        checkpoint_seconds: between checkpoints, written in the background.
    """
    copy = state_bytes / bytes_per_second
    how = f"{state_bytes / 1e6:.0f} MB at {bytes_per_second * 8 / 1e9:g} Gbit/s"
    return Design(
        name="live",
        loss=Cost(2.81, f"every process of a node killed at once, the worst of 3: {MEASURED}"),
        notice=Cost(0.092, f"a drain's extra time, the worst of 3: {MEASURED}"),
        join=Cost(0.243 + copy, f"0.243 s, the worst of 12 joins ({MEASURED}), and {how}"),
        start_up=START_UP,
        begin=Cost(0.243 + copy, f"forming, the worst of 12 joins, and a checkpoint of {how}"),
        repeated=Cost(step_seconds, "one step"),
        stall=Cost(
            0.016 * state_bytes / 204.7e6, "0.016 s a snapshot of 204.7 MB, measured on a CPU"
        ),
        checkpoint_seconds=checkpoint_seconds,
        rolls_back=False,
    )


def assumptions(design: Design) -> Sequence[str]:
    """Every figure of a design as a line of text."""
    lines = [f"{name} {cost.seconds:.3g} s: {cost.source}" for name, cost in design.costs()]
    if design.checkpoint_work:
        return [*lines, f"a checkpoint every {design.checkpoint_work:,.0f} machine-seconds of work"]
    return [*lines, f"a checkpoint every {design.checkpoint_seconds:g} s of training"]
