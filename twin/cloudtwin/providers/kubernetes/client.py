"""A Kubernetes client: objects as dictionaries, server-side apply, errors with their fix.

Credentials and TLS come from the `kubernetes` package (`connection`). Its dynamic client is not
used: it lists every API group before the first request, caches the result in a file that processes
share, and discovers everything again for a kind that is missing there, such as the kind of a new CRD.
Here a group version is discovered when one of its kinds is first needed.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import urllib3

from cloudtwin.providers.kubernetes.config import KubernetesConfig
from cloudtwin.providers.kubernetes.connection import connect
from cloudtwin.providers.kubernetes.errors import (
    ConflictError,
    RefusedError,
    UnknownKindError,
    UnreachableError,
)
from cloudtwin.providers.kubernetes.objects import DEFAULT_NAMESPACE, PATCH_FORCE, ObjectReference
from cloudtwin.providers.protocol.values import Object

USER_AGENT = "pulumi-kubernetes/cloudtwin"
# The first two limit the wait for an unreachable cluster, together to less than 10 s.
CONNECT_SECONDS = 3.0
API_PROBE_SECONDS = 5.0
READ_SECONDS = 60.0
NOT_FOUND, CONFLICT = 404, 409
DISCOVERY_PAUSE_SECONDS = 0.5
MAX_CAUSES = 10


@dataclass(frozen=True)
class ApiKind:
    """Location of a kind in the API.

    Attributes:
        path: path of the group version, such as /apis/apps/v1.
        plural: the resource name, such as deployments.
        namespaced: True if its objects are in namespaces.
    """

    path: str
    plural: str
    namespaced: bool

    def url(self, namespace: str | None, name: str = "") -> str:
        """Return the path of an object, of all objects of a namespace, or of all objects."""
        middle = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.path}{middle}/{self.plural}" + (f"/{name}" if name else "")


class ClusterClient:
    """A client of one API server, as one user. Thread-safe.

    Every request raises UnreachableError if the API server does not respond, and RefusedError if it refuses.
    """

    def __init__(self, config: KubernetesConfig) -> None:
        """Read the kubeconfig; nothing is sent yet.

        Raises:
            ProviderError: there is no kubeconfig, or it is not usable.
        """
        connection = connect(config)
        self._client = connection.client
        self.server = str(self._client.configuration.host)
        self.default_namespace = config.namespace or connection.namespace or DEFAULT_NAMESPACE
        self._kinds: dict[tuple[str, str], ApiKind] = {}
        self._lock = threading.Lock()
        self._reachable = False
        self._unreachable_error: UnreachableError | None = None

    def probe(self) -> None:
        """Check once that the API server responds; later calls repeat the first result.

        Raises:
            UnreachableError: the API server does not respond, or not in time.
        """
        with self._lock:
            if self._unreachable_error:
                raise self._unreachable_error
            if self._reachable:
                return
            try:
                self._request("GET", "/version", seconds=API_PROBE_SECONDS)
            except UnreachableError as error:
                self._unreachable_error = error
                raise
            except RefusedError:
                pass  # it responds; a missing permission shows in the operation itself
            self._reachable = True

    def kind(self, api_version: str, kind: str, *, wait_seconds: float = 0) -> ApiKind:
        """Return the location of a kind in the API.

        Args:
            api_version: group and version, such as apps/v1.
            kind: kind of the object, such as Deployment.
            wait_seconds: seconds to wait for the kind to appear after the creation of its CRD.

        Raises:
            UnknownKindError: the cluster does not serve the kind.
        """
        deadline = time.monotonic() + wait_seconds
        while (api_version, kind) not in self._kinds:
            self._discover(api_version)
            if (api_version, kind) in self._kinds:
                break
            if time.monotonic() >= deadline:
                raise UnknownKindError(
                    f"{self.server} does not serve the kind {kind} in {api_version}. If a "
                    "CustomResourceDefinition of this program defines it, make this resource depend "
                    "on it (depends_on); otherwise, check apiVersion and kind."
                )
            time.sleep(DISCOVERY_PAUSE_SECONDS)
        return self._kinds[api_version, kind]

    def _discover(self, api_version: str) -> None:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            response = self._request("GET", path)
        except RefusedError as error:
            if error.code == NOT_FOUND:
                return
            raise
        for resource in response.get("resources", ()):
            if "/" not in resource["name"]:
                self._kinds[api_version, resource["kind"]] = ApiKind(
                    path, resource["name"], resource["namespaced"]
                )

    def get(self, reference: ObjectReference) -> Object | None:
        """Return an object, or None if it does not exist."""
        kind = self.kind(reference.api_version, reference.kind)
        try:
            return self._request("GET", kind.url(reference.namespace, reference.name))
        except RefusedError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        labels: Mapping[str, str] | None = None,
        fields: str = "",
    ) -> Sequence[Object]:
        """Return the objects of a kind that have the labels; namespace None means all namespaces."""
        resource = self.kind(api_version, kind)
        query = {
            "labelSelector": ",".join(f"{key}={value}" for key, value in (labels or {}).items()),
            "fieldSelector": fields,
        }
        response = self._request(
            "GET", resource.url(namespace), {key: value for key, value in query.items() if value}
        )
        # Items of a list have no apiVersion and kind.
        return [
            {"apiVersion": api_version, "kind": kind, **item} for item in response.get("items", ())
        ]

    def apply(
        self,
        reference: ObjectReference,
        body: Object,
        *,
        manager: str,
        dry_run: bool,
        force: bool,
        wait_seconds: float = 0,
    ) -> Object:
        """Create or update an object by server-side apply, as a field manager.

        Raises:
            ConflictError: other field managers own fields of the body, and force is off.
            RefusedError: the API server refused the object.
            UnknownKindError: the kind did not appear within wait_seconds.
        """
        kind = self.kind(reference.api_version, reference.kind, wait_seconds=wait_seconds)
        query = {"fieldManager": manager, "fieldValidation": "Strict", "force": str(force).lower()}
        if dry_run:
            query["dryRun"] = "All"
        try:
            return self._request(
                "PATCH",
                kind.url(reference.namespace, reference.name),
                query,
                body,
                "application/apply-patch+yaml",
            )
        except ConflictError as error:
            raise _with_reference(reference, error) from None

    def delete(self, reference: ObjectReference, propagation: str) -> None:
        """Request an object's deletion. An absent object is not an error."""
        try:
            kind = self.kind(reference.api_version, reference.kind)
            options = {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": propagation,
            }
            self._request("DELETE", kind.url(reference.namespace, reference.name), body=options)
        except UnknownKindError:
            return  # its definition was deleted, and every object with it
        except RefusedError as error:
            if error.code != NOT_FOUND:
                raise

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        seconds: float = READ_SECONDS,
    ) -> Object:
        headers = {
            "Accept": "application/json",
            "Content-Type": content_type,
            "User-Agent": USER_AGENT,
        }
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = self.server.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        try:
            response = self._client.rest_client.pool_manager.request(
                method,
                url,
                headers=headers,
                body=None if body is None else json.dumps(body),
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds),
                retries=urllib3.Retry(total=1, connect=0, read=0, redirect=0, status=0, other=0),
            )
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(_unreachable_message(self.server, error)) from None
        status = _decode(response.data)
        if response.status >= 400:
            raise _refusal(response.status, status)
        return status


def _decode(data: bytes) -> Object:
    try:
        content = json.loads(data)
    except ValueError:
        return {"message": data.decode(errors="replace").strip()}
    return content if isinstance(content, dict) else {}


def _unreachable_message(server: str, error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    return (
        f"the cluster at {server} does not respond: {cause}. Check that it runs and that the "
        "kubeconfig belongs to it. If it no longer exists, remove its objects from the state with "
        "`pulumi state delete`."
    )


def _refusal(code: int, status: Object) -> RefusedError:
    reason, message = str(status.get("reason", "")), str(status.get("message", f"HTTP {code}"))
    causes = [
        cause
        for cause in status.get("details", {}).get("causes", ())
        if cause.get("reason") == "FieldManagerConflict"
    ]
    if code == CONFLICT and causes:
        lines = [f"{cause.get('field', '?')}: {cause.get('message', '')}" for cause in causes]
        return ConflictError(code, reason, "\n".join(lines))
    return RefusedError(code, reason, message)


def _with_reference(reference: ObjectReference, error: ConflictError) -> ConflictError:
    lines = str(error).splitlines()
    line_list = "\n".join(f"  - {line}" for line in lines[:MAX_CAUSES])
    remainder = f"\n  - and {len(lines) - MAX_CAUSES} more" if len(lines) > MAX_CAUSES else ""
    return ConflictError(
        error.code,
        error.reason,
        f"other field managers own fields of {reference} that this program sets:\n{line_list}{remainder}\n"
        f'To take them over, set the annotation {PATCH_FORCE}: "true" on the resource; to leave '
        "them, remove them from the program or list them in ignore_changes.",
    )
