"""`everstep report`: figures, recovery times and timeline of a training run, on the terminal or as a page."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from everstep.cli.commands.options import (
    DEFAULT_STACK,
    AsJson,
    OnTwin,
    Stack,
    check_output,
    refuse_options,
    write_output,
)
from everstep.cli.console import progress, results, say, warn
from everstep.cli.engine.context import StackContext, open_running_stack
from everstep.cli.report import follow as job_follower
from everstep.cli.report import mlflow_export, wandb_export
from everstep.cli.report.billing import billing_of
from everstep.cli.report.final_record import final_record, record_of_ended_job
from everstep.cli.report.fold import RECENT_STEPS
from everstep.cli.report.follow import JobMonitor
from everstep.cli.report.machines import MachineLog
from everstep.cli.report.money import Billing, Money, cost_of_run
from everstep.cli.report.moves import MoveLog
from everstep.cli.report.page.model import build_page
from everstep.cli.report.page.render import render
from everstep.cli.report.readers import KEPT_EVENTS, FolderReader, RunReader
from everstep.cli.report.report import build
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.screens import report_screen
from everstep.cli.report.tensorboard import event_file
from everstep.errors import EverstepError

ALL_STEPS = sys.maxsize
"""Number of steps to read one by one for curves of every step."""

HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the report as one HTML page."),
]
TensorBoardFolder = Annotated[
    Path | None,
    typer.Option(
        "--tensorboard",
        metavar="DIR",
        help="Write loss, speed and accuracy as a TensorBoard event file.",
    ),
]
MlflowUri = Annotated[
    str | None,
    typer.Option(
        "--mlflow",
        metavar="URI",
        help="Add loss, speed and accuracy to an MLflow run, at this tracking URI.",
    ),
]
WandbProject = Annotated[
    str | None,
    typer.Option(
        "--wandb",
        metavar="PROJECT",
        help="Add loss, speed and accuracy to a Weights & Biases run, in this project or ENTITY/PROJECT.",
    ),
]
RunFolder = Annotated[
    Path | None,
    typer.Option(
        "--run",
        metavar="DIR",
        help="Report on this run folder, as `down --keep-run` or `launch` writes it.",
    ),
]


@dataclass(frozen=True)
class _Source:
    """The source of a report.

    Attributes:
        reader: reader of the run.
        name: name of the job, or its folder.
        billing: function that returns the billing of the run; None if it is unknown.
        ended_job: monitor that has observed the end of the job; None if the command did not wait for it.
    """

    reader: RunReader
    name: str
    billing: Callable[[], Billing | None]
    ended_job: JobMonitor | None = None

    def failure(self) -> EverstepError | None:
        """Return the error of a failed job; None if it has not failed or its end is unknown."""
        return self.ended_job.failure() if self.ended_job else None

    def record(self) -> RunRecord:
        """Return the record of the run.

        Raises:
            EverstepError: the files cannot be read, or the training has not begun.
        """
        job, reader = self.ended_job, self.reader
        record = record_of_ended_job(reader, job) if job else final_record(reader)
        if not record.starts and not record.result:
            raise EverstepError(
                f"the training {self.name} has not begun, so there is nothing to report",
                "`everstep up` starts it, `everstep status` shows what it is waiting for.",
            )
        return record


@dataclass(frozen=True)
class _Curves:
    """Destinations of the curves; None for a destination that is not requested."""

    tensorboard: Path | None
    mlflow: str | None
    wandb: str | None

    @property
    def is_requested(self) -> bool:
        return any((self.tensorboard, self.mlflow, self.wandb))


def report(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    as_json: AsJson = False,
    html: HtmlFile = None,
    tensorboard: TensorBoardFolder = None,
    mlflow: MlflowUri = None,
    wandb: WandbProject = None,
    run: RunFolder = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for the end of the training; exit with 1 if it failed."),
    ] = False,
) -> None:
    """Report on the training: accuracy, throughput, and the cost of each eviction."""
    check_output("--html", html)
    curves = _Curves(tensorboard, mlflow, wandb)
    recent_steps = ALL_STEPS if curves.is_requested else RECENT_STEPS
    if run:
        options = {"--stack": stack != DEFAULT_STACK, "--twin": twin, "--wait": wait}
        refuse_options(
            options, "cannot be used with --run, which names a folder", "Omit one of them."
        )
        source = _folder_run(run, recent_steps)
    else:
        source = _stack_run(open_running_stack(stack, twin=twin), recent_steps, wait=wait)
    failure = source.failure()
    try:
        _write(source, curves, html, as_json=as_json)
    except EverstepError as error:
        if failure is None:
            raise
        warn(f"{error.problem}\n{error.fix}")
    if failure:
        raise failure


def _write(source: _Source, curves: _Curves, html: Path | None, *, as_json: bool) -> None:
    """Print the report of a run, or write it to the requested files."""
    record = source.record()
    if html:
        write_page(html, record, source.billing())
    if curves.is_requested:
        _write_curves(curves, source.name, record)
    summary = build(record)
    if as_json:
        value = summary.to_json() | {"money": _cost_json(_cost(record, source.billing()))}
        results.print(json.dumps(value, indent=2), markup=False)
    elif not html and not curves.is_requested:
        cost = _cost(record, source.billing())
        results.print(report_screen(summary, record, time.time(), results.width, cost))


def _stack_run(context: StackContext, recent_steps: int, *, wait: bool) -> _Source:
    reader = context.run_reader(recent_steps)
    if wait:
        log = MachineLog(context.workspace.machines)
        moves = MoveLog(context.moves)
        monitor = JobMonitor(context.connect(), context.job, log, moves)
        billing = billing_of(context.config, context.target.unbilled_reason, log.observed)
        job_follower.follow(reader, monitor, billing=billing)
        return _Source(reader, context.job, lambda: _billing(context), monitor)
    _record_cluster(context)
    return _Source(reader, context.job, lambda: _billing(context))


def _record_cluster(context: StackContext) -> None:
    """Record machines and moves; skip this if the cluster is gone."""
    with suppress(EverstepError):
        view = context.connect().view(context.job)
        MachineLog(context.workspace.machines).add(view.nodes)
        MoveLog(context.moves).add(view.status)


def _billing(context: StackContext) -> Billing:
    log = MachineLog(context.workspace.machines)
    return billing_of(context.config, context.target.unbilled_reason, log.observed)


def _folder_run(run: Path, recent_steps: int) -> _Source:
    """Return the source of a report on a run folder.

    Raises:
        EverstepError: it is not a run folder.
    """
    if not (run / "journal").is_dir():
        raise EverstepError(
            f"--run {run} is not the folder of a run: {run / 'journal'} does not exist",
            "Name the folder that `down --keep-run` wrote, or the checkpoint folder of a program.",
        )
    return _Source(FolderReader(run, run / KEPT_EVENTS, recent_steps), str(run), lambda: None)


def _cost(record: RunRecord, billing: Billing | None) -> Money | None:
    """Return the cost of a run; None if nothing is known about it."""
    if billing is None or not record.starts:
        return None
    return cost_of_run(record, time.time(), billing)


def _cost_json(cost: Money | None) -> dict[str, Any] | None:
    """Return a cost as plain values."""
    if cost is None:
        return None
    return {name: value for name, value in asdict(cost).items() if name != "notes"}


def write_page(path: Path, run: RunRecord, billing: Billing | None) -> None:
    """Write the report of a run as an HTML page.

    Raises:
        EverstepError: the file cannot be written.
    """
    text = render(build_page(run, time.time(), billing))
    write_output("--html", path, text.encode())
    say(f"   wrote {path} ({len(text.encode()) / 1000:,.0f} kB): open it in a browser")


def write_event_file(folder: Path, run: RunRecord) -> None:
    """Write the scalars of a run for TensorBoard; a later call for the same run replaces its file.

    Raises:
        EverstepError: the file cannot be written.
    """
    path = folder / f"events.out.tfevents.{run.entries[0].at:.0f}.everstep"
    write_output("--tensorboard", path, event_file(run))
    say(f"   wrote {path}: tensorboard --logdir {folder}")


def _write_curves(curves: _Curves, name: str, run: RunRecord) -> None:
    """Write the scalars of a run to all requested destinations.

    Raises:
        EverstepError: no worker recorded its start, or one of the destinations fails.
    """
    if not run.starts:
        raise EverstepError(
            f"the journal of {name} records no worker start, so there are no curves",
            "Omit --tensorboard, --mlflow and --wandb.",
        )
    if curves.tensorboard:
        write_event_file(curves.tensorboard, run)
    if curves.mlflow:
        with progress().step("Adding the run to MLflow") as step:
            step.note(f"run {mlflow_export.export(curves.mlflow, run)}")
    if curves.wandb:
        with progress().step("Adding the run to Weights & Biases") as step:
            step.note(wandb_export.export(curves.wandb, run))
