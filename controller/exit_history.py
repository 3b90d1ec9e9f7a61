"""The exit history of each worker: how often it ended, why, and when it may be replaced.

A pod's history is deleted with it; these records remain, in the job's status. A record is written
before its failed pod is deleted, so that no failure is lost. It contains the pod's uid, so that no failure is
counted twice, even if the controller stops in between.

A *failure* is caused by the trainer: an exit code that is not in `SIGNAL_EXIT_CODES`, as after a crash, or a
lack of memory. It counts against the back-off limit. A *disruption* is caused by the node: a signal, an
eviction, a deletion, a lost node. It does not count, since on spot nodes it is unrelated to the training. A
worker that is repeatedly signaled or evicted right after its start is still replaced with exponential back-off.

An edit of the job's template may repair what failed: the consecutive exits of the pods before it no longer count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from controller.timestamps import format_time, parse_time

if TYPE_CHECKING:
    from controller.objects import Pod

SIGNAL_EXIT_CODES = frozenset({130, 137, 138, 143})
"""Exit codes after SIGINT, SIGKILL and SIGTERM, and 138, with which the launcher requests a new pod."""

REMOVED = "removed"  # cause in the record of a worker that the controller removed permanently

STEADY_SECONDS = 300  # a run of this length resets the counts of earlier exits
FIRST_DELAY_SECONDS = 2.0
MAX_DELAY_SECONDS = 300.0
MAX_FAILURE_DELAY_SECONDS = 3600.0  # limit for a faulty node or program


class ExitCause(StrEnum):
    """Cause of an exit; also the label of the metric that counts restarts."""

    FAILED = "failed"
    SIGNALLED = "signalled"
    DISRUPTED = "disrupted"
    DELETED = "deleted"
    NODE_LOST = "node_lost"


@dataclass(frozen=True, kw_only=True)
class WorkerRecord:
    """The exit history of one worker.

    Attributes:
        pod: uid of the newest pod.
        ended: True if the exit of that pod is counted in this record, or does not count because the controller
            removed the pod.
        restarts: number of replacements, including the next one if it is due.
        failures: consecutive failures without a steady run in between.
        quick_exits: consecutive exits, except deletions and lost nodes, without a steady run in between.
        exit_code: exit code of the newest exit; None if there is no exit or its code is unknown.
        cause: cause of the newest exit, an `ExitCause` or `REMOVED`; empty if there is none.
        not_before: earliest time for a new pod.
        succeeded: True if the worker finished the training.
        failed_on: name of the node on which the worker failed last, without a steady run since.
    """

    pod: str
    ended: bool = False
    restarts: int = 0
    failures: int = 0
    quick_exits: int = 0
    exit_code: int | None = None
    cause: str = ""
    not_before: datetime | None = None
    succeeded: bool = False
    failed_on: str = ""

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "WorkerRecord":
        """Parse a record's JSON."""
        return cls(
            pod=source.get("pod", ""),
            ended=source.get("ended", False),
            restarts=source.get("restarts", 0),
            failures=source.get("failures", 0),
            quick_exits=source.get("quickExits", 0),
            exit_code=source.get("exitCode"),
            cause=source.get("cause", ""),
            not_before=parse_time(source.get("notBefore")),
            succeeded=source.get("succeeded", False),
            failed_on=source.get("failedOn", ""),
        )

    def to_json(self, index: int) -> dict[str, Any]:
        """Return the record's JSON, without empty values."""
        values = {
            "ended": self.ended,
            "restarts": self.restarts,
            "failures": self.failures,
            "quickExits": self.quick_exits,
            "cause": self.cause,
            "notBefore": format_time(self.not_before) if self.not_before else None,
            "succeeded": self.succeeded,
            "failedOn": self.failed_on,
        }
        source = {name: value for name, value in values.items() if value}
        if self.exit_code is not None:
            source["exitCode"] = self.exit_code
        return {"index": index, "pod": self.pod, **source}


@dataclass(frozen=True, kw_only=True)
class WorkerExit:
    """A worker's exit that was not recorded before."""

    index: int
    cause: ExitCause
    message: str


def update_records(
    records: Mapping[int, WorkerRecord],
    pods: Sequence["Pod"],
    lost_uids: frozenset[str],
    now: datetime,
) -> tuple[dict[int, WorkerRecord], list[WorkerExit]]:
    """Update the records from the observed pods.

    Args:
        records: records in the status, by index.
        pods: the job's pods, at most one for each index.
        lost_uids: uids of pods on lost nodes.
        now: the current time, from which a back-off counts.

    Returns:
        The updated records, and the exits that are new in them.
    """
    new_records, exits = dict(records), list[WorkerExit]()
    by_index = {pod.index: pod for pod in pods}
    for index, record in records.items():
        pod = by_index.get(index)
        if (pod is None or pod.uid != record.pod) and not record.ended and not record.succeeded:
            message = f"worker {index}'s pod was deleted"
            new_records[index], deletion = _record_exit(record, index, ExitCause.DELETED, message)
            exits.append(deletion)
    for index, pod in by_index.items():
        record = new_records.get(index) or WorkerRecord(pod=pod.uid)
        if record.pod != pod.uid:
            record = replace(
                record,
                pod=pod.uid,
                ended=False,
                not_before=None,
                cause=record.cause if record.restarts else "",
            )
        lost = pod.uid in lost_uids
        new_records[index], new_exit = _update_record(record, pod, lost=lost, now=now)
        if new_exit:
            exits.append(new_exit)
    return new_records, exits


def without_failures(record: WorkerRecord) -> WorkerRecord:
    """Return a record in which earlier exits delay no pod and count against no limit."""
    return replace(record, failures=0, quick_exits=0, not_before=None, failed_on="")


def _update_record(
    record: WorkerRecord, pod: "Pod", *, lost: bool, now: datetime
) -> tuple[WorkerRecord, WorkerExit | None]:
    if record.ended and not lost and _stays(pod):
        if record.cause == ExitCause.NODE_LOST:
            record = replace(record, ended=False, restarts=record.restarts - 1, cause="")
        elif record.cause == REMOVED:
            record = replace(record, ended=False, cause="")
    if record.ended or record.succeeded:
        return record, None
    if pod.phase == "Succeeded":
        return replace(record, succeeded=True, failures=0, quick_exits=0, exit_code=0), None
    if lost:
        message = f"{pod.name} was on node {pod.node}, which is lost"
        return _record_exit(record, pod.index, ExitCause.NODE_LOST, message)
    if pod.phase == "Failed":
        return _record_failed_pod(record, pod, now)
    return record, None


def _stays(pod: "Pod") -> bool:
    """Return True if a pod still exists because its deletion failed; a rule may delete it again."""
    return pod.phase != "Failed" and not pod.terminating


def _record_exit(
    record: WorkerRecord, index: int, cause: ExitCause, message: str
) -> tuple[WorkerRecord, WorkerExit]:
    new_record = replace(
        record,
        ended=True,
        restarts=record.restarts + 1,
        cause=cause,
        exit_code=None,
        not_before=None,
    )
    return new_record, WorkerExit(index=index, cause=cause, message=message)


def _record_failed_pod(
    record: WorkerRecord, pod: "Pod", now: datetime
) -> tuple[WorkerRecord, WorkerExit]:
    cause = cause_of(pod)
    message = f"{pod.name} {describe_exit(pod)}"
    new_record, worker_exit = _record_exit(record, pod.index, cause, message)
    new_record = replace(new_record, exit_code=pod.exit_code)
    if pod.terminating:  # the exit code of a deleted pod is unrelated to the training
        return new_record, worker_exit
    was_steady = _run_seconds(pod) >= STEADY_SECONDS
    last_failed_on = "" if was_steady else record.failed_on
    new_record = replace(
        new_record,
        failures=(0 if was_steady else record.failures) + (cause is ExitCause.FAILED),
        quick_exits=0 if was_steady else record.quick_exits + 1,
        failed_on=(pod.node or "") if cause is ExitCause.FAILED else last_failed_on,
    )
    # The first disruption after a steady run has no delay: a delay leaves a GPU idle.
    undelayed_exits = 0 if cause is ExitCause.FAILED else 1
    max_delay = MAX_FAILURE_DELAY_SECONDS if cause is ExitCause.FAILED else MAX_DELAY_SECONDS
    delay = delay_seconds(new_record.quick_exits - undelayed_exits, max_delay)
    if delay:
        # The delay begins now, not at the exit: a kubelet may report the exit seconds later, and the log must
        # stay readable for the whole delay.
        new_record = replace(new_record, not_before=now + timedelta(seconds=delay))
    return new_record, worker_exit


def cause_of(pod: "Pod") -> ExitCause:
    """Return the exit cause of a pod that ended without success."""
    if pod.terminating:
        return ExitCause.DELETED
    if pod.disrupted or pod.exit_code is None:
        return ExitCause.DISRUPTED
    if pod.exit_code in SIGNAL_EXIT_CODES and not pod.out_of_memory:
        return ExitCause.SIGNALLED
    return ExitCause.FAILED


def describe_exit(pod: "Pod") -> str:
    """Return a description of a pod's exit."""
    container = f" in the init container {pod.init_container}" if pod.init_container else ""
    if pod.out_of_memory:
        return f"ran out of memory{container} (exit code {pod.exit_code})"
    if pod.exit_code is not None:
        reason = f" ({pod.reason})" if pod.reason else ""
        return f"ended with exit code {pod.exit_code}{container}{reason}"
    return f"ended without an exit code ({pod.reason or 'no reason given'})"


def delay_seconds(exits: int, max_delay: float = MAX_DELAY_SECONDS) -> float:
    """Return the delay after a number of consecutive exits: 0, 2, 4, 8 s and so on, up to `max_delay`."""
    if exits < 1:
        return 0.0
    return min(FIRST_DELAY_SECONDS * 2.0 ** min(exits - 1, 30), max_delay)


def _run_seconds(pod: "Pod") -> float:
    if pod.started is None or pod.finished is None:
        return 0.0
    return (pod.finished - pod.started).total_seconds()
