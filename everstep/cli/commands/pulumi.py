"""`everstep pulumi ...`: runs Pulumi on a stack."""

import os
import subprocess

import typer

from everstep.cli.commands.options import DEFAULT_STACK
from everstep.cli.console import progress
from everstep.cli.engine.context import open_running_stack


def pulumi(context: typer.Context) -> None:
    """Run Pulumi on the stack, with state, passphrase, plugins and cluster configured.

    The stack is $PULUMI_STACK, or local. A stack on the twin's cloud is used there.
    """
    stack = open_running_stack(os.environ.get("PULUMI_STACK", DEFAULT_STACK))
    engine = stack.engine(progress())
    process = subprocess.run(engine.command(context.args), env=engine.environment, check=False)
    raise typer.Exit(process.returncode)
