"""Configuration of all tests: the cache of builds, the state folder, garbage collections, the choice of modules."""

import atexit
import gc
import sys
from pathlib import Path

import pytest

from everstep.cli.twin_settings import configure_twin
from tests import marked_modules

pytest_plugins = ["twin.tests.control_plane"]

configure_twin()

# By default, Python searches for cycles after 700 new objects; with the classes of the clouds' SDKs, that was a
# quarter of the CPU time of the tests that declare stacks. The price is 30 MB of memory in each process.
gc.set_threshold(20_000, 20, 100)


@atexit.register
def freeze_objects() -> None:
    """Spare the interpreter its last search for cycles, which takes seconds with the classes of the clouds' SDKs.

    Not with triton, which would report all its classes as leaks.
    """
    if "triton" not in sys.modules:
        gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module that has no test with the marker of `-m`."""
    expression = config.option.markexpr
    is_module = collection_path.suffix == ".py"
    return (is_module and marked_modules.can_be_ignored(collection_path, expression)) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check that each marker can be found without an import; the markers of other `conftest.py` are added before."""
    marked_modules.check_markers(items)
