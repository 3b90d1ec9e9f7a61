"""The status of an ElasticJob: what was seen, in the form the API server keeps.

It is the controller's only memory: the failures of each worker and the last spec without faults are
kept here, so that a new controller goes on where the old one stopped. It holds no time that moves
by itself (upstream's `lastReconcileTime`), since the status is written only when it changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from controller.clock import format_time, parse_time
from controller.ledger import WorkerRecord
from controller.scaling import Memory


class ConditionType(StrEnum):
    """What can be said of a job."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One statement about a job, and since when it holds."""

    type: str
    holds: bool
    reason: str
    message: str
    last_update: datetime
    last_transition: datetime

    @classmethod
    def read(cls, source: Mapping[str, Any]) -> "Condition":
        """Read a condition from its JSON; a time that is missing is the beginning of time."""
        never = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
        transition = parse_time(source.get("lastTransitionTime")) or never
        return cls(
            type=source["type"],
            holds=source["status"] == "True",
            reason=source.get("reason", ""),
            message=source.get("message", ""),
            last_update=parse_time(source.get("lastUpdateTime")) or transition,
            last_transition=transition,
        )

    def write(self) -> dict[str, Any]:
        """Return the condition's JSON."""
        return {
            "type": self.type,
            "status": "True" if self.holds else "False",
            "reason": self.reason,
            "message": self.message,
            "lastUpdateTime": format_time(self.last_update),
            "lastTransitionTime": format_time(self.last_transition),
        }


@dataclass(frozen=True, kw_only=True)
class Status:
    """All that is known of a job.

    Attributes:
        active, succeeded, failed: workers counted by what they do now.
        start: when the job was first (or, after a suspension, again) allowed to run.
        completion: when it Succeeded or Failed for good.
        training_ended: when the first worker succeeded.
        workers: what happened to each worker, by index.
        last_valid_spec: the JSON of the newest spec without faults.
        scaling: how many workers are wanted, where the job follows capacity; else None.
    """

    conditions: tuple[Condition, ...] = ()
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    start: datetime | None = None
    completion: datetime | None = None
    training_ended: datetime | None = None
    observed_generation: int = 0
    workers: Mapping[int, WorkerRecord] = field(default_factory=dict)
    last_valid_spec: Mapping[str, Any] | None = None
    scaling: Memory | None = None

    @classmethod
    def read(cls, source: Mapping[str, Any]) -> "Status":
        """Read a status from its JSON; what upstream's controller wrote is read too."""
        counts = (source.get("replicaStatuses") or {}).get("Worker") or {}
        return cls(
            conditions=tuple(Condition.read(item) for item in source.get("conditions") or ()),
            active=counts.get("active", 0),
            succeeded=counts.get("succeeded", 0),
            failed=counts.get("failed", 0),
            start=parse_time(source.get("startTime")),
            completion=parse_time(source.get("completionTime")),
            training_ended=parse_time(source.get("trainingEndedTime")),
            observed_generation=source.get("observedGeneration", 0),
            workers={
                item["index"]: WorkerRecord.read(item) for item in source.get("workers") or ()
            },
            last_valid_spec=source.get("lastValidSpec"),
            scaling=Memory.read(source.get("scaling")),
        )

    def write(self) -> dict[str, Any]:
        """Return the status's JSON, without what is not known."""
        times = {
            "startTime": self.start,
            "completionTime": self.completion,
            "trainingEndedTime": self.training_ended,
        }
        written: dict[str, Any] = {
            "conditions": [condition.write() for condition in self.conditions],
            "replicaStatuses": {
                "Worker": {
                    "active": self.active,
                    "succeeded": self.succeeded,
                    "failed": self.failed,
                }
            },
            "observedGeneration": self.observed_generation,
            "workers": [self.workers[index].write(index) for index in sorted(self.workers)],
        }
        written |= {name: format_time(moment) for name, moment in times.items() if moment}
        if self.last_valid_spec is not None:
            written["lastValidSpec"] = dict(self.last_valid_spec)
        if self.scaling is not None:
            written["scaling"] = self.scaling.write()
        return written

    def condition(self, kind: ConditionType) -> Condition | None:
        """Return what was said of one thing; None where nothing was."""
        return next((known for known in self.conditions if known.type == kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Say whether a condition is True."""
        known = self.condition(kind)
        return known is not None and known.holds

    def saying(
        self, kind: ConditionType, *, holds: bool, reason: str, message: str, now: datetime
    ) -> "Status":
        """Return the status with one condition said anew.

        Its transition time moves only when its truth changes, its update time when its words do
        too.
        """
        known = self.condition(kind)
        if known and (known.holds, known.reason, known.message) == (holds, reason, message):
            return self
        turned = known is None or known.holds != holds
        new = Condition(
            type=kind,
            holds=holds,
            reason=reason,
            message=message,
            last_update=now,
            last_transition=now if turned or known is None else known.last_transition,
        )
        others = (
            (*self.conditions, new)
            if known is None
            else tuple(
                new if condition.type == kind else condition for condition in self.conditions
            )
        )
        return replace(self, conditions=others)

    def no_longer(
        self, kind: ConditionType, *, reason: str, message: str, now: datetime
    ) -> "Status":
        """Return the status with a condition turned False, where it was True before."""
        if not self.holds(kind):
            return self
        return self.saying(kind, holds=False, reason=reason, message=message, now=now)
