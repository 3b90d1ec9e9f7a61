"""Reader of capacity traces in the format of skypilot-org/spot-traces.

    {"metadata": {"gap_seconds": 300}, "data": [16, 16, 0, ...]}

`data` has the available machines at each tick. One file describes one zone, named after the file; a file whose
`data` is a mapping of zone -> list describes several. A trace is refused if any value is missing or not a
number of machines: a plan on a repaired trace would use capacity that was never observed.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everstep.capacity.history import CapacityHistory
from everstep.errors import EverstepError

GAP_SECONDS = (1, 3600)
"""Shortest and longest tick accepted: a shorter one is in a wrong unit, a longer one hides whole outages."""

MAX_MACHINES = 100_000
"""Largest accepted count: a higher value is a timestamp, bytes or a price in another unit."""

FORMAT_HINT = (
    'Expected {"metadata": {"gap_seconds": 300}, "data": [16, 0, ...]}: machines at each tick.'
)


def read_traces(paths: Sequence[Path]) -> CapacityHistory:
    """Return the history of the zones in all files; the longer traces are cut to the shortest one.

    Raises:
        EverstepError: a file cannot be read or breaks a rule of the format, a zone occurs twice, or
            the files have ticks of different durations.
    """
    counts: dict[str, Sequence[int]] = {}
    gaps: dict[Path, float] = {}
    for path in paths:
        content = _content(path)
        gaps[path] = _gap_seconds(path, content)
        for zone, values in _zones(path, content).items():
            if zone in counts:
                raise EverstepError(
                    f"{path}: zone {zone!r} is already in an earlier file",
                    "Name each zone once: rename the file, or omit one of the two.",
                )
            counts[zone] = values
    if len(set(gaps.values())) > 1:
        intervals = ", ".join(f"{path} has {gap:g}" for path, gap in gaps.items())
        raise EverstepError(
            f"metadata.gap_seconds differs between the traces: {intervals}",
            "Use traces that were sampled at the same interval.",
        )
    ticks = min(len(values) for values in counts.values())
    rows = tuple(zip(*(values[:ticks] for values in counts.values()), strict=True))
    return CapacityHistory(tuple(counts), next(iter(gaps.values())), rows)


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise EverstepError(
            f"{path} cannot be read: {error.strerror}", "Name a readable trace file."
        ) from None
    except UnicodeDecodeError as error:
        raise EverstepError(f"{path} is not text: {error.reason}", FORMAT_HINT) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # ValueError: includes an integer with too many digits
        raise EverstepError(f"{path} is not JSON: {error}", FORMAT_HINT) from None
    if not isinstance(content, dict):
        raise EverstepError(f"{path} is a {type(content).__name__}, not an object", FORMAT_HINT)
    return content


def _gap_seconds(path: Path, content: dict[str, Any]) -> float:
    metadata = content.get("metadata")
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    lowest, highest = GAP_SECONDS
    if isinstance(gap, bool) or not isinstance(gap, int | float):
        raise EverstepError(
            f"{path}: metadata.gap_seconds is {_shortened(gap)}, not a number of seconds",
            FORMAT_HINT,
        )
    if not lowest <= gap <= highest:
        raise EverstepError(
            f"{path}: metadata.gap_seconds is {_shortened(gap)}, outside {lowest} to {highest}",
            "The unit is seconds between two samples; the published traces have 300.",
        )
    return float(gap)


def _zones(path: Path, content: dict[str, Any]) -> dict[str, Sequence[int]]:
    data = content.get("data")
    if isinstance(data, list):
        return {path.stem: _counts(path, "data", data)}
    if not isinstance(data, dict):
        raise EverstepError(f"{path}: data is {_shortened(data)}, not a list", FORMAT_HINT)
    if not data:
        raise EverstepError(f"{path}: data has no zone", FORMAT_HINT)
    return {zone: _counts(path, f"data.{zone}", values) for zone, values in data.items()}


def _counts(path: Path, field: str, values: object) -> Sequence[int]:
    if not isinstance(values, list):
        raise EverstepError(f"{path}: {field} is {_shortened(values)}, not a list", FORMAT_HINT)
    if not values:
        raise EverstepError(f"{path}: {field} is empty", "A trace has at least one tick.")
    for tick, value in enumerate(values):
        fault = _fault(value)
        if fault:
            raise EverstepError(
                f"{path}: {field}[{tick}] is {_shortened(value)}, {fault[0]}", fault[1]
            )
    return values


def _fault(value: object) -> tuple[str, str] | None:
    """Return the rule that a value breaks and the fix, or None."""
    if value is None:
        return "which is a gap", "Traces must be complete: use the part before or after the gap."
    if isinstance(value, bool) or not isinstance(value, int):
        return "not a whole number", "A value is a number of machines, such as 16, not a fraction."
    if value < 0:
        return "negative", "A value is a number of machines, 0 or more."
    if value > MAX_MACHINES:
        return f"more than {MAX_MACHINES}", "A value is a number of machines; check the unit."
    return None


def _shortened(value: object) -> str:
    text = json.dumps(value)  # as the file has it: null, not None
    return text if len(text) <= 40 else f"{text[:37]}..."
