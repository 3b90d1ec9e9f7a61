"""The CLI app loads only the called command, or all commands if none is called."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from everstep.cli import commands
from everstep.cli.app import COMMANDS, build_app

ALL_NAMES = {command.name for command in COMMANDS}


def names(*arguments: str) -> set[str]:
    """Return the names of the commands in the app for a command line."""
    return set(get_command(build_app(arguments)).commands)  # type: ignore[attr-defined]  # a group


@pytest.mark.parametrize("arguments", [("env",), ("--debug", "env"), ("env", "--help")])
def test_a_command_line_loads_only_its_command(arguments: tuple[str, ...]) -> None:
    assert names(*arguments) == {"env"}


@pytest.mark.parametrize(
    "arguments", [(), ("--help",), ("-h", "env"), ("--version",), ("unknown",)]
)
def test_a_command_line_that_does_not_begin_with_a_command_loads_all(
    arguments: tuple[str, ...],
) -> None:
    assert names(*arguments) == ALL_NAMES


@pytest.mark.parametrize("name", sorted(ALL_NAMES))
def test_every_command_can_be_loaded_separately(name: str) -> None:
    assert names(name) == {name}


def test_every_module_of_commands_is_in_the_table() -> None:
    modules = {path.stem for path in Path(commands.__path__[0]).glob("*.py")}

    assert modules - {"__init__", "options"} == {
        command.module or command.name for command in COMMANDS
    }


def test_a_command_loads_no_other_command() -> None:
    code = (
        "import sys; from everstep.cli.app import build_app; build_app(['preview']); "
        "print(*[name for name in sys.modules if name.startswith('everstep.cli.commands.')])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    modules = {name.rpartition(".")[2] for name in loaded.split()}
    assert modules - {"options"} == {"preview"}
