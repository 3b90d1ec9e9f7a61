"""Content of the page, from a run's record: a pure function, so every case is testable without a browser."""

from collections.abc import Mapping
from dataclasses import dataclass

from everstep.cli.report import report as reports
from everstep.cli.report.goodput import counted_steps
from everstep.cli.report.incidents import Incident, incidents
from everstep.cli.report.money import Billing, Money, cost_of_run
from everstep.cli.report.page.chart import Point
from everstep.cli.report.report import Report
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.status import Status, display_end, status_of
from everstep.cli.report.timeline import NodeState, NodeTimeline, node_timelines, span


@dataclass(frozen=True)
class Lane:
    """One node's row of the timeline, with its seconds in each state."""

    timeline: NodeTimeline
    seconds: Mapping[NodeState, float]


@dataclass(frozen=True)
class ReportPage:
    """Everything that the page shows; times in Unix seconds.

    Attributes:
        report: the figures of `everstep report`.
        status: state of the training.
        now: time at which the page was rendered.
        start: start of the timeline.
        end: its end.
        lanes: the nodes' rows.
        pauses: spans without a step, from the last step of a group to the first of the next.
        steps: completed steps that count, by time.
        losses: loss of each step that has one.
        evaluations: accuracy of each evaluation.
        incidents: incidents, by time.
        money: cost; None if nothing is known about it.
        last_entry: time of the last journal entry; None if there is none.
    """

    report: Report
    status: Status
    now: float
    start: float
    end: float
    lanes: tuple[Lane, ...]
    pauses: tuple[tuple[float, float], ...]
    steps: tuple[Point, ...]
    losses: tuple[Point, ...]
    evaluations: tuple[Point, ...]
    incidents: tuple[Incident, ...]
    money: Money | None
    last_entry: float | None

    @property
    def seconds(self) -> float:
        """Length of the timeline."""
        return max(self.end - self.start, 0.0)


def build_page(run: RunRecord, now: float, billing: Billing | None = None) -> ReportPage:
    """Return the content of the page.

    Args:
        run: the run, which may be empty, unfinished or have stopped.
        now: Unix time of the report.
        billing: billing of the run; None if unknown.
    """
    report = reports.build(run)
    shown_until = display_end(run, now)
    start, end = span(run, shown_until)
    return ReportPage(
        report=report,
        status=status_of(run, now),
        now=now,
        start=start,
        end=end,
        lanes=tuple(_lane(timeline) for timeline in node_timelines(run, shown_until)),
        pauses=tuple((last.at, first.at) for last, first in run.pauses),
        steps=_steps(run),
        losses=tuple((step.at, step.loss) for step in run.steps if step.loss is not None),
        evaluations=_evaluations(run),
        incidents=incidents(run, report.events, report.moves, report.slow_nodes),
        money=cost_of_run(run, now, billing) if billing and run.starts else None,
        last_entry=run.entries[-1].at if run.entries else None,
    )


def _lane(timeline: NodeTimeline) -> Lane:
    seconds = dict.fromkeys(NodeState, 0.0)
    for piece in timeline.segments:
        seconds[piece.state] += piece.end - piece.start
    return Lane(timeline, seconds)


def _steps(run: RunRecord) -> tuple[Point, ...]:
    return tuple((step.at, float(step.step)) for step in counted_steps(run.steps))


def _evaluations(run: RunRecord) -> tuple[Point, ...]:
    accuracies = ((entry.at, entry.measure("accuracy")) for entry in run.of_kind("evaluation"))
    return tuple((time, accuracy) for time, accuracy in accuracies if accuracy is not None)
