"""Follow a training until its job ends: drawn on a terminal, line by line elsewhere.

The files of the run say what the training did, the cluster says how the job stands. The two are
polled at different paces, and a cluster that does not answer for a while does not end the view:
the machines it runs on are the ones being taken away.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from everstep.cli import report as reports
from everstep.cli.cluster import Cluster, Condition, PodView
from everstep.cli.console import people, say
from everstep.cli.report import Report
from everstep.cli.run import Run
from everstep.cli.screen import clock, event_sentence, follow_screen, recent_throughput
from everstep.cli.sources import Source
from everstep.errors import EverstepError

DRAW_SECONDS = 0.5
ASK_SECONDS = 2.0
"""How often the API server is asked."""

LINE_SECONDS = 10.0
"""How often a line is printed where there is no terminal."""

SILENT_SECONDS = 60.0
"""After so long without an answer the cluster is given up."""


class Outcome(StrEnum):
    """How a job ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass
class JobWatch:
    """What the cluster says about the job, asked now and then."""

    cluster: Cluster
    job: str
    conditions: tuple[Condition, ...] = ()
    pods: tuple[PodView, ...] = ()
    _asked: float = 0.0
    _answered: float = field(default_factory=time.monotonic)

    def refresh(self) -> None:
        """Ask again if it is time to.

        Raises:
            EverstepError: the cluster has not answered for a minute.
        """
        now = time.monotonic()
        if now - self._asked < ASK_SECONDS:
            return
        self._asked = now
        try:
            view = self.cluster.view(self.job)
        except EverstepError:
            if now - self._answered > SILENT_SECONDS:
                raise
            return
        self._answered = time.monotonic()
        self.conditions, self.pods = view.conditions, view.pods

    def outcome(self) -> Outcome | None:
        """How the job ended, None while it has not."""
        kinds = {condition.type for condition in self.conditions}
        return next((outcome for outcome in Outcome if outcome in kinds), None)

    def waiting_for(self) -> str:
        """What stands between now and the first step."""
        coming = [
            f"{pod.name} {pod.phase}"
            for pod in self.pods
            if not pod.ready and pod.phase != "Succeeded"  # the data preparation is done
        ]
        return ", ".join(coming) or "the workers are loading"


def follow(source: Source, watch: JobWatch, drill: Callable[[Run], str] | None = None) -> Outcome:
    """Show the training until the job ends; `drill` is called with the run and says what it is at.

    Raises:
        EverstepError: the cluster is gone.
        KeyboardInterrupt: the person has seen enough; the training goes on.
    """
    view = _Screen() if people.is_terminal else _Lines()
    with view:
        while True:
            run = source.read()
            watch.refresh()
            note = drill(run) if drill else ""
            view.show(run, watch, note)
            if (outcome := watch.outcome()) is not None:
                return outcome
            time.sleep(DRAW_SECONDS)


class _Screen:
    """The live view."""

    def __init__(self) -> None:
        self._live = Live(console=people, auto_refresh=False, transient=True)

    def __enter__(self) -> "_Screen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, run: Run, watch: JobWatch, note: str) -> None:
        """Draw everything anew."""
        now, width = time.time(), people.width
        parts: list[RenderableType] = [Text()]
        if run.steps:
            parts.append(follow_screen(reports.build(run), run, now, width))
        else:
            parts.append(Text(f"waiting for the first step: {watch.waiting_for()}"))
        if note:
            parts += [Text(), Text.assemble(("drill  ", "bright_black"), note)]
        parts.append(Text("\nCtrl-C leaves the view; the training goes on.", style="bright_black"))
        self._live.update(Group(*parts), refresh=True)


class _Lines:
    """The same as lines: one now and then, and one whenever something happens."""

    def __init__(self) -> None:
        self._printed = 0.0
        self._said: set[str] = set()
        self._note = ""
        self._workers = 0

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, run: Run, watch: JobWatch, note: str) -> None:
        """Print what is new."""
        report = reports.build(run)
        for event in report.events:
            self._once(f"{clock(event.at - (report.started_at or 0))}  {event_sentence(event)}")
        if note != self._note:
            self._note = note
            say(f"drill: {note}") if note else None
        if run.steps and run.steps[-1].world_size != self._workers:
            self._workers = run.steps[-1].world_size
            say(f"{clock(report.duration_seconds)}  {self._workers} workers train")
        if time.monotonic() - self._printed >= LINE_SECONDS:
            self._printed = time.monotonic()
            say(progress_line(report, run) if run.steps else f"waiting: {watch.waiting_for()}")

    def _once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            say(line)


def progress_line(report: Report, run: Run) -> str:
    """Where the training is, as one line."""
    newest = run.steps[-1]
    rate = recent_throughput(run.steps[-20:])
    parts = [
        clock(report.duration_seconds),
        f"step {newest.step}/{report.total_steps or '?'}",
        f"{newest.world_size} workers",
    ]
    if newest.loss is not None:
        parts.append(f"loss {newest.loss:.3f}")
    if rate is not None:
        parts.append(f"{rate:,.0f} images/s")
    if report.accuracy is not None:
        parts.append(f"accuracy {report.accuracy:.4f}")
    return "  ".join(parts)
