"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from everstep.cli.engine.workspace import DEFAULT_STACK
from everstep.errors import EverstepError

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

__all__ = [
    "DEFAULT_STACK",
    "AsJson",
    "NodeName",
    "OnTwin",
    "PolicyPacks",
    "Stack",
    "Yes",
    "check_plot",
]


def check_plot(path: Path | None) -> None:
    """Check the file of a `--plot`, before the work whose result it shows.

    Raises:
        EverstepError: its name does not end with .svg.
    """
    if path and path.suffix.lower() != ".svg":
        raise EverstepError(
            f"--plot {path} does not end with .svg, and the picture is an SVG file",
            f"Pass --plot {path.with_suffix('.svg')}.",
        )
