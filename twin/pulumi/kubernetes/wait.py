"""Waits for an object to become ready or to be gone, and explains why it does not."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twin.pulumi.kubernetes.cluster import Cluster
from twin.pulumi.kubernetes.errors import (
    NotReadyError,
    RefusedError,
    UnknownKindError,
    UnreachableError,
)
from twin.pulumi.kubernetes.objects import Reference
from twin.pulumi.kubernetes.readiness import Failed, Ready, Related, Waiting, assess
from twin.pulumi.provider.convert import Object
from twin.pulumi.provider.errors import ProviderError

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, PAUSE_GROWTH = 0.1, 2.0, 1.5
# An image may yet appear, a crashed container may find what it needs: then the object counts as
# failed.
STUCK_SECONDS = 60.0
PATIENCE = "EVERSTEP_STUCK_SECONDS"
"""The variable by which a user gives it more time, or less."""
EVENTS_SHOWN = 6
# ElasticJob's pods carry the name of their job, as the upstream controller labels them.
JOB_NAME_LABEL = "job-name"


@dataclass
class Wait:
    """One operation's patience: how long, whom to tell, and whether the user has given up."""

    seconds: float
    tell: Callable[[str], None]
    cancelled: threading.Event
    began: float = field(default_factory=time.monotonic)
    _pause: float = FIRST_PAUSE_SECONDS

    @property
    def elapsed(self) -> float:
        """Return the seconds since the operation began."""
        return time.monotonic() - self.began

    @property
    def over(self) -> bool:
        """Tell whether the time is up."""
        return self.elapsed >= self.seconds

    def pause(self) -> None:
        """Wait a little longer each time; a cancellation ends the pause."""
        self.cancelled.wait(min(self._pause, max(self.seconds - self.elapsed, 0.01)))
        self._pause = min(self._pause * PAUSE_GROWTH, LONGEST_PAUSE_SECONDS)


def until_ready(cluster: Cluster, reference: Reference, first: Object, wait: Wait) -> Object:
    """Wait until an object is ready; return it as it then is.

    Args:
        cluster: where it is.
        reference: which it is.
        first: the object as it was applied.
        wait: for how long.

    Raises:
        NotReadyError: it failed, got stuck, took too long, or the user interrupted; carries the
            object and its events.
        ProviderError: it vanished.
    """
    stuck_since: float | None = None
    live, related = first, Related()
    while True:
        try:
            live = _present(cluster, reference)
            related = related_to(cluster, live)
            verdict = assess(live, related)
        except UnreachableError as error:  # an API server may restart while it is waited for
            verdict = Waiting(str(error), stuck=True)
        if isinstance(verdict, Ready):
            _await_served(cluster, live, wait)
            return live
        stuck_since = _since(stuck_since, verdict)
        if end := _end(verdict, stuck_since, wait):
            reason = f"{reference} {end}: {verdict.reason}"
            raise NotReadyError(live, [reason, *events(cluster, live, related.pods)])
        wait.tell(f"{verdict.reason} ({wait.elapsed:.0f} s)")
        wait.pause()


def _since(stuck_since: float | None, verdict: Waiting | Failed) -> float | None:
    """Note when an object got stuck; None while it is not."""
    if not (isinstance(verdict, Waiting) and verdict.stuck):
        return None
    return time.monotonic() if stuck_since is None else stuck_since


def _present(cluster: Cluster, reference: Reference) -> Object:
    live = cluster.get(reference)
    if live is None:
        raise ProviderError(
            f"{reference} was deleted by somebody else while it was being waited for"
        )
    return live


def _end(verdict: Waiting | Failed, stuck_since: float | None, wait: Wait) -> str:
    """Say why waiting ends here; empty while it goes on."""
    if isinstance(verdict, Failed):
        return "failed"
    if wait.cancelled.is_set():
        return "was not ready yet when the update was interrupted"
    patience = stuck_seconds()
    if stuck_since is not None and time.monotonic() - stuck_since >= patience:
        return f"got stuck ({patience:.0f} s without change)"
    return f"was not ready after {wait.seconds:.0f} s" if wait.over else ""


def stuck_seconds() -> float:
    """Return for how long an object may be stuck; a value that is no number is as if not given."""
    try:
        return float(os.environ[PATIENCE])
    except (KeyError, ValueError):
        return STUCK_SECONDS


def _await_served(cluster: Cluster, live: Mapping[str, Any], wait: Wait) -> None:
    """Wait until the kind of an established definition is served: the two are a moment apart."""
    if live.get("kind") != "CustomResourceDefinition":
        return
    spec = live["spec"]
    for version in spec["versions"]:
        if version.get("served"):
            cluster.kind(
                f"{spec['group']}/{version['name']}",
                spec["names"]["kind"],
                wait_seconds=max(wait.seconds - wait.elapsed, 1),
            )


def related_to(cluster: Cluster, live: Mapping[str, Any]) -> Related:
    """Fetch what belongs to an object, as far as its readiness depends on it."""
    kind, namespace = live["kind"], live["metadata"].get("namespace")
    if kind == "Service" and live["spec"].get("selector"):
        labels = {"kubernetes.io/service-name": live["metadata"]["name"]}
        return Related(
            endpoint_slices=cluster.list("discovery.k8s.io/v1", "EndpointSlice", namespace, labels)
        )
    if kind == "PersistentVolumeClaim" and live["spec"].get("storageClassName"):
        name = live["spec"]["storageClassName"]
        return Related(
            storage_class=cluster.get(Reference("storage.k8s.io/v1", "StorageClass", None, name))
        )
    labels = _pod_labels(live)
    return Related(pods=cluster.list("v1", "Pod", namespace, labels)) if labels else Related()


def _pod_labels(live: Mapping[str, Any]) -> dict[str, str]:
    if live["kind"] == "ElasticJob":
        return {JOB_NAME_LABEL: live["metadata"]["name"]}
    if live["kind"] == "Job":
        return {"batch.kubernetes.io/job-name": live["metadata"]["name"]}
    if live["apiVersion"] == "apps/v1":
        return dict(live["spec"].get("selector", {}).get("matchLabels") or {})
    return {}


def events(
    cluster: Cluster, live: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the latest warnings about an object and its pods, oldest first, as lines."""
    subjects = {each["metadata"]["uid"]: each for each in (live, *pods)}
    try:
        listed = cluster.list(
            "v1", "Event", live["metadata"].get("namespace"), fields="type=Warning"
        )
    except ProviderError:
        return []  # not worth losing the reason itself
    ours = [each for each in listed if each.get("involvedObject", {}).get("uid") in subjects]
    ours.sort(key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))
    return [_line(each) for each in ours[-EVENTS_SHOWN:]]


def _line(event: Mapping[str, Any]) -> str:
    subject = event["involvedObject"]
    times = f" (x{event['count']})" if event.get("count", 1) > 1 else ""
    message = str(event.get("message", "")).strip()
    return f"event: {subject['kind']} {subject['name']}: {event.get('reason')}: {message}{times}"


def until_gone(cluster: Cluster, reference: Reference, uid: str, wait: Wait) -> None:
    """Wait until an object is gone; another that has taken its name since does not count.

    Raises:
        ProviderError: it took too long, or the user interrupted; says what holds the object.
    """
    while True:
        try:
            live = cluster.get(reference)
        except UnknownKindError:
            return
        except RefusedError as error:
            if error.code == 403:
                return
            raise
        if live is None or live["metadata"]["uid"] != uid:
            return
        if wait.over or wait.cancelled.is_set():
            how = (
                "was interrupted"
                if wait.cancelled.is_set()
                else f"took more than {wait.seconds:.0f} s"
            )
            raise ProviderError(f"the deletion of {reference} {how}; {holder(live)}")
        wait.tell(f"{holder(live)} ({wait.elapsed:.0f} s)")
        wait.pause()


def holder(live: Mapping[str, Any]) -> str:
    """Say what keeps an object from going."""
    if live["kind"] == "Namespace":
        remaining = [
            str(each.get("message"))
            for each in live.get("status", {}).get("conditions") or ()
            if each.get("status") == "True" and each.get("message")
        ]
        if remaining:
            return "; ".join(remaining)
    finalizers = live["metadata"].get("finalizers") or []
    others = [each for each in finalizers if each != "foregroundDeletion"]
    if others:
        return (
            f"it is held by the finalizer {', '.join(others)}: whoever set it has yet to clean up. "
            "If nobody will, remove it from metadata.finalizers by hand"
        )
    if finalizers:
        return "what it owns is being deleted first"
    return "it is being shut down"
