"""`everstep init`: writes a new project."""

from pathlib import Path
from typing import Annotated

import typer

from everstep.cli import project
from everstep.cli.commands.options import DEFAULT_STACK
from everstep.cli.console import say


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the project.")],
    *,
    stack: Annotated[
        list[str], typer.Option("--stack", help="Stack to include, such as eks-dev; repeatable.")
    ] = [DEFAULT_STACK],  # noqa: B006  typer copies it
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write a project: program, stack files, README."""
    paths = project.write_project(folder, stack, force=force)
    for path in paths:
        say(f"   {path}", style="bright_black")
    say(f"The project is in {folder}. Next:\n{project.next_steps(folder, stack)}")
