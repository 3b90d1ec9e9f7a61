"""`everstep preview`: what `up` would do, shown by Pulumi itself."""

import os
import shutil
import subprocess
from dataclasses import replace
from typing import Annotated

import typer

from everstep.cli import grounds, twin_cloud
from everstep.cli.access import place
from everstep.cli.commands.options import DEFAULT_STACK, AsJson, OnTwin, Stack
from everstep.cli.console import people, progress
from everstep.cli.engine import dies_with_us, release_dead_locks
from everstep.cli.failures import FAILED
from everstep.cli.grounds import Ground


def preview(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show every property that is new or would change.")
    ] = False,
    expect_no_changes: Annotated[
        bool, typer.Option("--expect-no-changes", help="Exit with 1 if there is anything to do.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what `up` would create, change and delete; nothing is changed."""
    here = place(stack, twin=twin)
    if here.ground is Ground.TWIN_CLOUD and not as_json:
        twin_cloud.show_banner(here)
    new = here.ground is Ground.TWIN_CLOUD and not here.workspace.state.exists()
    if new:
        here = replace(here, workspace=grounds.only_previewed(here.workspace))
    engine = here.engine(progress())
    release_dead_locks(engine)
    quiet = as_json or not people.is_terminal
    flags = {
        "--diff": diff,
        "--json": as_json,
        "--expect-no-changes": expect_no_changes,
        "--non-interactive": quiet,
        "--suppress-progress": quiet,
        "--color=never": quiet or "NO_COLOR" in os.environ,
    }
    command = engine.command(["preview", *(flag for flag, wanted in flags.items() if wanted)])
    done = subprocess.run([*dies_with_us(), *command], env=engine.environment, check=False)
    if new:
        shutil.rmtree(here.workspace.state, ignore_errors=True)  # a preview leaves nothing behind
    if done.returncode:
        raise typer.Exit(FAILED)
