"""Totals of a list of files."""

from typing import NamedTuple


class Totals(NamedTuple):
    """Number of files, and their bytes."""

    files: int = 0
    bytes: int = 0
