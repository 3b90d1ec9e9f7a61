"""`everstep preview`: what `up` would do, as shown by Pulumi."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from everstep.cli.commands.options import DEFAULT_STACK, AsJson, OnTwin, PolicyPacks, Stack
from everstep.cli.console import messages, progress
from everstep.cli.engine import cloud_twin
from everstep.cli.engine.context import StackContext, open_stack_to_deploy
from everstep.cli.engine.driver import run_in_foreground
from everstep.cli.engine.prestart import prestarted_program
from everstep.cli.engine.shared_platform import require_platform
from everstep.cli.engine.stack_locks import release_stale_locks
from everstep.cli.engine.target import Target, preview_workspace
from everstep.cli.errors import FAILED


def preview(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show every property that is new or would change.")
    ] = False,
    expect_no_changes: Annotated[
        bool, typer.Option("--expect-no-changes", help="Exit with 1 if anything would change.")
    ] = False,
    policy_pack: PolicyPacks = [],  # noqa: B006  typer copies it
    as_json: AsJson = False,
) -> None:
    """Show what `up` would create, change and delete; change nothing."""
    context = open_stack_to_deploy(stack, twin=twin)
    if context.platform is not None:
        require_platform(context)
    if context.target is Target.TWIN_CLOUD and not as_json:
        cloud_twin.show_banner(context)
    quiet = as_json or not messages.is_terminal
    flags = {
        "--diff": diff,
        "--json": as_json,
        "--expect-no-changes": expect_no_changes,
        "--non-interactive": quiet,
        "--suppress-progress": quiet,
        "--color=never": quiet or "NO_COLOR" in os.environ,
    }
    with prestarted_program(context) as variables:
        code = _preview(
            context, [flag for flag, is_set in flags.items() if is_set], policy_pack, variables
        )
    if code:
        raise typer.Exit(FAILED)


def _preview(
    context: StackContext,
    flags: Sequence[str],
    policy_packs: Sequence[str],
    variables: Mapping[str, str],
) -> int:
    """Run Pulumi with flags and environment variables; return its exit code."""
    workspace = context.workspace
    is_new = context.target is Target.TWIN_CLOUD and not workspace.state.exists()
    if is_new:
        context = replace(context, workspace=preview_workspace(workspace))
    try:
        engine = context.engine(progress(), policy_packs=policy_packs)
        release_stale_locks(engine)
        engine.require_stack()
        command = engine.command(["preview", *flags])
        return run_in_foreground(command, {**engine.environment, **variables})
    finally:
        # A preview leaves nothing, even after Ctrl-C; but an `up` may have begun in the meantime.
        if is_new and not workspace.lock.exists():
            shutil.rmtree(workspace.state, ignore_errors=True)
