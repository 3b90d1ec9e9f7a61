"""Modules without the marker that a run asks for, which need no import: `-m twin` selects 600 of 10,000 tests.

To import all of them takes 25 s of CPU time. A run without such a choice, as `make test-unit` is, imports all
modules and ends with an error if a test has a marker that would not be found here.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MARKERS = frozenset({"twin", "e2e", "browser", "gpu"})
IMPORT = re.compile(
    r"^(?:from|import) ((?:twin\.)?tests(?:\.\w+)*)(?: import (\([^)]*\)|[^\n]*))?", re.MULTILINE
)


def can_be_ignored(module: Path, expression: str) -> bool:
    """Return True if an expression is the name of one marker and no test of a module can have it."""
    return expression in MARKERS and not may_have_marker(module, expression)


def may_have_marker(module: Path, marker: str) -> bool:
    """Return True if a module, a module that it imports or the `conftest.py` of one of its folders names a marker."""
    conftests = [folder / "conftest.py" for folder in module.parents if folder.is_relative_to(ROOT)]
    return any(marker in _markers_named_from(path) for path in (module, *conftests))


def check_markers(items: Iterable[pytest.Item]) -> None:
    """Check that the modules of all marked tests are found.

    Raises:
        pytest.UsageError: If a test has a marker that its module does not name.
    """
    for path, marker in sorted(
        {(item.path, mark.name) for item in items for mark in item.iter_markers()}
    ):
        if can_be_ignored(path, marker):
            message = f"{path}: name the marker in this module: `-m {marker}` would not import it"
            raise pytest.UsageError(message)


def _markers_named_from(module: Path) -> frozenset[str]:
    """Return the markers that are named in a module or in modules of tests that it imports."""
    seen: set[Path] = set()
    pending = [module]
    markers: set[str] = set()
    while pending:
        path = pending.pop()
        if path not in seen:
            seen.add(path)
            named, imported = _read(path)
            markers |= named
            pending += imported
    return frozenset(markers)


@functools.cache
def _read(module: Path) -> tuple[frozenset[str], tuple[Path, ...]]:
    """Return the markers that the text of a module names, and the modules of tests that it imports."""
    if not module.is_file():
        return frozenset(), ()
    text = module.read_text()
    named = frozenset(re.findall(r"\bmark\.(\w+)", text)) & MARKERS
    return named, tuple(_imported(text))


def _imported(text: str) -> Iterator[Path]:
    for package, names in IMPORT.findall(text):
        folder = ROOT.joinpath(*package.split("."))
        yield folder.with_suffix(".py")
        yield from (folder / f"{name}.py" for name in re.findall(r"\w+", names))
