"""`everstep pulumi ...` and `everstep env`: the engine by hand."""

import os
import shlex
import subprocess

import typer

from everstep.cli.access import place_to_look
from everstep.cli.commands.options import DEFAULT_STACK, OnTwin, Stack
from everstep.cli.console import progress, results
from everstep.cli.engine import settings
from everstep.progress import Silent


def pulumi(context: typer.Context) -> None:
    """Run Pulumi on the stack, with its state, passphrase, plugins and cluster set.

    The stack is the one in $PULUMI_STACK, else local; one that stands on the twin's cloud is found
    there.
    """
    here = place_to_look(os.environ.get("PULUMI_STACK", DEFAULT_STACK))
    engine = here.engine(progress())
    done = subprocess.run(engine.command(context.args), env=engine.environment, check=False)
    raise typer.Exit(done.returncode)


def env(*, stack: Stack = DEFAULT_STACK, twin: OnTwin = False) -> None:
    """Print what to export to use pulumi and kubectl by hand: eval "$(everstep env)"."""
    here = place_to_look(stack, twin=twin)
    engine = here.engine(Silent())
    names = {*settings(here.workspace, here.kubeconfig())}
    added = {
        name: value
        for name, value in engine.environment.items()
        if name in names or os.environ.get(name) != value
    }
    for name, value in sorted(added.items()):
        results.print(f"export {name}={shlex.quote(value)}", markup=False)
