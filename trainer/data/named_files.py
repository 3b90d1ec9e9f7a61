"""Names of files in an error message."""

from collections.abc import Sequence

MAX_NAMED_FILES = 20  # limit of an error message


def named_files(files: Sequence[str]) -> str:
    """Return the first files, one per line, and the number of the others."""
    unnamed = len(files) - MAX_NAMED_FILES
    ending = f"\n  and {unnamed} more" if unnamed > 0 else ""
    return "\n  ".join(["", *files[:MAX_NAMED_FILES]]) + ending
