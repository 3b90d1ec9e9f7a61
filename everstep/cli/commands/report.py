"""`everstep report`: figures, recovery times and timeline of a training."""

import json
import time
from typing import Annotated

import typer

from everstep.cli.commands.options import DEFAULT_STACK, AsJson, OnTwin, Stack
from everstep.cli.console import results
from everstep.cli.engine.context import open_running_stack
from everstep.cli.report import follow as job_follower
from everstep.cli.report.follow import JobMonitor
from everstep.cli.report.report import build
from everstep.cli.report.screens import report_screen
from everstep.errors import EverstepError


def report(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    as_json: AsJson = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end of the training.")] = False,
) -> None:
    """Report on the training: accuracy, throughput, and the cost of each eviction."""
    context = open_running_stack(stack, twin=twin)
    reader = context.run_reader()
    if wait:
        job_follower.follow(reader, JobMonitor(context.connect(), context.job))
    run = reader.read()
    if not run.starts and not run.result:
        raise EverstepError(
            f"the training {context.job} has not begun, so there is nothing to report",
            "`everstep up` starts it, `everstep status` shows what it is waiting for.",
        )
    built = build(run)
    if as_json:
        results.print(json.dumps(built.to_json(), indent=2), markup=False)
    else:
        results.print(report_screen(built, run, time.time(), results.width))
