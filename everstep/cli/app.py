"""The `everstep` command: a table of its commands, and the app with the command that is called."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import typer

from everstep.cli.console import results

TRAINING, MACHINES, TOOLS = "Training", "Machines", "Tools"


@dataclass(frozen=True)
class Command:
    """A command, or a group of commands.

    Attributes:
        name: its name on the command line.
        panel: its section in the list of commands.
        module: its module in `everstep.cli.commands`, if the name of the command differs.
        is_group: True if the module has an app of its own, named `app`. Otherwise a function has the module's name.
        passes_arguments: True if the command passes its arguments to another program.
    """

    name: str
    panel: str
    module: str = ""
    is_group: bool = False
    passes_arguments: bool = False


COMMANDS = (
    Command("init", TRAINING),
    Command("preview", TRAINING),
    Command("up", TRAINING),
    Command("down", TRAINING),
    Command("launch", TRAINING, passes_arguments=True),
    Command("cost", TRAINING),
    Command("plan", TRAINING),
    Command("status", TRAINING),
    Command("follow", TRAINING),
    Command("report", TRAINING),
    Command("drain", MACHINES),
    Command("vanish", MACHINES),
    Command("return", MACHINES, module="return_node"),
    Command("images", TRAINING, is_group=True),
    Command("data", TRAINING, is_group=True),
    Command("node", MACHINES, is_group=True),
    Command("market", MACHINES, is_group=True),
    Command("nccl-test", TOOLS, module="nccl_test"),
    Command("scale", TOOLS),
    Command("doctor", TOOLS),
    Command("pulumi", TOOLS, passes_arguments=True),
    Command("env", TOOLS),
)
"""All commands, in the order of `everstep --help`."""

PASS_THROUGH_SETTINGS = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""Settings of a command that passes its arguments to another program."""

DESCRIPTION = "Elastic training on spot GPUs as code; the training survives evictions."


def _print_version(requested: bool) -> None:  # noqa: FBT001  typer calls it with the flag's value
    if requested:
        from importlib.metadata import version

        results.print(f"everstep {version('everstep')}", markup=False)
        raise typer.Exit


def _options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Define the options that precede the command."""
    del debug, version  # --debug is read before typer runs, since errors may occur earlier


def build_app(arguments: Sequence[str] = ()) -> typer.Typer:
    """Return the app for a command line.

    Importing the modules of all commands takes half a second, so the app has only the command that is
    called. If the arguments name none, as for the list of commands, it has all of them.

    Args:
        arguments: arguments of the command line, without the program.
    """
    app = typer.Typer(
        name="everstep",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=DESCRIPTION)(_options)
    word = next((word for word in arguments if word != "--debug"), "")
    for command in [command for command in COMMANDS if command.name == word] or COMMANDS:
        _add(app, command)
    return app


def _add(app: typer.Typer, command: Command) -> None:
    module = command.module or command.name
    content = import_module(f"everstep.cli.commands.{module}")
    if command.is_group:
        app.add_typer(content.app, name=command.name, rich_help_panel=command.panel)
        return
    settings = PASS_THROUGH_SETTINGS if command.passes_arguments else None
    add = app.command(command.name, rich_help_panel=command.panel, context_settings=settings)
    add(getattr(content, module))
