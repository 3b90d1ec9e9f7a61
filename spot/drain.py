"""The decision about the notices: a pure function of notices, node, pods and clock.

Workers read the deadline from an annotation that is mounted as a file. The kubelet updates that file
only while the pod is not terminating, so workers are annotated one pass before their eviction.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everstep.catalog.timing import (
    CLOUD_DRAIN_SECONDS,
    CLOUD_DRAIN_SHARE,
    NODE_MARGIN_SECONDS,
    WORKER_NOTIFICATION_SECONDS,
)
from spot.annotation import WatchedNode, first_recorded_time, format_time, node_patch
from spot.notice import Effect, Notice, most_urgent


@dataclass(frozen=True, kw_only=True)
class NodePod:
    """A pod on the watched node.

    Attributes:
        is_ignored: True if drains ignore it: a pod of a DaemonSet, a static pod or a finished pod.
        is_worker: True for a worker of an ElasticJob.
        deadline: value of its deadline annotation; None if there is none.
        grace_seconds: its termination grace period, in seconds.
        ends_at: time at which it will be killed, as Unix time; None while it is not terminating.
    """

    namespace: str
    name: str
    uid: str
    is_ignored: bool = False
    is_worker: bool = False
    deadline: str | None = None
    grace_seconds: int = 30
    ends_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class DeadlineChange:
    """A pod, and the new value of its deadline annotation; None to remove the annotation."""

    pod: NodePod
    deadline: str | None


@dataclass(frozen=True, kw_only=True)
class Eviction:
    """A pod to evict, and its grace period."""

    pod: NodePod
    grace_seconds: int


@dataclass(frozen=True, kw_only=True)
class DrainDecision:
    """Changes of one pass.

    Attributes:
        reason: text for the log; constant as long as the reason is the same.
        patch: merge patch of the node; None if it is up to date.
        deadline_changes: deadline annotations to change.
        evictions: pods to evict.
        events_to_start: events that the cloud may start, because the node is empty.
        is_settled: True if nothing remains to be done until the notices change.
    """

    reason: str
    patch: Mapping[str, Any] | None = None
    deadline_changes: tuple[DeadlineChange, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    events_to_start: tuple[str, ...] = ()
    is_settled: bool = False


def decide(
    notices: Collection[Notice],
    node: WatchedNode,
    pods: Sequence[NodePod],
    now: float,
    *,
    first_passes: Mapping[str, float],
    cloud_drains: bool,
) -> DrainDecision:
    """Decide what to change in one pass.

    Args:
        notices: current notices for this machine.
        node: the node, read in this pass.
        pods: the pods on it, read in this pass.
        now: Unix time.
        first_passes: reason of a notice -> time of the first pass with it; used while the node does not record it.
        cloud_drains: False to drain immediately even if the cloud promises to drain.
    """
    notice = most_urgent(notices)
    noticed_at = _noticed_at(notice, node, first_passes, now)
    patch = node_patch(notice, node, noticed_at)
    deadline_changes = _deadline_changes(notice, pods)
    is_unchanged = patch is None and not deadline_changes
    if notice is None:
        return DrainDecision(
            reason="no notice",
            patch=patch,
            deadline_changes=deadline_changes,
            is_settled=is_unchanged,
        )
    reason = f"{notice.cloud} announces {notice.reason}"
    if notice.effect is not Effect.STOP:
        return DrainDecision(
            reason=f"{reason}: recorded",
            patch=patch,
            deadline_changes=deadline_changes,
            is_settled=is_unchanged,
        )
    remaining_pods = [pod for pod in pods if not pod.is_ignored]
    if not remaining_pods:
        identifiers = tuple(event.identifier for event in notices if event.may_start)
        return DrainDecision(
            reason=f"{reason}: the node is empty", patch=patch, events_to_start=identifiers
        )
    if cloud_drains and notice.cloud_drains and now < _cloud_drain_end(notice, noticed_at, now):
        return DrainDecision(
            reason=f"{reason}: waiting for the cloud to drain the node",
            patch=patch,
            deadline_changes=deadline_changes,
        )
    return DrainDecision(
        reason=f"{reason}: draining the node",
        patch=patch,
        deadline_changes=deadline_changes,
        evictions=_evictions(remaining_pods, deadline_changes, notice, noticed_at, now),
    )


def _deadline_changes(notice: Notice | None, pods: Sequence[NodePod]) -> tuple[DeadlineChange, ...]:
    """Return the workers whose deadline annotation is not the notice's deadline.

    A terminating worker is skipped: its file no longer changes. Without a deadline, as when the event has started, the
    workers keep their previous deadline: a worker without one would assume that its node stays.
    """
    deadline = None
    if notice is not None and notice.effect is Effect.STOP:
        if notice.deadline is None:
            return ()
        deadline = format_time(notice.deadline)
    return tuple(
        DeadlineChange(pod=pod, deadline=deadline)
        for pod in pods
        if pod.is_worker and not pod.is_ignored and pod.ends_at is None and pod.deadline != deadline
    )


def _noticed_at(
    notice: Notice | None, node: WatchedNode, first_passes: Mapping[str, float], now: float
) -> float:
    """Return the time since which the notice is handled, as Unix time.

    It is recorded in the node's annotation, so that it survives a restart of the watcher. If the API server refuses the
    annotation, the time of the first pass counts, so that the drain is not delayed.
    """
    if notice is None:
        return now
    recorded_at = first_recorded_time(notice, node)
    return first_passes.get(notice.reason, now) if recorded_at is None else recorded_at


def _cloud_drain_end(notice: Notice, noticed_at: float, now: float) -> float:
    """Return the time until which the watcher leaves the drain to the cloud, as Unix time."""
    if notice.deadline is None:
        return now
    share = (notice.deadline - noticed_at) * CLOUD_DRAIN_SHARE
    return noticed_at + min(CLOUD_DRAIN_SECONDS, share)


def _evictions(
    pods: Sequence[NodePod],
    deadline_changes: Sequence[DeadlineChange],
    notice: Notice,
    noticed_at: float,
    now: float,
) -> tuple[Eviction, ...]:
    """Return the pods to evict, each with its grace period or, if shorter, the remaining time.

    A terminating pod is evicted again only if it would outlive the machine. A worker that has not
    been notified yet waits for the next pass, but no longer than `WORKER_NOTIFICATION_SECONDS`.
    """
    deadline = now if notice.deadline is None else notice.deadline
    remaining_seconds = max(1, math.floor(deadline - NODE_MARGIN_SECONDS - now))
    is_notifying = notice.deadline is not None and now < noticed_at + WORKER_NOTIFICATION_SECONDS
    waiting_uids = {change.pod.uid for change in deadline_changes} if is_notifying else set[str]()
    return tuple(
        Eviction(pod=pod, grace_seconds=min(pod.grace_seconds, remaining_seconds))
        for pod in pods
        if pod.uid not in waiting_uids
        and (pod.ends_at is None or pod.ends_at > max(now + remaining_seconds, deadline))
    )
