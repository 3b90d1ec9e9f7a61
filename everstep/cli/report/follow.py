"""Live view of a training run until its job ends: drawn on a terminal, otherwise as lines.

The files of the run show the training, the cluster shows the job. They are polled at different intervals. A
cluster that does not respond for a while does not end the view, since its own machines may vanish.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from everstep.catalog.names import DATA_PREPARATION, NAME_LABEL
from everstep.catalog.plurals import amount
from everstep.cli.console import messages, say
from everstep.cli.durations import clock
from everstep.cli.kubernetes_client import (
    ClusterUnreachableError,
    Condition,
    KubernetesClient,
    PodView,
)
from everstep.cli.report import report as reports
from everstep.cli.report.eta import RECENT_STEPS, remaining_seconds
from everstep.cli.report.incidents import capacity_incidents
from everstep.cli.report.job_state import job_state
from everstep.cli.report.machines import MachineLog
from everstep.cli.report.money import Billing, cost_of_run, cost_so_far
from everstep.cli.report.move_screen import move_sentence
from everstep.cli.report.moves import MoveLog
from everstep.cli.report.readers import RunReader
from everstep.cli.report.report import Report
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.screens import (
    follow_screen,
    incident_sentence,
    recent_throughput,
    time_left,
)
from everstep.cli.report.stalls import slow_node_sentence
from everstep.errors import EverstepError

DRAW_SECONDS = 0.5
REQUEST_SECONDS = 2.0
"""Interval of requests to the API server."""

LINE_SECONDS = 10.0
"""Interval of progress lines without a terminal."""

UNREACHABLE_SECONDS = 60.0
"""Time without a response, or without the job, after which following ends with an error."""


class JobOutcome(StrEnum):
    """The end of a job: success or failure."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass
class JobMonitor:
    """The job's conditions and pods, requested from the cluster at intervals."""

    cluster: KubernetesClient
    job: str
    machines: MachineLog | None = None  # records the observed machines
    moves: MoveLog | None = None  # records the observed moves between zones
    conditions: tuple[Condition, ...] = ()
    pods: tuple[PodView, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    preparation: str = ""  # newest line in the log of the data preparation, while it runs
    _requested_at: float = 0.0
    _responded_at: float = field(default_factory=time.monotonic)
    _present_at: float | None = None  # when the job last had a status

    def refresh(self) -> None:
        """Request conditions and pods again once the interval has passed.

        Raises:
            EverstepError: the cluster has not responded for UNREACHABLE_SECONDS, or the job was deleted.
        """
        now = time.monotonic()
        if now - self._requested_at < REQUEST_SECONDS:
            return
        self._requested_at = now
        try:
            view = self.cluster.view(self.job)
            self.preparation = self._progress_of_preparation(view.pods)
        except EverstepError:
            if now - self._responded_at > UNREACHABLE_SECONDS:
                raise
            return
        self._responded_at = time.monotonic()
        self._check_presence(view.status)
        self.conditions, self.pods, self.status = view.conditions, view.pods, view.status
        if self.machines:
            self.machines.add(view.nodes)
        if self.moves:
            self.moves.add(view.status)

    def _check_presence(self, status: Mapping[str, Any]) -> None:
        """Raise an error if the job had a status and has had none for UNREACHABLE_SECONDS."""
        if status:
            self._present_at = self._responded_at
        elif self._present_at and self._responded_at - self._present_at > UNREACHABLE_SECONDS:
            raise EverstepError(
                f"the job {self.job} was deleted while it was followed",
                "`everstep pulumi up --refresh` creates it again.",
            )

    def _progress_of_preparation(self, pods: Sequence[PodView]) -> str:
        for pod in pods:
            if pod.labels.get(NAME_LABEL) == DATA_PREPARATION and pod.phase == "Running":
                return self.cluster.newest_line(pod.name)
        return ""

    def outcome(self) -> JobOutcome | None:
        """Return the end of the job; None before it."""
        kinds = {condition.type for condition in self.conditions}
        return next((outcome for outcome in JobOutcome if outcome in kinds), None)

    def failure(self) -> EverstepError | None:
        """Return the error of a failed job; None if it has not failed."""
        if self.outcome() is not JobOutcome.FAILED:
            return None
        condition = next(item for item in self.conditions if item.type == JobOutcome.FAILED)
        return EverstepError(
            f"the job {self.job} failed: {condition.reason or 'no reason given'}",
            f"{condition.message}\n`everstep status` shows its pods.".strip(),
        )

    def waiting_for(self) -> str:
        """Return what the first step is waiting for."""
        if self.preparation:
            return f"the data set, {self.preparation}"
        pending = [
            f"{pod.name} {pod.phase}"
            for pod in self.pods
            if not pod.ready and pod.phase != "Succeeded"  # the completed data preparation
        ]
        if pending:
            return ", ".join(pending)
        if not self.conditions:
            return f"the job {self.job}, which does not exist, or which the controller has not reported on yet"
        return "the workers are loading"


def follow(
    reader: RunReader,
    monitor: JobMonitor,
    drill: Callable[[RunRecord], str] | None = None,
    billing: Billing | None = None,
) -> JobOutcome:
    """Show the training until the job ends, and return its outcome.

    Args:
        reader: reader of the run's files.
        monitor: monitor of the job.
        drill: function that is called with the run record after each reading and returns a note to show.
        billing: billing of the run; None shows no cost.

    Raises:
        EverstepError: the cluster is unreachable, or the job was deleted.
        KeyboardInterrupt: the user leaves the view; the training continues.
    """
    view = _Screen(billing) if messages.is_terminal else _Lines(billing)
    with view:
        run = reader.read()
        while True:
            monitor.refresh()
            note = drill(run) if drill else ""
            view.show(run, monitor, note)
            if (outcome := monitor.outcome()) is not None:
                return outcome
            time.sleep(DRAW_SECONDS)
            run = _newer_reading(reader, run)


def _newer_reading(reader: RunReader, run: RunRecord) -> RunRecord:
    """Return the run so far; its last reading if the cluster does not respond, since the monitor limits that time."""
    try:
        return reader.read()
    except ClusterUnreachableError:
        return run


class _Screen:
    """The live view."""

    def __init__(self, billing: Billing | None) -> None:
        self._billing = billing
        self._live = Live(console=messages, auto_refresh=False, transient=True)

    def __enter__(self) -> "_Screen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, run: RunRecord, monitor: JobMonitor, note: str) -> None:
        """Draw the current state."""
        now, width = time.time(), messages.width
        parts: list[RenderableType] = [Text()]
        if run.steps:
            cost = _cost(run, now, self._billing)
            state = job_state(monitor.status)
            parts.append(follow_screen(reports.build(run), run, now, width, cost, state))
        else:
            parts.append(Text(f"waiting for the first step: {monitor.waiting_for()}"))
        if note:
            parts += [Text(), Text.assemble(("drill  ", "bright_black"), note)]
        parts.append(
            Text("\nCtrl-C leaves the view; the training continues.", style="bright_black")
        )
        self._live.update(Group(*parts), refresh=True)


class _Lines:
    """The view as lines: one at each interval, and one for each event."""

    def __init__(self, billing: Billing | None) -> None:
        self._billing = billing
        self._printed_at = 0.0
        self._lines: set[str] = set()
        self._state: dict[str, str] = {}
        self._note = ""
        self._workers = 0

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, run: RunRecord, monitor: JobMonitor, note: str) -> None:
        """Print new events and, at intervals, progress."""
        report = reports.build(run)
        for incident in capacity_incidents(run, report.events):
            time_text = clock(incident.at - (report.started_at or 0))
            self._say_once(f"{time_text}  {incident_sentence(incident)}")
        for move in report.moves:
            self._say_once(f"{clock(move.began - (report.started_at or 0))}  {move_sentence(move)}")
        for wait in report.slow_nodes:
            time_text = clock(wait.at - (report.started_at or 0))
            self._say_once(f"{time_text}  {slow_node_sentence(wait)}")
        for name, value in job_state(monitor.status):
            self._say_if_changed(name, value)
        if note and note != self._note:
            say(f"drill: {note}")
        self._note = note
        if run.steps and run.steps[-1].world_size != self._workers:
            self._workers = run.steps[-1].world_size
            say(
                f"{clock(report.duration_seconds)}  training with {amount(self._workers, 'worker')}"
            )
        if time.monotonic() - self._printed_at >= LINE_SECONDS:
            self._printed_at = time.monotonic()
            cost = _cost(run, time.time(), self._billing)
            waiting = f"waiting: {monitor.waiting_for()}"
            say(progress_line(report, run, cost) if run.steps else waiting)

    def _say_if_changed(self, name: str, value: str) -> None:
        if self._state.get(name) != value:
            self._state[name] = value
            say(f"{name}: {value}")

    def _say_once(self, line: str) -> None:
        if line not in self._lines:
            self._lines.add(line)
            say(line)


def _cost(run: RunRecord, now: float, billing: Billing | None) -> str:
    return cost_so_far(cost_of_run(run, now, billing)) if billing else ""


def progress_line(report: Report, run: RunRecord, cost: str = "") -> str:
    """Return the progress of the training as one line; `cost` is its cost so far as text."""
    newest = run.steps[-1]
    rate = recent_throughput(run.steps[-RECENT_STEPS:])
    parts = [
        clock(report.duration_seconds),
        f"step {newest.step}/{report.total_steps or '?'}",
        amount(newest.world_size, "worker"),
    ]
    if newest.loss is not None:
        parts.append(f"loss {newest.loss:.3f}")
    if rate is not None:
        parts.append(f"{rate:,.0f} images/s")
    if report.accuracy is not None:
        parts.append(f"accuracy {report.accuracy:.4f}")
    parts += [f"{time_left(run)} left"] if remaining_seconds(run) else []
    parts += [cost] if cost else []
    return "  ".join(parts)
