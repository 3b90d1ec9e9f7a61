"""`everstep up` and `everstep down`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from everstep.cli.access import Place, place
from everstep.cli.bring import bring_up, check_machine, describe_run, take_down
from everstep.cli.commands.options import DEFAULT_STACK, Stack, Yes
from everstep.cli.commands.watch import watch_to_the_end
from everstep.cli.console import people, progress, say
from everstep.cli.locks import only_one
from everstep.cli.sources import copy_result
from everstep.errors import EverstepError


def up(
    *,
    stack: Stack = DEFAULT_STACK,
    drill: Annotated[
        bool, typer.Option("--drill/--no-drill", help="Drain one node, let another vanish.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once everything stands; do not follow.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Bring the stack up, start the training and follow it to its end."""
    here = place(stack)
    check_machine(here)
    _confirm_own_cluster(here, yes=yes)
    busy = "Wait for it; `everstep follow` shows the training, `everstep status` the cluster."
    with only_one(here.workspace.lock, "`everstep up`", busy):
        bring_up(here, progress())
        say(f"   stack {stack} stands; the training {here.job} is on its way\n")
        if detach:
            say("See it with `everstep follow`; remove everything with `everstep down`.")
        elif drill:
            watch_to_the_end(here, drill=True)
    if not detach and not drill:
        watch_to_the_end(here)


def down(
    *,
    stack: Stack = DEFAULT_STACK,
    keep_run: Annotated[
        Path | None,
        typer.Option("--keep-run", metavar="DIR", help="Copy checkpoints and journal there first."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Destroy the stack and the machines it ran on; nothing is left."""
    here = place(stack)
    busy = "Press Ctrl-C there first, or wait for it."
    with only_one(here.workspace.lock, "`everstep up`", busy):
        _settle_run(here, keep_run, yes=yes)
        take_down(here, progress())
    say("   nothing is left; `everstep doctor` checks it")


def _confirm_own_cluster(here: Place, *, yes: bool) -> None:
    """A cluster that is not the twin's is changed only when its owner says so."""
    if here.on_twin or yes or not sys.stdin.isatty():
        return
    cluster = here.config.cluster
    host = (cluster.kubeconfig or cluster.context) if cluster.kind == "existing" else cluster.name
    typer.confirm(f"This changes the cluster of {host}. Go on?", abort=True, err=True)


def _settle_run(here: Place, keep_run: Path | None, *, yes: bool) -> None:
    """Say what happens to the run, keep it where asked, and ask before a training is cut off."""
    if not here.on_twin:
        if keep_run:
            raise EverstepError(
                "--keep-run copies from the twin's volume; this stack's volume is in your cluster",
                "It is not touched by `down` if its reclaim policy is Retain.",
            )
        return
    folder = here.run_folder
    held = describe_run(folder)
    if held is None:
        return
    if keep_run:
        copy_result(folder, keep_run)
        say(f"   kept {held} in {keep_run}")
        return
    unfinished = not (folder / "result.json").exists()
    if unfinished and not yes and people.is_terminal and sys.stdin.isatty():
        typer.confirm(f"The training {here.job} is not finished. Remove it?", abort=True, err=True)
    say(f"   goes with the volume: {held} (--keep-run DIR keeps them)", style="bright_black")
