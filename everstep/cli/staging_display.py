"""The progress of `everstep data stage`: a bar on a terminal, lines in a log, JSON for programs."""

import json
import sys
import time
from types import TracebackType
from typing import Self

from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bar

from everstep.catalog.plurals import amount
from everstep.cli.console import messages, results
from everstep.staging.copier import CopyProgress
from everstep.staging.stage import Observer, StagingPlan
from everstep.staging.totals import Totals

SECONDS_BETWEEN_LINES = 10.0


class Display(Observer):
    """A display that is open for the duration of a run."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the display."""

    def report_end(self, plan: StagingPlan) -> None:
        """Show that the run ended."""
        messages.print(f"[green]✓[/] {describe(plan.listed)} are complete", highlight=False)


class JsonLines(Display):
    """One JSON object per line on standard output; the key `event` states its kind."""

    def report_listing(self, files: int) -> None:
        """Print the number of files listed so far."""
        _print_event("listing", files=files)

    def report_plan(self, plan: StagingPlan) -> None:
        """Print the plan."""
        _print_event("plan", **plan_value(plan))

    def report_progress(self, progress: CopyProgress) -> None:
        """Print the progress."""
        failures = len(progress.failures)
        _print_event("progress", files=progress.files, bytes=progress.bytes, failures=failures)

    def report_end(self, plan: StagingPlan) -> None:
        """Print the totals of the data set."""
        _print_event("done", **plan.listed._asdict())


class LogLines(Display):
    """A line every few seconds on standard error."""

    _printed_at = 0.0
    _total = Totals()

    def report_plan(self, plan: StagingPlan) -> None:
        """Print the plan."""
        self._total = read_totals(plan)
        messages.print(plan_text(plan), markup=False)

    def report_progress(self, progress: CopyProgress) -> None:
        """Print the progress, unless the last line is recent."""
        if time.monotonic() - self._printed_at < SECONDS_BETWEEN_LINES:
            return
        self._printed_at = time.monotonic()
        progress_text = describe(Totals(progress.files, progress.bytes))
        messages.print(f"      {progress_text} of {describe(self._total)}", markup=False)


class TerminalBar(Display):
    """A progress bar on standard error."""

    def __init__(self) -> None:
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=messages,
            transient=True,
        )
        self._task = self._bar.add_task("listing the source", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the bar."""
        self._bar.stop()

    def report_listing(self, files: int) -> None:
        """Show the number of files listed so far."""
        self._bar.update(self._task, description=f"listing the source: {amount(files, 'file')}")

    def report_plan(self, plan: StagingPlan) -> None:
        """Print the plan and begin the bar."""
        self._bar.print(plan_text(plan))
        self._bar.update(self._task, total=read_totals(plan).bytes, description="copying")

    def report_progress(self, progress: CopyProgress) -> None:
        """Move the bar."""
        failed = f", {len(progress.failures)} failed" if progress.failures else ""
        description = f"copying: {amount(progress.files, 'file')}{failed}"
        self._bar.update(self._task, completed=progress.bytes, description=description)


def display() -> Display:
    """Return the display for standard error."""
    return TerminalBar() if messages.is_terminal else LogLines()


def read_totals(plan: StagingPlan) -> Totals:
    """Return the number and the size of the files that a run reads."""
    return Totals(
        plan.to_copy.files + plan.to_check.files, plan.to_copy.bytes + plan.to_check.bytes
    )


def describe(totals: Totals) -> str:
    """Return totals as text."""
    return f"{amount(totals.files, 'file')}, {decimal(totals.bytes)}"


def plan_text(plan: StagingPlan) -> str:
    """Return a plan as lines of text."""
    parts = {"to copy": plan.to_copy, "to compare": plan.to_check, "complete": plan.complete}
    lines = [f"  {name:10}  {describe(totals)}" for name, totals in parts.items() if totals.files]
    free = f"  {'free space':10}  {decimal(plan.free_bytes)}"
    return "\n".join([f"{describe(plan.listed)} in the source", *lines, free])


def plan_value(plan: StagingPlan) -> dict[str, object]:
    """Return a plan as plain values."""
    totals = {
        "listed": plan.listed,
        "to_copy": plan.to_copy,
        "to_check": plan.to_check,
        "complete": plan.complete,
    }
    values = {name: total._asdict() for name, total in totals.items()}
    return {**values, "free_bytes": plan.free_bytes, "reasons": plan.reasons}


def _print_event(event: str, **values: object) -> None:
    results.print(json.dumps({"event": event, **values}), markup=False)
    sys.stdout.flush()
