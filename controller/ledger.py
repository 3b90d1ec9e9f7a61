"""What has happened to each worker: how often it ended, why, and when it may be tried again.

Pods come and go and take their history with them; this is what is left, and it is kept in the job's
status. Written before a failed pod is deleted, so that no failure is forgotten, and by the pod's
uid, so that none is counted twice, whenever the controller dies in between.

Two kinds of end are told apart. A *failure* is the trainer's own: an exit code from 1 to 127, a
crash, or no memory left. It counts against the back-off limit. A *disruption* is the machine's: a
signal, an eviction, a deletion, a lost node. It does not count, since on spot machines it says
nothing about the training; but a pod that is disrupted again and again, right after its start, is
replaced ever more slowly all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from controller.clock import format_time, parse_time

if TYPE_CHECKING:
    from controller.observed import Pod

SIGNALLED = frozenset({130, 137, 138, 143})  # SIGINT, SIGKILL, the trainer's own "again", SIGTERM
STEADY_SECONDS = 300  # a worker that ran as long was well: its earlier ends are forgiven
FIRST_DELAY_SECONDS = 2.0
LONGEST_DELAY_SECONDS = 300.0


class Cause(StrEnum):
    """Why a worker ended; also the label of the metric that counts restarts."""

    FAILED = "failed"
    SIGNALLED = "signalled"
    DISRUPTED = "disrupted"
    DELETED = "deleted"
    NODE_LOST = "node_lost"


@dataclass(frozen=True, kw_only=True)
class WorkerRecord:
    """The history of one worker.

    Attributes:
        pod: uid of the newest pod seen.
        ended: whether that pod's end is in the counts below.
        restarts: how often it was, or is to be, replaced.
        failures: failures in a row, without a steady run between them.
        quick_ends: ends of any kind in a row, without a steady run between them.
        exit_code: of the newest end, where known.
        not_before: no new pod before this moment.
        succeeded: whether it finished the training.
    """

    pod: str
    ended: bool = False
    restarts: int = 0
    failures: int = 0
    quick_ends: int = 0
    exit_code: int | None = None
    cause: str = ""
    not_before: datetime | None = None
    succeeded: bool = False

    @classmethod
    def read(cls, source: Mapping[str, Any]) -> "WorkerRecord":
        """Read a record from its JSON."""
        return cls(
            pod=source.get("pod", ""),
            ended=source.get("ended", False),
            restarts=source.get("restarts", 0),
            failures=source.get("failures", 0),
            quick_ends=source.get("quickEnds", 0),
            exit_code=source.get("exitCode"),
            cause=source.get("cause", ""),
            not_before=parse_time(source.get("notBefore")),
            succeeded=source.get("succeeded", False),
        )

    def write(self, index: int) -> dict[str, Any]:
        """Return the record's JSON, without what is still nothing."""
        written = {
            "ended": self.ended,
            "restarts": self.restarts,
            "failures": self.failures,
            "quickEnds": self.quick_ends,
            "cause": self.cause,
            "notBefore": format_time(self.not_before) if self.not_before else None,
            "succeeded": self.succeeded,
        }
        found = {name: value for name, value in written.items() if value}
        if self.exit_code is not None:
            found["exitCode"] = self.exit_code
        return {"index": index, "pod": self.pod, **found}


@dataclass(frozen=True, kw_only=True)
class End:
    """One worker's end, met for the first time."""

    index: int
    cause: Cause
    message: str


def keep(
    records: Mapping[int, WorkerRecord], pods: Sequence["Pod"], lost: frozenset[str], now: datetime
) -> tuple[dict[int, WorkerRecord], list[End]]:
    """Bring the records up to what is seen.

    Args:
        records: as the status had them, by index.
        pods: the job's pods, at most one an index.
        lost: uids of pods whose node is gone.
        now: the time; a new pod may follow a failure only some seconds later.

    Returns:
        The new records, and the ends that are new in them.
    """
    kept, ends = dict(records), list[End]()
    seen = {pod.index: pod for pod in pods}
    for index, record in records.items():
        pod = seen.get(index)
        if (pod is None or pod.uid != record.pod) and not record.ended and not record.succeeded:
            message = f"worker {index}'s pod was deleted"
            kept[index], end = _ended(record, index, Cause.DELETED, message)
            ends.append(end)
    for index, pod in seen.items():
        before = kept.get(index)
        record = before or WorkerRecord(pod=pod.uid)
        if record.pod != pod.uid:
            record = replace(
                record,
                pod=pod.uid,
                ended=False,
                not_before=None,
                cause=record.cause if record.restarts else "",
            )
        kept[index], new = _look(record, pod, lost=pod.uid in lost, now=now)
        ends.extend(new)
    return kept, ends


def _look(
    record: WorkerRecord, pod: "Pod", *, lost: bool, now: datetime
) -> tuple[WorkerRecord, list[End]]:
    if record.ended or record.succeeded:
        return record, []
    if pod.phase == "Succeeded":
        return replace(record, succeeded=True, failures=0, quick_ends=0, exit_code=0), []
    if lost:
        message = f"{pod.name} was on node {pod.node}, which is lost"
        record, end = _ended(record, pod.index, Cause.NODE_LOST, message)
    elif pod.phase == "Failed":
        record, end = _failed(record, pod, now)
    else:
        return record, []
    return record, [end]


def _ended(
    record: WorkerRecord, index: int, cause: Cause, message: str
) -> tuple[WorkerRecord, End]:
    new = replace(
        record,
        ended=True,
        restarts=record.restarts + 1,
        cause=cause,
        exit_code=None,
        not_before=None,
    )
    return new, End(index=index, cause=cause, message=message)


def _failed(record: WorkerRecord, pod: "Pod", now: datetime) -> tuple[WorkerRecord, End]:
    cause = cause_of(pod)
    message = f"{pod.name} {how_it_ended(pod)}"
    new, end = _ended(record, pod.index, cause, message)
    new = replace(new, exit_code=pod.exit_code)
    if pod.deleting:  # somebody asked it to go, and what it did then says nothing
        return new, end
    steady = _seconds_run(pod) >= STEADY_SECONDS
    new = replace(
        new,
        failures=(0 if steady else record.failures) + (cause is Cause.FAILED),
        quick_ends=0 if steady else record.quick_ends + 1,
    )
    # The first disruption in a while is made good at once: seconds without a worker are seconds of
    # a GPU unused.
    free = 0 if cause is Cause.FAILED else 1
    wait = delay_seconds(new.quick_ends - free)
    if wait:
        # From now, not from its end: a kubelet may report that seconds later, and a pause that is
        # over before anybody could look at the log is none.
        new = replace(new, not_before=now + timedelta(seconds=wait))
    return new, end


def cause_of(pod: "Pod") -> Cause:
    """Say why a pod that is over, without success, ended."""
    if pod.deleting:
        return Cause.DELETED
    if pod.disrupted or pod.exit_code is None:
        return Cause.DISRUPTED
    if pod.exit_code in SIGNALLED and not pod.out_of_memory:
        return Cause.SIGNALLED
    return Cause.FAILED


def how_it_ended(pod: "Pod") -> str:
    """Say in words how a pod ended."""
    if pod.out_of_memory:
        return f"ran out of memory (exit code {pod.exit_code})"
    if pod.exit_code is not None:
        return f"ended with exit code {pod.exit_code}" + (f" ({pod.reason})" if pod.reason else "")
    return f"ended without an exit code ({pod.reason or 'no reason given'})"


def delay_seconds(ends: int) -> float:
    """Return the seconds to wait after so many ends in a row: 0, 2, 4, 8 and so on, up to 5 minutes."""
    if ends < 1:
        return 0.0
    return min(FIRST_DELAY_SECONDS * 2.0 ** min(ends - 1, 30), LONGEST_DELAY_SECONDS)


def _seconds_run(pod: "Pod") -> float:
    if pod.started is None or pod.finished is None:
        return 0.0
    return (pod.finished - pod.started).total_seconds()
