"""Options that several commands share."""

from typing import Annotated

import typer

from everstep.cli.workspace import DEFAULT_STACK

Stack = Annotated[str, typer.Option("--stack", help="The stack: stacks/Pulumi.<name>.yaml.")]
OnTwin = Annotated[
    bool, typer.Option("--twin", help="On the twin's cloud instead of the real one: no account.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="A machine's name, such as gpu-1.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

__all__ = ["DEFAULT_STACK", "AsJson", "NodeName", "OnTwin", "Stack", "Yes"]
