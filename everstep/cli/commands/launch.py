"""`everstep launch ...`: starts the workers of a training program on this node."""

import typer

from everstep.cli.launcher import run_launcher


def launch(context: typer.Context) -> None:
    """Start and supervise the workers of an elastic training program, here or on each of several machines."""
    run_launcher(context.args)
