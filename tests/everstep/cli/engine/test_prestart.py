"""Modules that a prestarted program imports early: the Pulumi program imports each of them anyway."""

import ast
import importlib.util
from pathlib import Path

import pytest

from everstep.cli.engine.prestart import ENVIRONMENT_MODULES, PROGRAM_MODULES

PROJECT = Path(__file__).parents[4]


def imports(path: Path) -> set[str]:
    """Return the modules that a file imports, including imports inside functions."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    from_modules = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return plain | {
        name
        for node in from_modules
        for alias in node.names
        for name in (node.module, f"{node.module}.{alias.name}")
        if name is not None
    }


@pytest.mark.parametrize("module", [*PROGRAM_MODULES, *ENVIRONMENT_MODULES.values()])
def test_every_module_exists(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


def test_the_program_imports_the_prestarted_modules() -> None:
    assert set(PROGRAM_MODULES) <= imports(PROJECT / "__main__.py")
    assert set(ENVIRONMENT_MODULES.values()) <= imports(PROJECT / "components" / "environment.py")
