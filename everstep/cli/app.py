"""The `everstep` command: puts the commands together."""

from typing import Annotated

import typer

from everstep.cli.commands import (
    cost,
    doctor,
    engine,
    market,
    node,
    preview,
    spot,
    status,
    up,
    watch,
)
from everstep.cli.console import results

app = typer.Typer(
    name="everstep",
    help="Elastic training on spot GPUs as code, and the training never loses a step.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:  # noqa: FBT001  typer calls it with the flag's value
    if asked:
        from importlib.metadata import version

        results.print(f"everstep {version('everstep')}", markup=False)
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Elastic training on spot GPUs as code, and the training never loses a step."""
    del debug, version  # --debug is read before typer runs: an error may come earlier than this


TRAINING, MACHINES, BY_HAND = "Training", "Machines", "By hand"

app.command(rich_help_panel=TRAINING)(preview.preview)
app.command(rich_help_panel=TRAINING)(up.up)
app.command(rich_help_panel=TRAINING)(up.down)
app.command(rich_help_panel=TRAINING)(cost.cost)
app.command(rich_help_panel=TRAINING)(status.status)
app.command(rich_help_panel=TRAINING)(watch.follow)
app.command(rich_help_panel=TRAINING)(watch.report)
app.command(rich_help_panel=MACHINES)(spot.drain)
app.command(rich_help_panel=MACHINES)(spot.vanish)
app.command("return", rich_help_panel=MACHINES)(spot.come_back)
app.add_typer(node.app, name="node", rich_help_panel=MACHINES)
app.add_typer(market.app, name="market", rich_help_panel=MACHINES)
app.command(rich_help_panel=BY_HAND)(doctor.doctor)
app.command(
    rich_help_panel=BY_HAND,
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)(engine.pulumi)
app.command(rich_help_panel=BY_HAND)(engine.env)
