"""Wait for an object to become ready or to be deleted, and report the reason if it does not.

A deletion is awaited even if the object has the annotation `pulumi.com/skipAwait`: with server-side apply, its
replacement could be applied to the object that is being deleted. The official provider then does not await the deletion
of a Namespace, Pod, ReplicationController, DaemonSet, Deployment, StatefulSet or Job (allowsSkipAwaitWithDelete in
provider/pkg/metadata/overrides.go).
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudtwin.providers.kubernetes.client import ClusterClient
from cloudtwin.providers.kubernetes.errors import (
    NotReadyError,
    RefusedError,
    UnknownKindError,
    UnreachableError,
)
from cloudtwin.providers.kubernetes.objects import WAIT_FOR, ObjectReference, annotation
from cloudtwin.providers.kubernetes.readiness import Failed, Ready, Related, Waiting, assess
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.values import Object
from cloudtwin.providers.timeouts import Timeouts

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, PAUSE_GROWTH = 0.1, 2.0, 1.5
# A missing image may still appear, and a crashed container may recover.
STUCK_SECONDS = 60.0
STUCK_VARIABLE = "CLOUDTWIN_STUCK_SECONDS"
"""Environment variable that overrides STUCK_SECONDS."""
MAX_EVENTS = 6
WORKLOADS = {"DaemonSet", "Deployment", "Job", "Pod", "StatefulSet"}
PERMISSIONS = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
"""Kinds whose deletion may revoke the client's permission to read them: a refusal then counts as the deletion."""
FORBIDDEN, TOO_MANY_REQUESTS, INTERNAL_SERVER_ERROR = 403, 429, 500
REVISION = "deployment.kubernetes.io/revision"
"""Annotation of a Deployment and its ReplicaSets."""


@dataclass
class Backoff:
    """Pauses between polls that grow up to a maximum.

    Attributes:
        timeouts: time limit of the operation.
    """

    timeouts: Timeouts
    _seconds: float = FIRST_PAUSE_SECONDS

    def pause(self) -> None:
        """Pause, each time a little longer, but not beyond the time limit."""
        self.timeouts.pause(min(self._seconds, max(self.timeouts.remaining, 0.01)))
        self._seconds = min(self._seconds * PAUSE_GROWTH, MAX_PAUSE_SECONDS)


def wait_until_ready(
    cluster: ClusterClient, reference: ObjectReference, applied_object: Object, timeouts: Timeouts
) -> Object:
    """Wait until an object is ready and return it.

    Args:
        cluster: the cluster.
        reference: the object.
        applied_object: the object as it was applied.
        timeouts: time limit of the operation.

    Raises:
        NotReadyError: the object failed, is stuck or not ready in time, or the user interrupted.
            Carries the object and its events.
        ProviderError: the object was deleted, the API server refuses to return it, or the kind that it defines is not
            served in time.
    """
    stuck_since: float | None = None
    live, related = applied_object, Related()
    backoff = Backoff(timeouts)
    while True:
        try:
            live = _existing(cluster, reference)
            related = related_to(cluster, live)
            verdict = assess(live, related)
        except (RefusedError, UnreachableError) as error:  # the API server may be restarting
            if isinstance(error, RefusedError) and not _is_transient(error):
                raise
            verdict = Waiting(str(error), stuck=True)
        if isinstance(verdict, Ready):
            _await_served(cluster, live, timeouts)
            return live
        stuck_since = _stuck_since(stuck_since, verdict)
        if end := _end(verdict, stuck_since, timeouts):
            reason = f"{reference} {end}: {verdict.reason}"
            raise NotReadyError(live, [reason, *events(cluster, live, related.pods)])
        timeouts.report(f"{verdict.reason} ({timeouts.elapsed:.0f} s)")
        backoff.pause()


def _stuck_since(stuck_since: float | None, verdict: Waiting | Failed) -> float | None:
    """Return the time since which an object is stuck, on the monotonic clock; None if it is not stuck."""
    if not (isinstance(verdict, Waiting) and verdict.stuck):
        return None
    return time.monotonic() if stuck_since is None else stuck_since


def _is_transient(error: RefusedError) -> bool:
    """Return True if the same request may succeed later: the server is overloaded or not ready."""
    return error.code == TOO_MANY_REQUESTS or error.code >= INTERNAL_SERVER_ERROR


def _existing(cluster: ClusterClient, reference: ObjectReference) -> Object:
    live = cluster.get(reference)
    if live is None:
        raise ProviderError(f"{reference} was deleted by another client before it was ready")
    return live


def _end(verdict: Waiting | Failed, stuck_since: float | None, timeouts: Timeouts) -> str:
    """Return the reason why the wait ends, as the end of a sentence; empty if it continues."""
    if isinstance(verdict, Failed):
        return "failed"
    if timeouts.cancelled.is_set():
        return "was not ready yet when the update was interrupted"
    limit = stuck_seconds()
    if stuck_since is not None and time.monotonic() - stuck_since >= limit:
        return f"has been stuck for {limit:.0f} s"
    return f"was not ready after {timeouts.seconds:.0f} s" if timeouts.expired else ""


def stuck_seconds() -> float:
    """Return the seconds for which an object may be stuck. An invalid value of the variable is ignored."""
    try:
        return float(os.environ[STUCK_VARIABLE])
    except (KeyError, ValueError):
        return STUCK_SECONDS


def _await_served(cluster: ClusterClient, live: Mapping[str, Any], timeouts: Timeouts) -> None:
    """Wait until the kind of an established definition is served, which takes a moment."""
    if live.get("kind") != "CustomResourceDefinition":
        return
    spec = live["spec"]
    for version in spec["versions"]:
        if version.get("served"):
            _await_kind(
                cluster, f"{spec['group']}/{version['name']}", spec["names"]["kind"], timeouts
            )


def _await_kind(cluster: ClusterClient, api_version: str, kind: str, timeouts: Timeouts) -> None:
    """Wait until a kind is served.

    Raises:
        UnknownKindError: the timeout passed or the user interrupted.
    """
    backoff = Backoff(timeouts)
    while True:
        try:
            cluster.kind(api_version, kind)
        except UnknownKindError:
            if timeouts.expired or timeouts.cancelled.is_set():
                raise
        else:
            return
        backoff.pause()


def related_to(cluster: ClusterClient, live: Mapping[str, Any]) -> Related:
    """Return the objects that an object's readiness depends on."""
    kind, namespace = live["kind"], live["metadata"].get("namespace")
    if kind == "Service" and live["spec"].get("selector"):
        labels = {"kubernetes.io/service-name": live["metadata"]["name"]}
        return Related(
            endpoint_slices=cluster.list("discovery.k8s.io/v1", "EndpointSlice", namespace, labels)
        )
    if kind == "PersistentVolumeClaim" and live["spec"].get("storageClassName"):
        name = live["spec"]["storageClassName"]
        return Related(
            storage_class=cluster.get(
                ObjectReference("storage.k8s.io/v1", "StorageClass", None, name)
            )
        )
    if annotation(live, WAIT_FOR) and kind not in WORKLOADS:
        return Related(pods=_owned_pods(cluster, live))
    labels = _pod_labels(live)
    if kind == "Deployment":
        return Related(pods=_newest_pods(cluster, live, labels))
    return Related(pods=cluster.list("v1", "Pod", namespace, labels)) if labels else Related()


def _owned_pods(
    cluster: ClusterClient, owner: Mapping[str, Any], labels: Mapping[str, str] | None = None
) -> list[Object]:
    """Return the pods with the labels that a controller created for an object."""
    namespace = owner["metadata"].get("namespace")
    return [pod for pod in cluster.list("v1", "Pod", namespace, labels) if _is_owned(pod, owner)]


def _newest_pods(
    cluster: ClusterClient, live: Mapping[str, Any], labels: Mapping[str, str]
) -> list[Object]:
    """Return the pods of a Deployment's newest revision.

    The previous pods run until the new ones are available. If they fail, which may be the reason for the update, this
    says nothing about the new ones.
    """
    namespace, revision = live["metadata"].get("namespace"), annotation(live, REVISION)
    return [
        pod
        for replica_set in cluster.list("apps/v1", "ReplicaSet", namespace, labels)
        if _is_owned(replica_set, live) and annotation(replica_set, REVISION) == revision
        for pod in _owned_pods(cluster, replica_set, labels)
    ]


def _is_owned(item: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    references = item["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def _pod_labels(live: Mapping[str, Any]) -> dict[str, str]:
    if live["kind"] == "Job":
        return {"batch.kubernetes.io/job-name": live["metadata"]["name"]}
    if live["apiVersion"] == "apps/v1":
        return dict(live["spec"].get("selector", {}).get("matchLabels") or {})
    return {}


def events(
    cluster: ClusterClient, live: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the latest warnings about an object and its pods as lines, oldest first."""
    subjects = {subject["metadata"]["uid"]: subject for subject in (live, *pods)}
    try:
        warnings = cluster.list(
            "v1", "Event", live["metadata"].get("namespace"), fields="type=Warning"
        )
    except ProviderError:
        return []  # without events the reason is still shown
    related_warnings = [
        event for event in warnings if event.get("involvedObject", {}).get("uid") in subjects
    ]
    related_warnings.sort(
        key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or "")
    )
    return [_event_line(event) for event in related_warnings[-MAX_EVENTS:]]


def _event_line(event: Mapping[str, Any]) -> str:
    subject = event["involvedObject"]
    times = f" (x{event['count']})" if event.get("count", 1) > 1 else ""
    message = str(event.get("message", "")).strip()
    return f"event: {subject['kind']} {subject['name']}: {event.get('reason')}: {message}{times}"


def wait_until_gone(
    cluster: ClusterClient, reference: ObjectReference, uid: str, timeouts: Timeouts
) -> None:
    """Wait until an object is deleted. A new object with its name does not count.

    An object that cannot be read may still exist: only a 404 shows that it does not, as for the official provider
    (provider/pkg/await/condition/deleted.go in pulumi/pulumi-kubernetes, commit 0bad4ed4cb36, 2026-11-27). Here a 403
    also counts as the deletion, for the kinds in PERMISSIONS.

    Raises:
        ProviderError: the timeout passed or the user interrupted; names what blocks the deletion.
    """
    backoff = Backoff(timeouts)
    while True:
        try:
            live = cluster.get(reference)
        except UnknownKindError:
            return
        except (RefusedError, UnreachableError) as error:
            is_forbidden = isinstance(error, RefusedError) and error.code == FORBIDDEN
            if is_forbidden and reference.kind in PERMISSIONS:
                return
            blocker = f"it cannot be read, so it may still exist: {error}"
        else:
            if live is None or live["metadata"]["uid"] != uid:
                return
            blocker = deletion_blocker(live)
        if timeouts.expired or timeouts.cancelled.is_set():
            outcome = (
                "was interrupted"
                if timeouts.cancelled.is_set()
                else f"took more than {timeouts.seconds:.0f} s"
            )
            raise ProviderError(f"the deletion of {reference} {outcome}; {blocker}")
        timeouts.report(f"{blocker} ({timeouts.elapsed:.0f} s)")
        backoff.pause()


def deletion_blocker(live: Mapping[str, Any]) -> str:
    """Return the obstacle to the deletion of an object."""
    if live["kind"] == "Namespace":
        messages = [
            str(condition.get("message"))
            for condition in live.get("status", {}).get("conditions") or ()
            if condition.get("status") == "True" and condition.get("message")
        ]
        if messages:
            return "; ".join(messages)
    finalizers = live["metadata"].get("finalizers") or []
    other_finalizers = [finalizer for finalizer in finalizers if finalizer != "foregroundDeletion"]
    if other_finalizers:
        return (
            f"it is held by the finalizer {', '.join(other_finalizers)} until its controller has cleaned up. "
            "If that controller no longer exists, remove the finalizer from metadata.finalizers by hand"
        )
    if finalizers:
        return "its dependent objects are being deleted first"
    return "it is being shut down"
