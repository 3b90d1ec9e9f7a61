"""The status of an ElasticJob, as the API server stores it.

It is the controller's only persistent state: it has the failures of each worker and the last valid spec, so
that a restarted controller continues where the old controller stopped. It has no time that changes in
every pass (upstream's `lastReconcileTime`), since the status is written only when it changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from controller.exit_history import WorkerRecord
from controller.placement_state import PlacementState
from controller.scaling import ScalingState
from controller.spending_state import SpendingState
from controller.timestamps import format_time, parse_time


class ConditionType(StrEnum):
    """Types of conditions."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    PLACED = "Placed"  # only for a job with zones
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition of a job."""

    type: str
    is_true: bool
    reason: str
    message: str
    last_update: datetime
    last_transition: datetime

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "Condition":
        """Parse a condition's JSON; a missing transition time becomes 1970, a missing update time equals it."""
        epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
        transition = parse_time(source.get("lastTransitionTime")) or epoch
        return cls(
            type=source["type"],
            is_true=source["status"] == "True",
            reason=source.get("reason", ""),
            message=source.get("message", ""),
            last_update=parse_time(source.get("lastUpdateTime")) or transition,
            last_transition=transition,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the condition's JSON."""
        return {
            "type": self.type,
            "status": "True" if self.is_true else "False",
            "reason": self.reason,
            "message": self.message,
            "lastUpdateTime": format_time(self.last_update),
            "lastTransitionTime": format_time(self.last_transition),
        }


@dataclass(frozen=True, kw_only=True)
class Status:
    """The status of a job.

    Attributes:
        active, succeeded, failed: numbers of workers.
        start: time at which the job was allowed to run, first or after its last suspension.
        completion: time at which it Succeeded or Failed permanently.
        training_ended: time at which the first worker succeeded.
        workers: exit history of each worker, by index.
        last_valid_spec: JSON of the newest valid spec.
        scaling: desired number of workers of a job that follows capacity; else None.
        placement: zone and moves of a job with zones; else None.
        spending: spending and on-demand workers of a job with limits; else None.
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
    scaling: ScalingState | None = None
    placement: PlacementState | None = None
    spending: SpendingState | None = None

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "Status":
        """Parse a status's JSON, including a status of upstream's controller."""
        counts = (source.get("replicaStatuses") or {}).get("Worker") or {}
        return cls(
            conditions=tuple(Condition.from_json(item) for item in source.get("conditions") or ()),
            active=counts.get("active", 0),
            succeeded=counts.get("succeeded", 0),
            failed=counts.get("failed", 0),
            start=parse_time(source.get("startTime")),
            completion=parse_time(source.get("completionTime")),
            training_ended=parse_time(source.get("trainingEndedTime")),
            observed_generation=source.get("observedGeneration", 0),
            workers={
                item["index"]: WorkerRecord.from_json(item) for item in source.get("workers") or ()
            },
            last_valid_spec=source.get("lastValidSpec"),
            scaling=ScalingState.from_json(source.get("scaling")),
            placement=PlacementState.from_json(source.get("placement")),
            spending=SpendingState.from_json(source.get("spending")),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the status's JSON, without fields that are None."""
        times = {
            "startTime": self.start,
            "completionTime": self.completion,
            "trainingEndedTime": self.training_ended,
        }
        source: dict[str, Any] = {
            "conditions": [condition.to_json() for condition in self.conditions],
            "replicaStatuses": {
                "Worker": {
                    "active": self.active,
                    "succeeded": self.succeeded,
                    "failed": self.failed,
                }
            },
            "observedGeneration": self.observed_generation,
            "workers": [self.workers[index].to_json(index) for index in sorted(self.workers)],
        }
        source |= {name: format_time(time) for name, time in times.items() if time}
        if self.last_valid_spec is not None:
            source["lastValidSpec"] = dict(self.last_valid_spec)
        if self.scaling is not None:
            source["scaling"] = self.scaling.to_json()
        if self.placement is not None:
            source["placement"] = self.placement.to_json()
        if self.spending is not None:
            source["spending"] = self.spending.to_json()
        return source

    def condition(self, kind: ConditionType) -> Condition | None:
        """Return a condition; None if it was never set."""
        return next((item for item in self.conditions if item.type == kind), None)

    def is_true(self, kind: ConditionType) -> bool:
        """Return True if a condition is True."""
        condition = self.condition(kind)
        return condition is not None and condition.is_true

    def with_condition(
        self, kind: ConditionType, *, is_true: bool, reason: str, message: str, now: datetime
    ) -> "Status":
        """Return the status with a condition set.

        The transition time changes only with the condition's value; the update time also changes with its
        reason or message.
        """
        current = self.condition(kind)
        if current and (current.is_true, current.reason, current.message) == (
            is_true,
            reason,
            message,
        ):
            return self
        has_changed = current is None or current.is_true != is_true
        new = Condition(
            type=kind,
            is_true=is_true,
            reason=reason,
            message=message,
            last_update=now,
            last_transition=now if has_changed or current is None else current.last_transition,
        )
        conditions = (
            (*self.conditions, new)
            if current is None
            else tuple(
                new if condition.type == kind else condition for condition in self.conditions
            )
        )
        return replace(self, conditions=conditions)

    def with_condition_cleared(
        self, kind: ConditionType, *, reason: str, message: str, now: datetime
    ) -> "Status":
        """Return the status with a condition set to False if it is True."""
        if not self.is_true(kind):
            return self
        return self.with_condition(kind, is_true=False, reason=reason, message=message, now=now)
