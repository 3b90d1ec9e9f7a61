"""`everstep report`: figures, recovery times and timeline of a training, on the terminal or as a page."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from everstep.cli.commands.options import DEFAULT_STACK, AsJson, OnTwin, Stack
from everstep.cli.console import results, say
from everstep.cli.engine.context import StackContext, open_running_stack
from everstep.cli.report import follow as job_follower
from everstep.cli.report.billing import billing_of
from everstep.cli.report.follow import JobMonitor
from everstep.cli.report.money import Billing
from everstep.cli.report.page.model import build_page
from everstep.cli.report.page.render import render
from everstep.cli.report.readers import KEPT_EVENTS, FolderReader, RunReader
from everstep.cli.report.report import build
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.screens import report_screen
from everstep.errors import EverstepError
from everstep.files import write_atomically

PAGE_MODE = 0o644
"""Permissions of a page: it is made to be read by others."""

HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the report as one HTML page."),
]
RunFolder = Annotated[
    Path | None,
    typer.Option(
        "--run",
        metavar="DIR",
        help="Report on this folder of a run, such as one of `down --keep-run` or `launch`.",
    ),
]


@dataclass(frozen=True)
class _Source:
    """The source of a report: a reader, and the billing of the run, if it is known."""

    reader: RunReader
    name: str
    billing: Callable[[], Billing | None]


def report(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    as_json: AsJson = False,
    html: HtmlFile = None,
    run: RunFolder = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end of the training.")] = False,
) -> None:
    """Report on the training: accuracy, throughput, and the cost of each eviction."""
    source = _of_folder(run, wait=wait) if run else _of_stack(stack, twin=twin, wait=wait)
    record = source.reader.read()
    if not record.starts and not record.result:
        raise EverstepError(
            f"the training {source.name} has not begun, so there is nothing to report",
            "`everstep up` starts it, `everstep status` shows what it is waiting for.",
        )
    if html:
        write_page(html, record, source.billing())
    built = build(record)
    if as_json:
        results.print(json.dumps(built.to_json(), indent=2), markup=False)
    elif not html:
        results.print(report_screen(built, record, time.time(), results.width))


def _of_stack(stack: str, *, twin: bool, wait: bool) -> _Source:
    context = open_running_stack(stack, twin=twin)
    reader = context.run_reader()
    if wait:
        monitor = JobMonitor(context.connect(), context.job)
        job_follower.follow(reader, monitor, billing=_billing(context))
    return _Source(reader, context.job, lambda: _billing(context))


def _billing(context: StackContext) -> Billing:
    return billing_of(context.config, context.target)


def _of_folder(run: Path, *, wait: bool) -> _Source:
    """Return the source of a folder.

    Raises:
        EverstepError: it is not the folder of a run, or `--wait` is set.
    """
    if wait:
        raise EverstepError("--wait follows a job, and --run names a folder", "Omit one of them.")
    if not (run / "journal").is_dir():
        raise EverstepError(
            f"--run {run} is not the folder of a run: {run / 'journal'} does not exist",
            "Name the folder that `down --keep-run` wrote, or the checkpoint folder of a program.",
        )
    return _Source(FolderReader(run, run / KEPT_EVENTS), str(run), lambda: None)


def write_page(path: Path, run: RunRecord, billing: Billing | None) -> None:
    """Write the report of a run as an HTML page.

    Raises:
        EverstepError: the file cannot be written.
    """
    text = render(build_page(run, time.time(), billing))
    try:
        write_atomically(path, text, PAGE_MODE)
    except OSError as error:
        raise EverstepError(
            f"--html {path} cannot be written: {error.strerror or error}",
            "Name a file in a folder that you may write to.",
        ) from None
    say(f"   wrote {path} ({len(text.encode()) / 1000:,.0f} kB): open it in a browser")
