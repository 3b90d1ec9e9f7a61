"""The watcher's calls to the API server, as plain JSON.

On a busy node, importing the `kubernetes` package would take longer than Azure's notice lasts.
"""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from everstep.catalog.names import (
    DEADLINE_ANNOTATION,
    ELASTICJOB_GROUP,
    FINISHED_PHASES,
    GROUP_NAME_LABEL,
    JOB_NAMESPACE,
)
from spot.annotation import WatchedNode
from spot.drain import DeadlineChange, Eviction, NodePod
from spot.http import HttpRequest, RefusedError, UnavailableError, send

TIMEOUT_SECONDS = 3.0
NOT_FOUND, CONFLICT, TOO_MANY_REQUESTS = 404, 409, 429
STATIC_POD = "kubernetes.io/config.mirror"  # an eviction would delete only its mirror object
MERGE_PATCH = "application/merge-patch+json"
CREDENTIALS = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NodeClient(Protocol):
    """The API server, as the watcher uses it.

    Every call raises `UnavailableError` if there is no response, and `RefusedError` for an error status.
    """

    def node(self) -> WatchedNode:
        """Return the node."""

    def pods(self) -> list[NodePod]:
        """Return the pods on the node."""

    def patch_node(self, patch: Mapping[str, Any]) -> None:
        """Apply a merge patch to the node."""

    def set_deadline(self, change: DeadlineChange) -> None:
        """Set or remove the deadline annotation of a pod; do nothing if the pod is gone."""

    def evict(self, eviction: Eviction) -> bool:
        """Evict a pod; return False if a disruption budget does not allow it now."""


@dataclass(frozen=True)
class ApiServer:
    """An API server, for the watcher of one node.

    Attributes:
        base_url: address, as in https://10.0.0.1:443.
        node_name: name of the node.
        token_file: the watcher's token; read for each request, because the kubelet renews it.
        tls: trusted certificates; None for plain HTTP.
    """

    base_url: str
    node_name: str
    token_file: Path
    tls: ssl.SSLContext | None

    def node(self) -> WatchedNode:
        """Return the node."""
        source = self._call("GET", self._node_path)
        spec, annotations = source.get("spec") or {}, source["metadata"].get("annotations") or {}
        return WatchedNode(unschedulable=bool(spec.get("unschedulable")), annotations=annotations)

    def pods(self) -> list[NodePod]:
        """Return the pods of the job's namespace on the node.

        Only this namespace is read: otherwise the token of each node could read and evict the pods of every
        namespace. All other pods on spot nodes belong to DaemonSets, which a drain ignores.

        The request does not set resourceVersion=0: the API server's cache may be stale, and a node that
        only seems empty would be released too early.
        """
        selector = quote(f"spec.nodeName={self.node_name}")
        path = f"/api/v1/namespaces/{JOB_NAMESPACE}/pods?fieldSelector={selector}"
        return [read_pod(item) for item in self._call("GET", path)["items"]]

    def patch_node(self, patch: Mapping[str, Any]) -> None:
        """Apply a merge patch to the node."""
        self._call("PATCH", self._node_path, patch, content_type=MERGE_PATCH)

    def set_deadline(self, change: DeadlineChange) -> None:
        """Set or remove the deadline annotation of a pod; do nothing if the pod is gone."""
        pod = change.pod
        annotations = {DEADLINE_ANNOTATION: change.deadline}
        body = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        accepted_statuses = (NOT_FOUND, CONFLICT)  # 409: another pod has that name now
        self._call(
            "PATCH", path, body, content_type=MERGE_PATCH, accepted_statuses=accepted_statuses
        )

    def evict(self, eviction: Eviction) -> bool:
        """Evict a pod; return False if a disruption budget does not allow it now."""
        pod = eviction.pod
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "deleteOptions": {
                "gracePeriodSeconds": eviction.grace_seconds,
                "preconditions": {"uid": pod.uid},  # not a newer pod of the same name
            },
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        accepted_statuses = (NOT_FOUND, CONFLICT, TOO_MANY_REQUESTS)
        response = self._call("POST", path, body, accepted_statuses=accepted_statuses)
        return response.get("code") != TOO_MANY_REQUESTS

    @property
    def _node_path(self) -> str:
        return f"/api/v1/nodes/{quote(self.node_name)}"

    def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        accepted_statuses: tuple[int, ...] = (),
    ) -> dict[str, Any]:
        """Make a call and return its JSON, even for an error status in `accepted_statuses`.

        Raises:
            RefusedError: the response has another error status, or an error status without JSON.
            UnavailableError: the token cannot be read, there is no response, or the response is not a JSON object.
        """
        try:
            token = self.token_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise UnavailableError(f"the token cannot be read: {error}") from error
        request = HttpRequest(
            method=method,
            path=path,
            headers={"Authorization": f"Bearer {token}", "Content-Type": content_type},
            body=None if body is None else json.dumps(body).encode(),
        )
        response = send(self.base_url, request, TIMEOUT_SECONDS, self.tls)
        content = _json_object(response.body)
        if response.status >= 400 and (content is None or response.status not in accepted_statuses):
            # An overloaded API server, or a proxy before it, responds with plain text.
            text = response.body.decode(errors="replace").strip()
            message = (content or {}).get("message") or text
            raise RefusedError(f"{method} {path}: {message} (HTTP {response.status})")
        if content is None:
            raise UnavailableError(f"{method} {path}: the response is not a JSON object")
        return content


def _json_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a body; None if there is none."""
    try:
        content = json.loads(body)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def read_pod(source: Mapping[str, Any]) -> NodePod:
    """Parse a pod's JSON."""
    metadata, spec = source["metadata"], source["spec"]
    annotations = metadata.get("annotations") or {}
    owners = metadata.get("ownerReferences") or ()
    ignored = (
        any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)
        or STATIC_POD in annotations
        or (source.get("status") or {}).get("phase") in FINISHED_PHASES
    )
    deletion_time = metadata.get("deletionTimestamp")
    return NodePod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        is_ignored=ignored,
        is_worker=(metadata.get("labels") or {}).get(GROUP_NAME_LABEL) == ELASTICJOB_GROUP,
        deadline=annotations.get(DEADLINE_ANNOTATION),
        grace_seconds=int(spec.get("terminationGracePeriodSeconds") or 0),
        ends_at=datetime.fromisoformat(deletion_time).timestamp() if deletion_time else None,
    )
