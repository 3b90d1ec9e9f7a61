"""The lines of a run's journals, and the steps in them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from everstep.cli.report.run_record import JournalEntry, without_copies
from everstep.elastic.accounting import journal


class JournalReader:
    """Reader of a growing journal folder that parses each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parsed_bytes: dict[Path, int] = {}  # by file
        self._entries: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """Return the lines of all files so far, ordered by time, each with the stem of its file's name as `file`.

        A last line without a newline is skipped: it is still being written, or torn.
        """
        new_entries = [
            {**entry, "file": path.stem}
            for path in sorted(self._folder.glob("*.jsonl"))
            for entry in journal.parse(self._new_lines(path))
        ]
        if new_entries:
            self._entries = sorted(
                [*self._entries, *new_entries], key=lambda entry: float(entry["at"])
            )
        return self._entries

    def _new_lines(self, path: Path) -> str:
        with path.open("rb") as file:
            file.seek(self._parsed_bytes.get(path, 0))
            complete, newline, _ = file.read().rpartition(b"\n")
        self._parsed_bytes[path] = self._parsed_bytes.get(path, 0) + len(complete) + len(newline)
        return complete.decode(errors="replace")


def completed_steps(lines: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return the steps of these lines in order; a step that the group computed twice appears twice."""
    entries = [JournalEntry(0.0, "step", "", line) for line in lines]
    return sorted(entry.number("step") for entry in without_copies(entries))
