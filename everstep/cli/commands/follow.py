"""`everstep follow`, and the end of `everstep up`: shows a training run until its job ends."""

import time

from everstep.cli.commands.options import DEFAULT_STACK, OnTwin, Stack
from everstep.cli.console import messages, results, say, warn
from everstep.cli.drill import DrillRunner
from everstep.cli.engine.context import StackContext, open_running_stack
from everstep.cli.report import follow as job_follower
from everstep.cli.report.billing import billing_of
from everstep.cli.report.final_record import record_of_ended_job
from everstep.cli.report.follow import JobMonitor
from everstep.cli.report.machines import MachineLog
from everstep.cli.report.money import Billing, cost_of_run
from everstep.cli.report.moves import MoveLog
from everstep.cli.report.reader_pod import RunUnreadableError
from everstep.cli.report.readers import RunReader
from everstep.cli.report.report import build
from everstep.cli.report.screens import report_screen


def follow(*, stack: Stack = DEFAULT_STACK, twin: OnTwin = False) -> None:
    """Show the training live until it ends; Ctrl-C leaves it running."""
    follow_to_end(open_running_stack(stack, twin=twin))


def follow_to_end(context: StackContext, *, drill: bool = False) -> None:
    """Follow the training and print its report.

    Raises:
        EverstepError: the job failed.
        KeyboardInterrupt: the user leaves the view; the training continues.
    """
    reader = context.run_reader()
    machines = MachineLog(context.workspace.machines)
    moves = MoveLog(context.moves)
    monitor = JobMonitor(context.connect(), context.job, machines, moves)
    billing = billing_of(context.config, context.target.unbilled_reason, machines.observed)
    monitor.refresh()
    if monitor.outcome() is not None:
        say(
            "This training run has already ended. To train again: `everstep down`, then `everstep up`."
        )
    try:
        if drill:
            with DrillRunner(context.twin()) as runner:
                job_follower.follow(reader, monitor, runner, billing)
        else:
            job_follower.follow(reader, monitor, billing=billing)
    except KeyboardInterrupt:
        say("\nThe training continues. `everstep follow` shows it again.", style="yellow")
        raise
    _show_end(reader, monitor, billing)


def _show_end(reader: RunReader, monitor: JobMonitor, billing: Billing) -> None:
    """Print the report of an ended run, or why its files cannot be read.

    Raises:
        EverstepError: the job failed.
    """
    try:
        run = record_of_ended_job(reader, monitor)
    except RunUnreadableError as error:
        warn(f"{error.problem}\n{error.fix}\n`everstep report` tries again.")
    else:
        spent = cost_of_run(run, time.time(), billing) if run.starts else None
        results.print(report_screen(build(run), run, time.time(), results.width, spent))
    if failure := monitor.failure():
        messages.print()
        raise failure
