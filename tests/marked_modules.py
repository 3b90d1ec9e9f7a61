"""Modules without the marker that a run asks for, which need no import: `-m twin` selects 600 of 10,000 tests.

To import all of them takes 25 s of CPU time. A run without such a choice, as `make test-unit` is, imports all
modules and ends with an error if a test has a marker that would not be found here.
"""

import functools
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MARKERS = frozenset({"twin", "e2e", "browser", "gpu"})


def can_be_ignored(module: Path, expression: str) -> bool:
    """Return True if an expression is the name of one marker and no test of a module can have it."""
    if expression not in MARKERS:
        return False
    conftests = [folder / "conftest.py" for folder in module.parents if folder.is_relative_to(ROOT)]
    return not any(_names_marker(path, expression) for path in (module, *conftests))


def check_markers(items: Iterable[pytest.Item]) -> None:
    """Check that the modules of all marked tests are found.

    Raises:
        pytest.UsageError: a test has a marker that neither its module nor a `conftest.py` of its folders names.
    """
    marks = {(item.path, mark.name) for item in items for mark in item.iter_markers()}
    for path, marker in sorted(marks):
        if can_be_ignored(path, marker):
            message = f"{path}: name the marker in this module: `-m {marker}` would not import it"
            raise pytest.UsageError(message)


@functools.cache
def _names_marker(module: Path, marker: str) -> bool:
    return module.is_file() and f"mark.{marker}" in module.read_text()
