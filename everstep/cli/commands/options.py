"""Options that several commands share."""

from typing import Annotated

import typer

from everstep.cli.engine.workspace import DEFAULT_STACK

Stack = Annotated[str, typer.Option("--stack", help="Stack: stacks/Pulumi.<name>.yaml.")]
OnTwin = Annotated[
    bool,
    typer.Option(
        "--twin", help="Use the twin's cloud, which needs no account, instead of the real one."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node, such as gpu-1.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
PolicyPacks = Annotated[
    list[str],
    typer.Option(
        "--policy-pack", metavar="DIR", help="Check the stack with this policy pack; repeatable."
    ),
]

__all__ = ["DEFAULT_STACK", "AsJson", "NodeName", "OnTwin", "PolicyPacks", "Stack", "Yes"]
