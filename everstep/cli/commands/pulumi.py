"""`everstep pulumi ...`: runs Pulumi on a stack."""

import os

import typer

from everstep.cli.commands.options import DEFAULT_STACK
from everstep.cli.console import progress
from everstep.cli.engine.context import open_running_stack


def pulumi(context: typer.Context) -> None:
    """Run Pulumi on the stack, with state, passphrase, plugins and cluster configured.

    The stack is $PULUMI_STACK, or local. If it is up on the twin's cloud, Pulumi runs on it there.
    """
    stack = open_running_stack(os.environ.get("PULUMI_STACK", DEFAULT_STACK))
    engine = stack.engine(progress())
    command = engine.command(context.args)
    # Pulumi replaces this process: a parent would kill it after Ctrl-C, before it has saved its state.
    os.execve(command[0], command, dict(engine.environment))  # noqa: S606  no shell needed
