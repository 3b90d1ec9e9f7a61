"""Where Python is told to keep no bytecode beside the sources, Everstep keeps it elsewhere."""

import os
import subprocess
import sys

import pytest

PARENT = """
import subprocess, sys
from everstep.cli import bytecode
bytecode.keep()
import probe_of_ours
subprocess.run([sys.executable, "-c", "import probe_of_a_child"], check=True)
"""


def compiled_in(folder) -> set[str]:
    return {path.name.partition(".")[0] for path in folder.rglob("probe_*.pyc")}


@pytest.fixture
def modules(tmp_path):
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in ("probe_of_ours", "probe_of_a_child"):
        (folder / f"{name}.py").touch()
    return folder


def run(modules, **variables: str) -> None:
    variables |= {"PYTHONPATH": str(modules), "XDG_CACHE_HOME": str(modules.parent / "cache")}
    subprocess.run([sys.executable, "-c", PARENT], env={**os.environ, **variables}, check=True)


def test_what_is_not_to_lie_beside_the_sources_is_compiled_once_all_the_same(modules):
    run(modules, PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX="")

    assert compiled_in(modules.parent / "cache") == {"probe_of_ours", "probe_of_a_child"}
    assert not compiled_in(modules), "nothing is to be written beside the sources"


def test_where_python_keeps_bytecode_by_itself_nothing_is_changed(modules):
    run(modules, PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX="")

    assert compiled_in(modules) == {"probe_of_ours", "probe_of_a_child"}
    assert not (modules.parent / "cache").exists()
