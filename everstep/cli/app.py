"""The `everstep` command: all commands in one app."""

from typing import Annotated

import typer

from everstep.cli.commands import (
    cost,
    data,
    doctor,
    down,
    drain,
    env,
    follow,
    images,
    init,
    launch,
    market,
    nccl_test,
    node,
    plan,
    preview,
    pulumi,
    report,
    return_node,
    scale,
    status,
    up,
    vanish,
)
from everstep.cli.console import results

app = typer.Typer(
    name="everstep",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:  # noqa: FBT001  typer calls it with the flag's value
    if requested:
        from importlib.metadata import version

        results.print(f"everstep {version('everstep')}", markup=False)
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Elastic training on spot GPUs as code; the training survives evictions."""
    del debug, version  # --debug is read before typer runs, since errors may occur earlier


PASS_THROUGH_SETTINGS = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""Settings of a command that passes its arguments to another program."""

TRAINING, MACHINES, TOOLS = "Training", "Machines", "Tools"

app.command(rich_help_panel=TRAINING)(init.init)
app.command(rich_help_panel=TRAINING)(preview.preview)
app.command(rich_help_panel=TRAINING)(up.up)
app.command(rich_help_panel=TRAINING)(down.down)
app.command(rich_help_panel=TRAINING, context_settings=PASS_THROUGH_SETTINGS)(launch.launch)
app.command(rich_help_panel=TRAINING)(cost.cost)
app.command(rich_help_panel=TRAINING)(plan.plan)
app.command(rich_help_panel=TRAINING)(status.status)
app.command(rich_help_panel=TRAINING)(follow.follow)
app.command(rich_help_panel=TRAINING)(report.report)
app.command(rich_help_panel=MACHINES)(drain.drain)
app.command(rich_help_panel=MACHINES)(vanish.vanish)
app.command("return", rich_help_panel=MACHINES)(return_node.return_node)
app.add_typer(images.app, name="images", rich_help_panel=TRAINING)
app.add_typer(data.app, name="data", rich_help_panel=TRAINING)
app.add_typer(node.app, name="node", rich_help_panel=MACHINES)
app.add_typer(market.app, name="market", rich_help_panel=MACHINES)
app.command("nccl-test", rich_help_panel=TOOLS)(nccl_test.nccl_test)
app.command(rich_help_panel=TOOLS)(scale.scale)
app.command(rich_help_panel=TOOLS)(doctor.doctor)
app.command(rich_help_panel=TOOLS, context_settings=PASS_THROUGH_SETTINGS)(pulumi.pulumi)
app.command(rich_help_panel=TOOLS)(env.env)
