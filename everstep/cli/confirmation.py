"""The confirmation of `everstep up` and `everstep down` before something outside the twin is changed."""

import typer

from everstep.cli.console import can_ask
from everstep.errors import EverstepError


def confirm_change(effect: str, *, yes: bool) -> None:
    """Ask for confirmation; like Pulumi, refuse to continue without a terminal unless `--yes` is set.

    Args:
        effect: what the command is about to do, as a sentence.
        yes: True for `--yes`.

    Raises:
        EverstepError: standard input is not a terminal, so the question cannot be asked.
        typer.Abort: the user does not confirm.
    """
    if yes:
        return
    if not can_ask():
        raise EverstepError(
            "confirmation is required, but standard input is not a terminal; nothing was changed",
            f"{effect} To confirm it: pass --yes.",
        )
    typer.confirm(f"{effect} Continue?", abort=True, err=True)
