"""Completed steps in the journals of a run."""

from collections.abc import Iterable, Mapping
from typing import Any

from everstep.cli.report.run_record import JournalEntry, without_copies


def completed_steps(lines: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return the steps of these lines in order; a step that the group computed twice appears twice."""
    entries = [JournalEntry(0.0, "step", "", line) for line in lines]
    return sorted(entry.number("step") for entry in without_copies(entries))
