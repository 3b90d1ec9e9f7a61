"""The record of a run that is not followed any longer: of an ended training, or of one without workers."""

import time

from everstep.cli.console import warn
from everstep.cli.report.follow import JobMonitor, JobOutcome
from everstep.cli.report.reader_pod import RunUnreadableError
from everstep.cli.report.readers import RunReader
from everstep.cli.report.run_record import RunRecord

RESULT_SECONDS = 5.0
"""Time to wait for a worker's result after the controller's condition: either may come first."""

POLL_SECONDS = 0.2


def final_record(
    reader: RunReader, *, ended: bool = False, awaits_result: bool = False
) -> RunRecord:
    """Return the record of a run, even while no worker runs; if no pod can read it, what was read before.

    Args:
        reader: reader of the run.
        ended: True if its workers have ended or are about to.
        awaits_result: True to wait some seconds for the result.

    Raises:
        RunUnreadableError: no worker runs, no pod can read the files, and nothing was read before.
        ClusterUnreachableError: the API server does not respond.
    """
    try:
        with reader.readable(ended=ended):
            return _record(reader, RESULT_SECONDS if awaits_result else 0.0)
    except RunUnreadableError as error:
        if not reader.has_read:
            raise
        warn(f"the last steps may be missing: {error.problem}")
        return reader.read()


def record_of_ended_job(reader: RunReader, monitor: JobMonitor) -> RunRecord:
    """Return the record of a job whose end the monitor has observed; wait some seconds for the result of a success.

    Raises:
        RunUnreadableError: no pod can read the files, and nothing was read before.
        ClusterUnreachableError: the API server does not respond.
    """
    succeeded = monitor.outcome() is JobOutcome.SUCCEEDED
    return final_record(reader, ended=True, awaits_result=succeeded)


def _record(reader: RunReader, result_seconds: float) -> RunRecord:
    deadline = time.monotonic() + result_seconds
    run = reader.read()
    while not run.result and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        run = reader.read()
    return run
