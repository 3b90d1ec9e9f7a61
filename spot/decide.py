"""What to do about a notice: a pure function of the notice, the node, its pods and the clock.

Nothing is remembered between passes. What has to outlive one, also a restart of the watcher, stands
in the node's annotation: since when the notice is known and whether it was we who cordoned.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from spot.notice import Effect, Notice, most_urgent

NOTICE = "everstep/notice"
ADVICE = "everstep/advice"

MARGIN_SECONDS = 2.0  # between the last pod's end and the machine's: to write, to unmount
PATIENCE_SHARE = 1 / 6  # of the notice left to a cloud that promises to drain: 5 s of Azure's 30,
PATIENCE_SECONDS = 20.0  # and at most this: as much of AWS' 120


@dataclass(frozen=True, kw_only=True)
class Node:
    """The node, as far as it matters here.

    Attributes:
        unschedulable: whether it is cordoned, by whomever.
        annotations: ours and others'.
    """

    unschedulable: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod on the node.

    Attributes:
        stays: whether no drain touches it: a DaemonSet's, a static one, one that has ended.
        grace_seconds: what it asks for between SIGTERM and SIGKILL.
        ends_at: when it will be killed, in seconds since 1970; None while nobody has asked it to go.
    """

    namespace: str
    name: str
    uid: str
    stays: bool = False
    grace_seconds: int = 30
    ends_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class Eviction:
    """One pod to be asked to go, and the time it gets."""

    pod: Pod
    grace_seconds: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one pass should change.

    Attributes:
        why: the reason, for the log; the same words as long as it is the same reason.
        patch: a merge patch of the node; None where it is as it should be.
        evict: pods to be asked to go.
        start: events that the cloud may begin with: the node is empty.
        settled: nothing is left to do, nor will be while no other notice comes.
    """

    why: str
    patch: Mapping[str, Any] | None = None
    evict: tuple[Eviction, ...] = ()
    start: tuple[str, ...] = ()
    settled: bool = False


def plan(
    notices: Collection[Notice], node: Node, pods: Sequence[Pod], now: float, *, cloud_drains: bool
) -> Plan:
    """Decide one pass.

    Args:
        notices: all that the cloud announces about this machine now.
        node: the node, read in this pass.
        pods: the pods on it, read in this pass.
        now: seconds since 1970.
        cloud_drains: whether to believe a cloud that promises to drain; False: never wait for it.
    """
    gravest = most_urgent(notices)
    patch = _patch(gravest, node, now)
    if gravest is None:
        return Plan(why="no notice", patch=patch, settled=patch is None)
    said = f"{gravest.cloud} says {gravest.reason}"
    if gravest.effect is not Effect.LEAVE:
        return Plan(why=f"{said}: written down", patch=patch, settled=patch is None)
    going = [pod for pod in pods if not pod.stays]
    if not going:
        start = tuple(one.identifier for one in notices if one.may_start)
        return Plan(why=f"{said}: the node is empty", patch=patch, start=start)
    if cloud_drains and gravest.cloud_drains and now < _patience_ends(gravest, node, now):
        return Plan(why=f"{said}: the cloud drains the node", patch=patch)
    evict = tuple(_evictions(going, gravest.deadline or now, now))
    return Plan(why=f"{said}: draining the node", patch=patch, evict=evict)


def _patch(gravest: Notice | None, node: Node, now: float) -> dict[str, Any] | None:
    """Give what must change on the node for it to say what is announced; None where it does."""
    ours = written(node)
    leaving = gravest is not None and gravest.effect is Effect.LEAVE
    cordoned_by_us = bool(ours.get("cordoned"))
    annotations = {
        key: wanted
        for key, wanted in _annotations(gravest, node, now).items()
        if node.annotations.get(key) != wanted
    }
    changes: dict[str, Any] = {"metadata": {"annotations": annotations}} if annotations else {}
    if leaving and not node.unschedulable:
        changes["spec"] = {"unschedulable": True}
    elif not leaving and cordoned_by_us and node.unschedulable:
        changes["spec"] = {"unschedulable": None}
    return changes or None


def _annotations(gravest: Notice | None, node: Node, now: float) -> dict[str, str | None]:
    """Give what our annotations must hold; None for one that must not be there."""
    if gravest is None:
        return {NOTICE: None, ADVICE: None}
    if gravest.effect is Effect.ADVICE:
        # Under a name of its own: who reads `everstep/notice` may take it that the node goes.
        return {NOTICE: None, ADVICE: gravest.reason}
    return {NOTICE: _encode(gravest, node, now), ADVICE: None}


def _encode(gravest: Notice, node: Node, now: float) -> str:
    """Write a notice down: reason, deadline, and what later passes need to know."""
    before = written(node)
    leaving = gravest.effect is Effect.LEAVE
    said = {
        "reason": gravest.reason,
        "deadline": _moment(gravest.deadline),
        "cloud": gravest.cloud,
        "leaves": leaving,
        # A cordon that was there before us is not ours to lift.
        "cordoned": leaving and (bool(before.get("cordoned")) or not node.unschedulable),
        "since": before.get("since") if _same(before, gravest) else _moment(now),
    }
    return json.dumps(said, sort_keys=True)


def _same(before: Mapping[str, Any], notice: Notice) -> bool:
    """Say whether a notice is the one written down; its deadline may have moved meanwhile."""
    return before.get("reason") == notice.reason and _seconds(before.get("since")) is not None


def written(node: Node) -> dict[str, Any]:
    """Read the notice on a node; empty where there is none, or none of ours."""
    try:
        said = json.loads(node.annotations.get(NOTICE) or "{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _patience_ends(notice: Notice, node: Node, now: float) -> float:
    """Say until when a cloud that promises to drain is left to do it."""
    before = written(node)
    since = _seconds(before.get("since")) if _same(before, notice) else now
    if since is None or notice.deadline is None:
        return now
    return since + min(PATIENCE_SECONDS, (notice.deadline - since) * PATIENCE_SHARE)


def _evictions(pods: Sequence[Pod], deadline: float, now: float) -> list[Eviction]:
    """Give the pods to ask, each with the longest grace that the machine still has, if any.

    A pod that was asked already is asked again only where it would outlive the machine.
    """
    left = max(1, math.floor(deadline - MARGIN_SECONDS - now))
    found = []
    for pod in pods:
        grace = min(pod.grace_seconds, left)
        if pod.ends_at is None or pod.ends_at > max(now + left, deadline):
            found.append(Eviction(pod=pod, grace_seconds=grace))
    return found


def _moment(seconds: float | None) -> str | None:
    """Write seconds since 1970 as Kubernetes does."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(moment: object) -> float | None:
    """Read what `_moment` wrote."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return None
