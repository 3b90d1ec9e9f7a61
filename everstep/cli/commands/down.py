"""`everstep down`: destroys a stack and the twin's machines under it."""

from pathlib import Path
from typing import Annotated

import typer

from everstep.cli.commands.options import DEFAULT_STACK, OnTwin, Stack, Yes
from everstep.cli.console import can_ask, messages, progress, say, warn
from everstep.cli.engine.context import StackContext, open_stack_to_destroy
from everstep.cli.engine.lifecycle import describe_run, take_down
from everstep.cli.engine.stack_folder import locked_stack
from everstep.cli.engine.target import Target
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
    with locked_stack(context.workspace, "`everstep down`", fix):
        _keep_or_confirm(context, keep_run, yes=yes)
        take_down(context, progress())
    say(f"   {_result(context)}; {_check_hint(context)}")


def _result(context: StackContext) -> str:
    """Return what is left of a destroyed stack: real clouds keep soft-deleted logs and keys for days."""
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
        if not yes and can_ask():
            question = f"This destroys stack {context.workspace.stack} on {context.target}."
            typer.confirm(f"{question} Continue?", abort=True, err=True)
        return
    folder = context.run_folder
    description = describe_run(folder)
    if description is None:
        return
    if keep_run:
        copy_result(folder, keep_run, context.workspace.events, context.moves)
        say(f"   kept {description} in {keep_run}")
        return
    unfinished = not (folder / "result.json").exists()
    if unfinished and not yes and messages.is_terminal and can_ask():
        question = f"The job {context.job} has not finished. Remove its run?"
        typer.confirm(question, abort=True, err=True)
    say(
        f"   removed with the volume: {description} (--keep-run DIR keeps them)",
        style="bright_black",
    )
