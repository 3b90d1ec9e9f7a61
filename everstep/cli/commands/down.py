"""`everstep down`: destroys a stack and the twin's machines under it."""

from pathlib import Path
from typing import Annotated

import typer

from everstep.cli.commands.options import DEFAULT_STACK, OnTwin, Stack, Yes
from everstep.cli.confirmation import confirm_change
from everstep.cli.console import can_ask, messages, progress, say, warn
from everstep.cli.engine.context import StackContext, open_stack_to_destroy
from everstep.cli.engine.lifecycle import describe_run, take_down
from everstep.cli.engine.runs import run_folders, run_to_keep
from everstep.cli.engine.shared_platform import platform_of_job
from everstep.cli.engine.stack_folder import locked_stack
from everstep.cli.engine.target import Target
from everstep.cli.report.moves import moves_file
from everstep.cli.report.readers import copy_result
from everstep.errors import EverstepError


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
    """Destroy the stack and the machines it ran on; leave nothing behind."""
    context = open_stack_to_destroy(stack, twin=twin)
    if context.config_error:
        problem = context.config_error.problem
        warn(f"{problem}; the resources of the stack on {context.target} are removed anyway")
    fix = "Press Ctrl-C there first, or wait for it."
    platform = platform_of_job(context)  # before the state is removed
    with locked_stack(context.workspace, "`everstep down`", fix):
        _keep_or_confirm(context, keep_run, yes=yes)
        take_down(context, progress())
    say(f"   {_result(context, platform)}; {_check_hint(context)}")


def _result(context: StackContext, platform: str | None = None) -> str:
    """Return what is left of a destroyed stack: real clouds keep soft-deleted logs and keys for days.

    Args:
        context: the stack.
        platform: the stack on whose platform its job ran; None if the stack had its own platform.
    """
    if platform is not None:
        return f"the job is removed; its run stays on the volume of the stack {platform}"
    if context.target is not Target.CLOUD:
        return "nothing is left"
    kind = context.config.cluster.kind
    page = f"docs/{kind}.md" if kind in {"aks", "eks"} else "docs/aks.md or docs/eks.md"
    return f"the stack is destroyed; {page}, 'Teardown', lists what the cloud can keep"


def _check_hint(context: StackContext) -> str:
    """Return the commands that verify the result."""
    if context.target is not Target.CLOUD:
        return "to verify: `everstep doctor`"
    stack = context.workspace.stack
    return f"to verify: `everstep doctor --stack {stack}`; to remove the empty stack: `pulumi stack rm {stack}`"


def _keep_or_confirm(context: StackContext, keep_run: Path | None, *, yes: bool) -> None:
    """Copy the run if requested; ask before a stack outside the twin, or the run of an unfinished job, is removed."""
    if not context.on_twin:
        if keep_run:
            raise EverstepError(
                f"--keep-run copies from the twin's volume; this stack runs on {context.target}",
                "`down` does not touch its volume if the reclaim policy is Retain.",
            )
        effect = f"This destroys stack {context.workspace.stack} on {context.target}."
        confirm_change(effect, yes=yes)
        return
    kept_run = run_to_keep(context) if keep_run else None
    volume_stays = platform_of_job(context) is not None
    runs = [] if volume_stays else run_folders(context)
    removed_runs = [run for run in runs if run != kept_run]
    for run in removed_runs:
        _confirm_removal(run, yes=yes)
    if keep_run and kept_run:
        _copy_run(context, kept_run, keep_run)
    for run in removed_runs:
        hint = "" if keep_run else " (--keep-run DIR keeps them)"
        say(
            f"   removed with the volume: run {run.name}, {describe_run(run)}{hint}",
            style="bright_black",
        )


def _confirm_removal(run: Path, *, yes: bool) -> None:
    """Ask before the run of an unfinished job is removed."""
    unfinished = not (run / "result.json").exists()
    if unfinished and not yes and messages.is_terminal and can_ask():
        question = f"The job {run.name} has not finished. Remove its run?"
        typer.confirm(question, abort=True, err=True)


def _copy_run(context: StackContext, run: Path, destination: Path) -> None:
    """Copy a run out of the volume, with its machine events and moves."""
    workspace = context.workspace
    copy_result(run, destination, workspace.events, moves_file(workspace.home, run.name))
    say(f"   kept run {run.name}, {describe_run(run)}, in {destination}")
