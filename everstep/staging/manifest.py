"""The manifest: SHA-256 of each file, as `sha256sum --check` reads it."""

from collections.abc import Iterable
from pathlib import Path

from everstep.staging import spool
from everstep.staging.entry import Record

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r"})


def line_of(record: Record) -> str:
    """Return the line of a file; as in the output of sha256sum, a leading backslash marks an escaped name."""
    escaped = record.name.translate(_ESCAPES)
    mark = "\\" if escaped != record.name else ""
    return f"{mark}{record.sha256}  {escaped}\n"


def write(path: Path, temporary: Path, records: Iterable[Record]) -> None:
    """Write a manifest so that it appears completely or not at all."""
    with temporary.open("w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(map(line_of, records))
        spool.sync(file)
    temporary.replace(path)
