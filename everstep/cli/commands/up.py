"""`everstep up` and `everstep down`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from everstep.cli import twin_cloud
from everstep.cli.access import Place, place, place_to_leave
from everstep.cli.bring import bring_up, check_machine, describe_run, take_down
from everstep.cli.commands.options import DEFAULT_STACK, OnTwin, Stack, Yes
from everstep.cli.commands.watch import watch_to_the_end
from everstep.cli.console import people, progress, say, warn
from everstep.cli.grounds import Ground
from everstep.cli.locks import only_one
from everstep.cli.sources import copy_result
from everstep.errors import EverstepError


def up(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    drill: Annotated[
        bool, typer.Option("--drill/--no-drill", help="Drain one node, let another vanish.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once everything stands; do not follow.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Bring the stack up, start the training and follow it to its end."""
    here = place(stack, twin=twin)
    if drill and here.ground is not Ground.TWIN:
        raise EverstepError(
            f"--drill drains and vanishes the twin's own machines; this stack runs on {here.ground}",
            "There, `everstep node reclaim NODE` takes a machine as a spot market does."
            if here.on_twin
            else "Leave it out.",
        )
    check_machine(here)
    _confirm(here, yes=yes)
    if here.ground is Ground.TWIN_CLOUD:
        twin_cloud.show_banner(here)
    busy = "Wait for it; `everstep follow` shows the training, `everstep status` the cluster."
    with only_one(here.workspace.lock, "`everstep up`", busy):
        bring_up(here, progress())
        say(f"   stack {stack} stands; the training {here.job} is on its way\n")
        if detach:
            say(
                f"See it with `everstep follow{_again(here)}`, remove it all with `everstep down"
                f"{_again(here)}`."
            )
        elif drill:
            watch_to_the_end(here, drill=True)
    if not detach and not drill:
        watch_to_the_end(here)


def down(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    keep_run: Annotated[
        Path | None,
        typer.Option("--keep-run", metavar="DIR", help="Copy checkpoints and journal there first."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Destroy the stack and the machines it ran on; nothing is left."""
    here = place_to_leave(stack, twin=twin)
    if here.fault:
        warn(f"{here.fault.what}; what the stack made on {here.ground} is removed all the same")
    busy = "Press Ctrl-C there first, or wait for it."
    with only_one(here.workspace.lock, "`everstep up`", busy):
        _settle_run(here, keep_run, yes=yes)
        take_down(here, progress())
    say("   nothing is left; `everstep doctor` checks it")


def _again(here: Place) -> str:
    """The options that name the same place in another command."""
    stack = "" if here.workspace.stack == DEFAULT_STACK else f" --stack {here.workspace.stack}"
    return f"{stack} --twin" if here.ground is Ground.TWIN_CLOUD else stack


def _confirm(here: Place, *, yes: bool) -> None:
    """What is not the twin's is changed only when its owner says so."""
    if here.on_twin or yes or not sys.stdin.isatty():
        return
    cluster = here.config.cluster
    where = (cluster.kubeconfig or cluster.context) if cluster.kind == "existing" else cluster.name
    question = f"This changes {here.ground}: {where}."
    if here.ground is Ground.CLOUD:
        question += " What it makes there costs money."
    typer.confirm(f"{question} Go on?", abort=True, err=True)


def _settle_run(here: Place, keep_run: Path | None, *, yes: bool) -> None:
    """Say what happens to the run, keep it where asked, and ask before a training is cut off."""
    if not here.on_twin:
        if keep_run:
            raise EverstepError(
                f"--keep-run copies from the twin's volume; this stack runs on {here.ground}",
                "Its volume is not touched by `down` if its reclaim policy is Retain.",
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
