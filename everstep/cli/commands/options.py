"""Options that several commands share."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from everstep.cli.engine.workspace import DEFAULT_STACK
from everstep.errors import EverstepError
from everstep.files import READABLE, write_atomically

Stack = Annotated[str, typer.Option("--stack", help="Stack: stacks/Pulumi.<name>.yaml.")]
OnTwin = Annotated[
    bool,
    typer.Option(
        "--twin", help="Use the twin's cloud, which needs no account, instead of the real one."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node, such as gpu-1.")]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="Do not ask for confirmation; required outside the twin without a terminal.",
    ),
]
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
    "check_output",
    "check_plot",
    "refuse_options",
    "write_output",
]


def refuse_options(options: Mapping[str, bool], reason: str, fix: str) -> None:
    """Refuse options that the command would ignore.

    Args:
        options: option -> whether the user set it.
        reason: end of the sentence that begins with the options, such as "cannot be used on the twin".
        fix: advice for the user.

    Raises:
        EverstepError: an option is set.
    """
    if ignored := [name for name, is_set in options.items() if is_set]:
        raise EverstepError(f"{' and '.join(ignored)} {reason}", fix)


def check_plot(path: Path | None) -> None:
    """Check the file of a `--plot`, before the work whose result it shows.

    Raises:
        EverstepError: its name does not end with .svg, or it cannot be written.
    """
    if path and path.suffix.lower() != ".svg":
        raise EverstepError(
            f"--plot {path} does not end with .svg, and the picture is an SVG file",
            f"Pass --plot {path.with_suffix('.svg')}.",
        )
    check_output("--plot", path)


def check_output(option: str, path: Path | None) -> None:
    """Check that a file can be written, before the work whose result it receives; create its folder.

    Raises:
        EverstepError: it cannot be written.
    """
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise _output_error(option, path, f"{path.parent} is not a folder") from None
    except OSError as error:
        raise _output_error(option, path, str(error.strerror)) from None
    if path.is_dir():
        raise _output_error(option, path, "it is a folder")
    if not os.access(path.parent, os.W_OK):
        raise _output_error(option, path, f"{path.parent} is not writable")


def write_output(option: str, path: Path, content: str | bytes) -> None:
    """Write the file that an option names; other users may read it.

    Raises:
        EverstepError: it cannot be written.
    """
    try:
        write_atomically(path, content, READABLE)
    except OSError as error:
        raise _output_error(option, path, str(error.strerror or error)) from None


def _output_error(option: str, path: Path, reason: str) -> EverstepError:
    return EverstepError(
        f"{option} {path} cannot be written: {reason}",
        "Name a file in a folder that you may write to.",
    )
