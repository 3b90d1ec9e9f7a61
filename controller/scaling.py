"""The desired number of workers of a job that follows the capacity of spot nodes, with hysteresis.

The functions are pure. The scheduler decides whether a worker fits: a worker that stays unscheduled for some time is
no longer desired. The count of schedulable workers only determines when to try again, because the scheduler reports
nothing about capacity that no pod requests. Constraints that this count ignores (pods of other
namespaces, a zonal volume, a quota) make a scale-up fail, and each failure doubles the delay before
the next scale-up. Capacity that does not exist yet must be requested periodically: a cluster autoscaler
adds nodes only for pending pods. After a request that was met, twice as many workers are requested, until
a request is not met: when a zone has machines again, the job soon has all of them.

The spec's `replicas` is never written: it belongs to the job's owner, and the next `pulumi up` would
revert it. The desired number is in the job's status.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from controller.timestamps import format_time, parse_time
from everstep.catalog.names import SCALING_CAPACITY, SCALING_FIXED


class Scaling(StrEnum):
    """The source of the number of workers: the spec, or the capacity of the nodes."""

    FIXED = SCALING_FIXED
    CAPACITY = SCALING_CAPACITY


class ScaleUpBasis(StrEnum):
    """Basis of the last scale-up, until its workers are scheduled or not."""

    NONE = ""
    SCHEDULABLE = "schedulable"  # the nodes seem to have capacity
    REQUEST = "request"  # pending pods request capacity from a cluster autoscaler


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Delays before the number of workers follows a change of capacity.

    Attributes:
        down_seconds: time after which an unscheduled worker is no longer desired. Longer than the
            scheduler and the autoscaler need; a node that comes later counts as new capacity.
        up_seconds: time for which capacity must exist before a worker is added.
        request_seconds: interval at which one more worker is requested without any sign of capacity,
            and the maximum delay between scale-ups with such a sign. After a request that was met, the next
            one follows after `up_seconds`.
    """

    down_seconds: float = 120.0
    up_seconds: float = 10.0
    request_seconds: float = 300.0


@dataclass(frozen=True, kw_only=True)
class ReplicaRange:
    """The spec's bounds and the initial number of workers."""

    replicas: int
    min_replicas: int
    max_replicas: int


@dataclass(frozen=True, kw_only=True)
class WorkerCapacity:
    """Observed capacity.

    Attributes:
        scheduled: workers that have a node.
        pending_since: creation times of the pods without a node.
        schedulable: further workers that the nodes could take.
    """

    scheduled: int
    pending_since: tuple[datetime, ...]
    schedulable: int


@dataclass(frozen=True, kw_only=True)
class ScalingState:
    """The part of the job's status about its number of workers.

    Attributes:
        desired: desired workers; 0 suspends the job until there is capacity.
        since: time of the last change of `desired`.
        replicas: the spec's number when it was last followed; a different number is an edit.
        reason: explanation of `desired`.
        capacity_since: time since which capacity for more workers has existed; None without such capacity.
        basis: basis of the last scale-up, until its workers are scheduled or not.
        failed_scale_ups: consecutive scale-ups whose expected capacity did not exist.
        met_requests: consecutive requests after which all workers had a node.
    """

    desired: int
    since: datetime
    replicas: int
    reason: str = ""
    capacity_since: datetime | None = None
    basis: ScaleUpBasis = ScaleUpBasis.NONE
    failed_scale_ups: int = 0
    met_requests: int = 0

    @classmethod
    def from_json(cls, source: Mapping[str, Any] | None) -> "ScalingState | None":
        """Parse the JSON in a job's status; None if it is missing or was written by an older controller."""
        since = parse_time((source or {}).get("since"))
        if not source or since is None or "desired" not in source:
            return None
        return cls(
            desired=source["desired"],
            since=since,
            replicas=source["replicas"],
            reason=source.get("reason", ""),
            capacity_since=parse_time(source.get("capacitySince")),
            basis=ScaleUpBasis(source.get("basis", "")),
            failed_scale_ups=source.get("failedRaises", 0),
            met_requests=source.get("metRequests", 0),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON, without empty values."""
        optional = {
            "reason": self.reason,
            "capacitySince": format_time(self.capacity_since) if self.capacity_since else None,
            "basis": str(self.basis),
            "failedRaises": self.failed_scale_ups,
            "metRequests": self.met_requests,
        }
        fixed = {
            "desired": self.desired, "since": format_time(self.since), "replicas": self.replicas,
        }  # fmt: skip
        return fixed | {key: value for key, value in optional.items() if value}


def desired_replicas(
    requested: ReplicaRange,
    capacity: WorkerCapacity,
    previous: ScalingState | None,
    now: datetime,
    timeouts: Timeouts,
) -> tuple[ScalingState, datetime | None]:
    """Return the desired number of workers, and the time at which it may change without an event.

    The number is 0 or from `min_replicas` to `max_replicas`. An edit of the spec takes effect immediately,
    a loss of capacity after a worker has been pending for some time, and a gain after it has lasted for some time.
    """
    state = _settle_scale_up(_apply_edit(requested, previous, now), capacity)
    state = (
        _scale_down(state, requested, capacity, now, timeouts)
        or _scale_up(state, requested, capacity, now, timeouts)
        or state
    )
    state = replace(state, capacity_since=_capacity_since(state, requested, capacity, now))
    return state, _wake_time(state, requested, capacity, now, timeouts)


def _apply_edit(
    requested: ReplicaRange, previous: ScalingState | None, now: datetime
) -> ScalingState:
    """Follow an edit of the spec; a new bound applies immediately unless the job is suspended."""
    desired = requested.replicas if previous is None else previous.desired
    reason = f"the spec requests {requested.replicas}"
    if previous is not None and previous.replicas == requested.replicas:
        reason = f"the spec allows {requested.min_replicas} to {requested.max_replicas}"
    elif previous is not None:
        desired = requested.replicas
    if desired:
        desired = min(max(desired, requested.min_replicas), requested.max_replicas)
    if previous is not None and desired == previous.desired:
        return replace(previous, replicas=requested.replicas)
    return ScalingState(desired=desired, since=now, replicas=requested.replicas, reason=reason)


def _settle_scale_up(state: ScalingState, capacity: WorkerCapacity) -> ScalingState:
    """Mark a scale-up as successful once all workers are scheduled."""
    if state.basis is ScaleUpBasis.NONE or capacity.scheduled < state.desired:
        return state
    met_requests = state.met_requests + (state.basis is ScaleUpBasis.REQUEST)
    return replace(state, basis=ScaleUpBasis.NONE, failed_scale_ups=0, met_requests=met_requests)


def _scale_down(
    state: ScalingState,
    requested: ReplicaRange,
    capacity: WorkerCapacity,
    now: datetime,
    timeouts: Timeouts,
) -> ScalingState | None:
    """Return the state without overdue pending workers, or with 0 below the minimum; None without a change."""
    overdue = now - timedelta(seconds=timeouts.down_seconds)
    unscheduled = sum(since <= overdue for since in capacity.pending_since)
    # More pods than desired remain after an edit, or while the API server refuses a deletion.
    workers = max(capacity.scheduled + len(capacity.pending_since), state.desired)
    remaining = min(workers - unscheduled, state.desired)
    if remaining == state.desired:
        return None
    reason = f"{state.desired - remaining} of {state.desired} found no node"
    if remaining < requested.min_replicas:
        remaining, reason = 0, f"{reason}, and {requested.min_replicas} are needed to train"
    return replace(
        state,
        desired=remaining,
        since=now,
        reason=reason,
        basis=ScaleUpBasis.NONE,
        failed_scale_ups=state.failed_scale_ups + (state.basis is ScaleUpBasis.SCHEDULABLE),
        met_requests=0,
    )


def _scale_up(
    state: ScalingState,
    requested: ReplicaRange,
    capacity: WorkerCapacity,
    now: datetime,
    timeouts: Timeouts,
) -> ScalingState | None:
    """Return the state with more workers if capacity has lasted or a request is due; else None."""
    since = _capacity_since(state, requested, capacity, now)
    if since is not None and since + _scale_up_delay(state, timeouts) <= now:
        desired = min(capacity.scheduled + capacity.schedulable, requested.max_replicas)
        return replace(
            state,
            desired=desired,
            since=now,
            basis=ScaleUpBasis.SCHEDULABLE,
            reason=f"the nodes have capacity for {desired}",
        )
    if not _may_request(state, requested, capacity) or _request_time(state, timeouts) > now:
        return None
    increase = 2 ** min(state.met_requests, 30)
    desired = min(max(state.desired + increase, requested.min_replicas), requested.max_replicas)
    reason = f"{state.desired} had a node, and {desired - state.desired} more are requested"
    return replace(state, desired=desired, since=now, basis=ScaleUpBasis.REQUEST, reason=reason)


def _capacity_since(
    state: ScalingState, requested: ReplicaRange, capacity: WorkerCapacity, now: datetime
) -> datetime | None:
    """Return the time since which more workers than desired could train; None if they could not."""
    possible = min(capacity.scheduled + capacity.schedulable, requested.max_replicas)
    if possible <= state.desired or possible < requested.min_replicas:
        return None
    return state.capacity_since or now


def _may_request(state: ScalingState, requested: ReplicaRange, capacity: WorkerCapacity) -> bool:
    """Return True if a worker may be added without a sign of capacity; never while a pod is pending."""
    return state.desired < requested.max_replicas and not capacity.pending_since


def _request_time(state: ScalingState, timeouts: Timeouts) -> datetime:
    """Return the time at which more workers may be requested: soon if the last request was met."""
    seconds = timeouts.up_seconds if state.met_requests else timeouts.request_seconds
    return state.since + timedelta(seconds=min(seconds, timeouts.request_seconds))


def _scale_up_delay(state: ScalingState, timeouts: Timeouts) -> timedelta:
    """Return how long capacity must last before a scale-up; each failed scale-up doubles it."""
    maximum = max(timeouts.request_seconds, timeouts.up_seconds)
    return timedelta(
        seconds=min(timeouts.up_seconds * 2.0 ** min(state.failed_scale_ups, 30), maximum)
    )


def _wake_time(
    state: ScalingState,
    requested: ReplicaRange,
    capacity: WorkerCapacity,
    now: datetime,
    timeouts: Timeouts,
) -> datetime | None:
    """Return the next time at which the number changes without an event."""
    down = timedelta(seconds=timeouts.down_seconds)
    times = [since + down for since in capacity.pending_since]
    if state.capacity_since is not None:
        times.append(state.capacity_since + _scale_up_delay(state, timeouts))
    if _may_request(state, requested, capacity):
        times.append(_request_time(state, timeouts))
    return min((time for time in times if time > now), default=None)
