"""State of a training run as a whole, for the terminal and the page."""

from enum import StrEnum

from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.timeline import stalled_since

SILENT_SECONDS = 120.0
"""Time without a journal entry after which an unfinished training counts as stopped."""


class Status(StrEnum):
    """State of a training run as a whole."""

    NOT_STARTED = "not started"
    TRAINING = "training"
    REGROUPING = "regrouping"
    STOPPED = "stopped"
    FINISHED = "finished"


def status_of(run: RunRecord, now: float) -> Status:
    """Return the state of a run at a Unix time."""
    if run.finished or run.result:
        return Status.FINISHED
    if not run.starts:
        return Status.NOT_STARTED
    if now - run.entries[-1].at > SILENT_SECONDS:
        return Status.STOPPED
    return Status.TRAINING if stalled_since(run) is None else Status.REGROUPING


def display_end(run: RunRecord, now: float) -> float:
    """Return the Unix time at which the timeline ends: a run that has stopped ends with its last entry."""
    return run.entries[-1].at if status_of(run, now) is Status.STOPPED else now
