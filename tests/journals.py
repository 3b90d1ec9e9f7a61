"""What a run's journals record, as tests judge it."""

from collections.abc import Iterable, Mapping
from typing import Any


def completed_steps(entries: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return the steps of these lines in order; a step that the group computed twice is there twice.

    A new rank 0 records the last step again, marked `again`, because the former one may have been killed before
    it recorded it. Such a line counts only if the former rank 0 did not.
    """
    entries = list(entries)
    recorded_steps = [entry["step"] for entry in entries if not entry.get("again")]
    taken_over_steps = {entry["step"] for entry in entries if entry.get("again")}
    return sorted([*recorded_steps, *(taken_over_steps - set(recorded_steps))])
