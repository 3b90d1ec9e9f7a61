"""The calls that the watcher makes to the API server, on plain JSON.

The `kubernetes` package would take longer to import than Azure's notice lasts on a busy node.
"""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from spot.decide import Eviction, Node, Pod
from spot.wire import NoAnswer, Refused, Request, ask

TIMEOUT_SECONDS = 3.0
NOT_FOUND, CONFLICT, TOO_MANY = 404, 409, 429
ENDED = frozenset({"Succeeded", "Failed"})
STATIC = "kubernetes.io/config.mirror"  # a pod of the kubelet's own: evicting it only hides it
CREDENTIALS = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Cluster(Protocol):
    """The API server, as the watcher uses it.

    Every call raises `NoAnswer` where nobody answered, and `Refused` where the server would not.
    """

    def node(self) -> Node:
        """Read the node."""

    def pods(self) -> list[Pod]:
        """Read the pods on it."""

    def patch(self, patch: Mapping[str, Any]) -> None:
        """Change the node by a merge patch."""

    def evict(self, eviction: Eviction) -> bool:
        """Ask a pod to go; False where a disruption budget forbids it for now."""


@dataclass(frozen=True)
class ApiServer:
    """An API server, for the watcher of one node.

    Attributes:
        base: its address: https://10.0.0.1:443.
        node_name: the node.
        token_file: who the watcher is; read for each request, because the kubelet renews it.
        tls: whom to trust; None for plain HTTP.
    """

    base: str
    node_name: str
    token_file: Path
    tls: ssl.SSLContext | None

    def node(self) -> Node:
        """Read the node."""
        source = self._call("GET", self._node_path)
        spec, annotations = source.get("spec") or {}, source["metadata"].get("annotations") or {}
        return Node(unschedulable=bool(spec.get("unschedulable")), annotations=annotations)

    def pods(self) -> list[Pod]:
        """Read the pods on it."""
        here = quote(f"spec.nodeName={self.node_name}")
        # Not resourceVersion=0: what the API server remembers may be old, and a node that only
        # seems empty would be given back early.
        path = f"/api/v1/pods?fieldSelector={here}"
        return [read_pod(item) for item in self._call("GET", path)["items"]]

    def patch(self, patch: Mapping[str, Any]) -> None:
        """Change the node by a merge patch."""
        self._call("PATCH", self._node_path, patch, "application/merge-patch+json")

    def evict(self, eviction: Eviction) -> bool:
        """Ask a pod to go; False where a disruption budget forbids it for now."""
        pod = eviction.pod
        where = {"namespace": pod.namespace, "name": pod.name}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": where,
            "deleteOptions": {
                "gracePeriodSeconds": eviction.grace_seconds,
                "preconditions": {"uid": pod.uid},  # not one that took its name meanwhile
            },
        }
        path = "/api/v1/namespaces/{namespace}/pods/{name}/eviction".format(**where)
        gone = (NOT_FOUND, CONFLICT)
        answer = self._call("POST", path, body, settled=(*gone, TOO_MANY))
        return answer.get("code") != TOO_MANY

    @property
    def _node_path(self) -> str:
        return f"/api/v1/nodes/{quote(self.node_name)}"

    def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        kind: str = "application/json",
        settled: tuple[int, ...] = (),
    ) -> dict[str, Any]:
        """Make one call and give the JSON it answers with, also for an error in `settled`."""
        try:
            token = self.token_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise NoAnswer(f"no token to show to the API server: {error}") from error
        request = Request(
            method=method,
            path=path,
            headers={"Authorization": f"Bearer {token}", "Content-Type": kind},
            body=None if body is None else json.dumps(body).encode(),
        )
        answer = ask(self.base, request, TIMEOUT_SECONDS, self.tls)
        try:
            said = json.loads(answer.body)
        except ValueError as error:
            raise NoAnswer(f"{method} {path} was answered with no JSON") from error
        if answer.status >= 400 and answer.status not in settled:
            raise Refused(f"{method} {path}: {said.get('message')} (HTTP {answer.status})")
        return dict(said)


def read_pod(source: Mapping[str, Any]) -> Pod:
    """Read a pod's JSON."""
    metadata, spec = source["metadata"], source["spec"]
    owners = metadata.get("ownerReferences") or ()
    stays = (
        any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)
        or STATIC in (metadata.get("annotations") or {})
        or (source.get("status") or {}).get("phase") in ENDED
    )
    asked = metadata.get("deletionTimestamp")
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        stays=stays,
        grace_seconds=int(spec.get("terminationGracePeriodSeconds") or 0),
        ends_at=datetime.fromisoformat(asked).timestamp() if asked else None,
    )
