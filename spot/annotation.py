"""The notice in the node's annotations: the only state of the watcher that survives a restart."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from everstep.catalog.names import ADVICE_ANNOTATION, NOTICE_ANNOTATION
from spot.notice import Effect, Notice


@dataclass(frozen=True, kw_only=True)
class WatchedNode:
    """The watcher's node.

    Attributes:
        unschedulable: True if it is cordoned, by anyone.
        annotations: all of its annotations.
    """

    unschedulable: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)


def node_patch(
    notice: Notice | None, node: WatchedNode, noticed_at: float
) -> dict[str, Any] | None:
    """Return the merge patch that makes the node reflect the notice; None if it already does.

    Args:
        notice: the most urgent notice; None if there is none.
        node: the node.
        noticed_at: time since which the notice is handled, as Unix time.
    """
    stops = notice is not None and notice.effect is Effect.STOP
    annotations = {
        key: value
        for key, value in _annotations(notice, node, noticed_at).items()
        if node.annotations.get(key) != value
    }
    patch: dict[str, Any] = {"metadata": {"annotations": annotations}} if annotations else {}
    if stops and not node.unschedulable:
        patch["spec"] = {"unschedulable": True}
    elif not stops and recorded_notice(node).get("cordoned") and node.unschedulable:
        patch["spec"] = {"unschedulable": None}
    return patch or None


def _annotations(
    notice: Notice | None, node: WatchedNode, noticed_at: float
) -> Mapping[str, str | None]:
    """Return the values of the watcher's annotations; None for an annotation to remove."""
    if notice is None:
        return {NOTICE_ANNOTATION: None, ADVICE_ANNOTATION: None}
    if notice.effect is Effect.ADVICE:
        # In a separate annotation: readers of the notice may assume that the node will stop.
        return {NOTICE_ANNOTATION: None, ADVICE_ANNOTATION: notice.reason}
    return {NOTICE_ANNOTATION: _encode(notice, node, noticed_at), ADVICE_ANNOTATION: None}


def _encode(notice: Notice, node: WatchedNode, noticed_at: float) -> str:
    """Return the annotation's value: reason, deadline, and the state that later passes need."""
    previous = recorded_notice(node)
    stops = notice.effect is Effect.STOP
    content = {
        "reason": notice.reason,
        "deadline": None if notice.deadline is None else format_time(notice.deadline),
        "cloud": notice.cloud,
        "leaves": stops,
        # The watcher must not lift a cordon that it did not set.
        "cordoned": stops and (bool(previous.get("cordoned")) or not node.unschedulable),
        "since": format_time(noticed_at),
    }
    return json.dumps(content, sort_keys=True)


def recorded_notice(node: WatchedNode) -> dict[str, Any]:
    """Return the notice in the node's annotation; empty if there is none that can be parsed."""
    try:
        content = json.loads(node.annotations.get(NOTICE_ANNOTATION) or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def first_recorded_time(notice: Notice, node: WatchedNode) -> float | None:
    """Return the time at which the notice was first recorded, as Unix time; None if it was not.

    The reason identifies the notice: its deadline may move.
    """
    content = recorded_notice(node)
    return _read_time(content.get("since")) if content.get("reason") == notice.reason else None


def format_time(seconds: float) -> str:
    """Return a Unix time in the format of Kubernetes."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read_time(value: object) -> float | None:
    """Parse the result of `format_time`; None if it is anything else."""
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None
