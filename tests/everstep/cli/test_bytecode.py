"""Bytecode is written to the cache if Python may not write it next to the sources."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import subprocess, sys
from everstep.cli import bytecode
bytecode.keep()
import probe_parent
subprocess.run([sys.executable, "-c", "import probe_child"], check=True)
"""


def compiled_modules(folder: Path) -> set[str]:
    return {path.name.partition(".")[0] for path in folder.rglob("probe_*.pyc")}


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in ("probe_parent", "probe_child"):
        (folder / f"{name}.py").touch()
    return folder


def run(modules: Path, **variables: str) -> None:
    variables |= {"PYTHONPATH": str(modules), "CLOUDTWIN_CACHE": str(modules.parent / "cache")}
    subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **variables}, check=True)


def test_bytecode_is_cached_if_it_may_not_be_next_to_the_sources(modules: Path) -> None:
    run(modules, PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX="")

    assert compiled_modules(modules.parent / "cache") == {"probe_parent", "probe_child"}
    assert not compiled_modules(modules), "nothing may be written next to the sources"


def test_the_default_location_of_bytecode_is_kept(modules: Path) -> None:
    run(modules, PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX="")

    assert compiled_modules(modules) == {"probe_parent", "probe_child"}
    assert not (modules.parent / "cache").exists()
