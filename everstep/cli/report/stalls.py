"""Long waits of a group for a slow node, as its workers recorded them; docs/elasticity.md describes them."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from everstep.cli.durations import clock
from everstep.cli.report.run_record import JournalEntry, RunRecord


@dataclass(frozen=True)
class LongWait:
    """A wait of a group in one step. docs/report.md has the definitions.

    Attributes:
        at: Unix time at which the others began to wait.
        step: number of the step.
        nodes: nodes whose workers were late; empty if no worker was late and the network was slow.
        seconds: duration of the wait; None while it continues.
        lost: whether the group was aborted.
    """

    at: float
    step: int
    nodes: tuple[str, ...]
    seconds: float | None
    lost: bool = False


def slow_nodes(run: RunRecord) -> tuple[LongWait, ...]:
    """Return all recorded waits by time."""
    ends = {_key(entry): entry for entry in run.of_kind("stall_over")}
    waits = (_wait(run, entry, ends.get(_key(entry))) for entry in run.of_kind("stall"))
    return tuple(sorted(waits, key=lambda wait: wait.at))


def _key(entry: JournalEntry) -> tuple[str, float | None]:
    return entry.worker, entry.measure("began_at")


def _wait(run: RunRecord, entry: JournalEntry, end: JournalEntry | None) -> LongWait:
    began_at = entry.measure("began_at")
    at = entry.at if began_at is None else began_at
    nodes = entry.values.get("nodes")
    seconds = end.measure("seconds") if end else None
    # A worker that was killed during the wait has recorded no end; the next step shows it.
    if seconds is None and (next_step := run.step_after(entry.at)):
        seconds = next_step.at - at
    return LongWait(
        at=at,
        step=entry.number("step"),
        nodes=tuple(str(node) for node in nodes) if isinstance(nodes, list) else (),
        seconds=seconds,
        lost=bool(end and end.values.get("lost")),
    )


def slow_node_names(wait: LongWait) -> str:
    """Return the nodes that a group waited for as text."""
    return ", ".join(wait.nodes) or "the network"


def slow_node_sentence(wait: LongWait) -> str:
    """Return one wait as a line of text."""
    subject = f"slow {', '.join(wait.nodes) or 'network'}"
    waiting = "the other workers" if wait.nodes else "all workers"
    if wait.seconds is None:
        return f"{subject}: {waiting} are waiting in step {wait.step}"
    outcome = ", then aborted the group" if wait.lost else ""
    return f"{subject}: {waiting} waited {wait.seconds:.1f} s in step {wait.step}{outcome}"


def slow_nodes_table(waits: Sequence[LongWait], training_start: float) -> Table:
    """Return one row for each wait.

    Args:
        waits: the waits.
        training_start: Unix time at which training started.
    """
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    table.add_column("at", justify="right")
    table.add_column("slow", no_wrap=True)
    table.add_column("others waited", justify="right")
    table.add_column("step", justify="right")
    for wait in waits:
        seconds = "..." if wait.seconds is None else f"{wait.seconds:.2f} s"
        outcome = Text(" group aborted" if wait.lost else "", style="red")
        names = Text.assemble((slow_node_names(wait), "yellow"), outcome)
        table.add_row(clock(wait.at - training_start), names, seconds, str(wait.step))
    return table
