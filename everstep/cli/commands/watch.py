"""`everstep follow`, `everstep report` and what `up` does once the training runs."""

import json
import time
from typing import Annotated

import typer

from everstep.cli import report as reports
from everstep.cli.access import Place, place_to_look
from everstep.cli.commands.options import DEFAULT_STACK, AsJson, OnTwin, Stack
from everstep.cli.console import people, results, say
from everstep.cli.driller import Driller
from everstep.cli.failures import FAILED
from everstep.cli.follow import JobWatch, Outcome
from everstep.cli.follow import follow as follow_run
from everstep.cli.screen import report_screen
from everstep.errors import EverstepError

SETTLE_SECONDS = 5.0
"""The result is written by a worker, the condition by the controller: either may come first."""


def follow(*, stack: Stack = DEFAULT_STACK, twin: OnTwin = False) -> None:
    """Show the training live until it ends; Ctrl-C leaves it running."""
    watch_to_the_end(place_to_look(stack, twin=twin))


def report(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    as_json: AsJson = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the training's end.")] = False,
) -> None:
    """Say how the training went: accuracy, throughput, and what each eviction cost."""
    here = place_to_look(stack, twin=twin)
    source = here.source()
    if wait:
        follow_run(source, JobWatch(here.connect(), here.job))
    run = source.read()
    if not run.starts and not run.result:
        raise EverstepError(
            f"the training {here.job} has not begun, so there is nothing to report",
            "`everstep up` starts it, `everstep status` shows what it is waiting for.",
        )
    built = reports.build(run)
    if as_json:
        results.print(json.dumps(built.to_json(), indent=2), markup=False)
    else:
        results.print(report_screen(built, run, time.time(), results.width))


def watch_to_the_end(here: Place, *, drill: bool = False) -> None:
    """Follow the training, print its report, and exit with 1 if the job failed."""
    source = here.source()
    watch = JobWatch(here.connect(), here.job)
    try:
        if drill:
            with Driller(here.twin()) as driller:
                outcome = follow_run(source, watch, driller)
        else:
            outcome = follow_run(source, watch)
    except KeyboardInterrupt:
        say("\nThe training goes on. See it again with `everstep follow`.", style="yellow")
        raise
    _show_end(here, outcome, watch)


def _show_end(here: Place, outcome: Outcome, watch: JobWatch) -> None:
    source = here.source()
    deadline = time.monotonic() + SETTLE_SECONDS
    run = source.read()
    while outcome is Outcome.SUCCEEDED and not run.result and time.monotonic() < deadline:
        time.sleep(0.2)
        run = source.read()
    results.print(report_screen(reports.build(run), run, time.time(), results.width))
    if outcome is Outcome.FAILED:
        why = next((one for one in watch.conditions if one.type == outcome), None)
        people.print()
        raise EverstepError(
            f"the job {here.job} failed: {why.reason if why else 'no reason given'}",
            f"{why.message if why else ''}\n`everstep status` shows its pods.".strip(),
        )


__all__ = ["FAILED", "follow", "report", "watch_to_the_end"]
