"""Copy of a data set to the volume before its preparation, with progress in the log of the pod and as metrics.

The copy continues where an earlier attempt ended. `everstep follow` shows the newest line of the log while the job
waits for its data.
"""

import time
from pathlib import Path

from everstep.catalog.plurals import amount
from everstep.progress import Progress as Display
from everstep.progress import Step
from everstep.staging.copier import CopyProgress
from everstep.staging.sources.location import open_source
from everstep.staging.stage import Observer, Options, StagingPlan
from everstep.staging.stage import stage as copy
from trainer.staging_metrics import StagingMetrics, serve_if_configured

SECONDS_BETWEEN_MESSAGES = 5.0
GIGABYTE = 1e9


class ProgressReporter(Observer):
    """Reports of the progress of a staging run: messages, at most one every few seconds, and metrics.

    Args:
        step: step that shows the messages.
        metrics: metrics, which every report updates.
    """

    def __init__(self, step: Step, metrics: StagingMetrics) -> None:
        self._step, self._metrics = step, metrics
        self._last_message_at = float("-inf")
        self._files = self._bytes = 0

    def report_listing(self, files: int) -> None:
        """Record the number of files listed so far."""
        self._metrics.report_listing(files)
        self._note(f"listing the source: {amount(files, 'file')}")

    def report_plan(self, plan: StagingPlan) -> None:
        """Record the plan."""
        self._metrics.report_plan(plan)
        self._files = plan.to_copy.files + plan.to_check.files
        self._bytes = plan.to_copy.bytes + plan.to_check.bytes
        free = plan.free_bytes / GIGABYTE
        self._step.note(
            f"{_amount(self._files, self._bytes)} to copy, {plan.complete.files:,} complete, {free:.1f} GB free"
        )

    def report_progress(self, progress: CopyProgress) -> None:
        """Record the progress."""
        self._metrics.report_progress(progress)
        share = progress.bytes / self._bytes if self._bytes else 1.0
        self._note(
            f"{_amount(progress.files, progress.bytes)} of {_amount(self._files, self._bytes)}: {share:.0%}"
        )

    def _note(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last_message_at >= SECONDS_BETWEEN_MESSAGES:
            self._last_message_at = now
            self._step.note(text)


def stage(location: str, folder: Path, display: Display) -> None:
    """Make a folder a copy of a source: copy what is missing, and remove files that the source no longer has.

    Raises:
        EverstepError: the source cannot be read, a file is damaged, or the volume is too small.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    metrics = StagingMetrics()
    with serve_if_configured(metrics), display.step(f"Staging {location} to {folder}") as step:
        copy(open_source(location), folder, Options(removes=True), ProgressReporter(step, metrics))


def _amount(files: int, size: int) -> str:
    return f"{amount(files, 'file')}, {size / GIGABYTE:.2f} GB"
