"""Client that reads nodes, pods and the ElasticJob of a cluster, without a cache, and creates and deletes objects.

The package kubernetes takes a second to import, so it is imported on use. Every request has a timeout: a
cluster that does not respond is reported within ten seconds.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from everstep.catalog.names import (
    ELASTICJOB_API_VERSION,
    ELASTICJOB_PLURAL,
    JOB_NAME_LABEL,
    POOL_LABEL,
    SYSTEM_NAMESPACE,
)
from everstep.catalog.names import JOB_NAMESPACE as NAMESPACE
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, ApiException

CONNECT_SECONDS, READ_SECONDS = 3, 5
REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
UNREACHABLE_SECONDS = 60.0
"""Time without a response of the API server after which a command that waits for something ends."""

RETRY_SECONDS = 1.0
Response = TypeVar("Response")


@dataclass(frozen=True)
class NodeView:
    """A node of the cluster.

    Attributes:
        pool: value of its pool label; empty without one.
        schedulable: False if it is cordoned.
        pods: names of its pods in the job's namespace.
        created: Unix time at which it joined; None if unknown.
    """

    name: str
    pool: str
    ready: bool
    schedulable: bool
    pods: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    created: float | None = None


@dataclass(frozen=True)
class PodView:
    """A pod in the namespace of the job.

    Attributes:
        node: name of its node; empty before it is scheduled.
        phase: its phase; `Terminating` once it is being deleted.
        ready: True if its condition Ready is true and it is not being deleted.
        unscheduled_reason: reason why the scheduler has found no node for it; empty if there is none.
    """

    name: str
    node: str
    phase: str
    ready: bool
    labels: Mapping[str, str]
    unscheduled_reason: str = ""


@dataclass(frozen=True)
class Condition:
    """A condition of the job."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class ClusterView:
    """The cluster at one moment.

    Attributes:
        version: version of Kubernetes.
        nodes: all nodes.
        pods: pods in the namespace of the job.
        conditions: conditions of the job that are true.
        status: status of the job; empty without a job.
    """

    version: str
    nodes: tuple[NodeView, ...]
    pods: tuple[PodView, ...]
    conditions: tuple[Condition, ...]
    status: Mapping[str, Any] = field(default_factory=dict)

    def condition(self, kind: str) -> Condition | None:
        """Return a condition of the job if it is true."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


class ClusterUnreachableError(EverstepError):
    """The API server did not respond to a request in time; it may respond to the next one."""


class PodCommandError(EverstepError):
    """A command could not run in a pod, which may have ended."""


class RequestRefusedError(EverstepError):
    """The API server refused to let the kubeconfig's user read a path."""


class KubernetesClient:
    """A client of one cluster."""

    def __init__(self, client: "ApiClient") -> None:
        self._client = client

    @classmethod
    def connect(cls, kubeconfig: Path | None, context: str | None = None) -> "KubernetesClient":
        """Return a client for a kubeconfig; this sends no request.

        Raises:
            EverstepError: there is no kubeconfig, or it cannot be used.
        """
        import yaml
        from kubernetes import client, config

        settings = client.Configuration()
        try:
            config.load_kube_config(  # type: ignore[no-untyped-call]  # kubernetes has no types
                config_file=str(kubeconfig) if kubeconfig else None,
                context=context,
                client_configuration=settings,
                persist_config=False,
            )
        except (config.ConfigException, OSError, yaml.YAMLError) as error:
            raise _unusable(kubeconfig, str(error)) from None
        except (
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ):  # the package kubernetes does not check types
            raise _unusable(kubeconfig, "it is not a valid kubeconfig") from None
        settings.retries = False
        return cls(client.ApiClient(settings))

    def view(self, job: str) -> ClusterView:
        """Return nodes, pods and the job's conditions.

        Raises:
            EverstepError: a request failed, as in `get`.
        """
        pods = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        nodes = self.get("/api/v1/nodes")["items"]
        version = self.get("/version")["gitVersion"]
        views = tuple(pod_view(pod) for pod in pods)
        status = self.job_status(job)
        return ClusterView(
            version=str(version),
            nodes=tuple(node_view(node, views) for node in nodes),
            pods=views,
            conditions=true_conditions(status),
            status=status,
        )

    def pods_of_system(self) -> list[dict[str, Any]]:
        """Return the pods of the programs on nodes, such as the spot watcher."""
        response = self.get(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods", missing={})
        return list(response.get("items") or ())

    def version(self) -> str:
        """Return the version of Kubernetes, with the cheapest request.

        Raises:
            EverstepError: the request failed, as in `get`.
        """
        return str(self.get("/version")["gitVersion"])

    def job_status(self, job: str) -> dict[str, Any]:
        """Return the status of the job; empty if there is no such job."""
        path = f"/apis/{ELASTICJOB_API_VERSION}/namespaces/{NAMESPACE}/{ELASTICJOB_PLURAL}/{job}"
        return self.get(path, missing={}).get("status") or {}

    def conditions(self, job: str) -> tuple[Condition, ...]:
        """Return the conditions of the job that are true; empty if there is no such job."""
        return true_conditions(self.job_status(job))

    def running_worker(self, job: str) -> str | None:
        """Return the name of a running, ready worker; None if there is none."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={JOB_NAME_LABEL}%3D{job}"
        pods = [pod_view(pod) for pod in self.get(path)["items"]]
        return next((pod.name for pod in pods if pod.phase == "Running" and pod.ready), None)

    def shell(self, pod: str, script: str) -> str:
        """Run a shell script in a pod and return its standard output.

        Raises:
            ClusterUnreachableError: the cluster does not respond, or the command prints nothing for READ_SECONDS.
            PodCommandError: the command could not run or was cut off, for example because the pod has ended.
            EverstepError: the kubeconfig's user may not run commands in pods.
        """
        from kubernetes.client import ApiException

        try:
            return self._exec(pod, script)
        except ApiException as error:
            raise _command_error(self._client.configuration.host, pod, error) from None

    def _exec(self, pod: str, script: str) -> str:
        from kubernetes import client
        from kubernetes.stream import stream, ws_client
        from websocket import WebSocketException

        ws_client.WebSocket = _websocket_with_timeout()  # type: ignore[attr-defined]
        session = stream(
            client.CoreV1Api(self._client).connect_get_namespaced_pod_exec,
            pod,
            NAMESPACE,
            command=["sh", "-c", script],
            stdout=True,
            stderr=False,
            stdin=False,
            tty=False,
            _preload_content=False,  # otherwise the output ends without an error at the timeout
        )
        try:
            session.sock.settimeout(READ_SECONDS)
            return _output_of(session)
        except OSError as error:
            raise unreachable(self._client.configuration.host, error) from None
        except WebSocketException as error:
            raise PodCommandError(f"the command was cut off in the pod {pod}: {error}") from None
        finally:
            session.sock.shutdown()

    def newest_line(self, pod: str) -> str:
        """Return the newest line in the log of a pod; empty if there is none, or if the user may not read logs."""
        try:
            return self.text(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/log?tailLines=1").strip()
        except RequestRefusedError:
            return ""  # the line is optional; the user may have access to everything else

    def text(self, path: str) -> str:
        """Return the text at a path, such as the log of a pod; empty if the API server does not return it.

        Raises:
            EverstepError: the cluster does not respond, or the user may not read the path.
        """
        status, reason, data = self._send("GET", path)
        if status in REFUSALS:
            raise _failed_get(path, status, reason)
        return data.decode(errors="replace") if status == HTTPStatus.OK else ""

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object in a collection.

        Raises:
            EverstepError: the API server refuses the request or does not respond.
        """
        status, reason, data = self._send("POST", path, body)
        if status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            message = _message(data) or reason
            name = f"{body['kind']} {body['metadata']['name']}"
            raise EverstepError(f"the API server refused to create the {name}: {message}")

    def delete(self, path: str) -> None:
        """Delete an object and its dependents, if it exists.

        Raises:
            EverstepError: the API server refuses the request or does not respond.
        """
        status, reason, data = self._send("DELETE", path, {"propagationPolicy": "Background"})
        if status not in (HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.NOT_FOUND):
            message = _message(data) or reason
            raise EverstepError(f"the API server refused to delete {path}: {message}")

    def get(self, path: str, missing: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON object at a path, empty for another JSON value.

        Args:
            path: path of the API.
            missing: value to return if nothing exists at the path; None raises an error.

        Raises:
            ClusterUnreachableError: the cluster does not respond.
            RequestRefusedError: the user may not read the path.
            EverstepError: the API server returns another status, or a body that is not JSON.
        """
        status, reason, data = self._send("GET", path)
        if status == HTTPStatus.NOT_FOUND and missing is not None:
            return missing
        if status != HTTPStatus.OK:
            raise _failed_get(path, status, reason)
        try:
            value = json.loads(data)
        except ValueError:
            raise EverstepError(
                f"GET {path} failed: the response is not JSON",
                "Check that the kubeconfig's server is an API server, not a proxy or a login page.",
            ) from None
        return value if isinstance(value, dict) else {}

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, str, bytes]:
        """Return status, reason and body of a response.

        Raises:
            ClusterUnreachableError: the cluster does not respond.
        """
        from urllib3.exceptions import HTTPError

        request = self._client.param_serialize(
            method,
            path,
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = self._client.call_api(
                *request, _request_timeout=(CONNECT_SECONDS, READ_SECONDS)
            )
            data = response.read()  # type: ignore[no-untyped-call]  # kubernetes has no types
        except (HTTPError, OSError) as error:
            raise unreachable(self._client.configuration.host, error) from None
        return int(response.status), str(response.reason), bytes(data or b"")


@cache
def _websocket_with_timeout() -> type[Any]:
    """Return a class of web sockets with a timeout for the connection and its handshake.

    The package kubernetes sets none, so it waits endlessly for a server that accepts a connection and does not respond.
    """
    from websocket import WebSocket

    class WebSocketWithTimeout(WebSocket):
        def connect(self, url: str, **options: object) -> None:
            super().connect(url, timeout=READ_SECONDS, **options)  # type: ignore[no-untyped-call]

    return WebSocketWithTimeout


def retry_while_unreachable(
    request: Callable[[], Response],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Response:
    """Return the response to a request; repeat it while the API server does not respond in time.

    Args:
        request: a request that may be repeated.
        sleep: function that waits between two attempts.
        clock: a monotonic clock, seconds.

    Raises:
        ClusterUnreachableError: the API server has not responded for UNREACHABLE_SECONDS.
    """
    asked_at = clock()
    while True:
        try:
            return request()
        except ClusterUnreachableError:
            if clock() - asked_at > UNREACHABLE_SECONDS:
                raise
        sleep(RETRY_SECONDS)


def _output_of(session: Any) -> str:  # noqa: ANN401  kubernetes has no types
    """Return the whole output of a command.

    Args:
        session: an open WSClient.

    Raises:
        TimeoutError: the command printed nothing for READ_SECONDS and did not end.
    """
    parts: list[str] = []
    printed_at = time.monotonic()
    while session.is_open():
        session.update(timeout=READ_SECONDS)
        if part := session.read_all():
            parts.append(part)
            printed_at = time.monotonic()
        elif session.is_open() and time.monotonic() - printed_at >= READ_SECONDS:
            raise TimeoutError(f"a command printed nothing for {READ_SECONDS} s")
    return "".join(parts)


def _unusable(kubeconfig: Path | None, reason: str) -> EverstepError:
    """Return the error for a kubeconfig that cannot be loaded."""
    return EverstepError(
        f"the kubeconfig {kubeconfig or '($KUBECONFIG)'} cannot be used: {reason}",
        "`everstep up` starts a local cluster; for a cluster of your own, set its kubeconfig in "
        "the stack file, under everstep:cluster.",
    )


def _failed_get(path: str, status: int, reason: str) -> EverstepError:
    """Return the error for a failed GET."""
    if status not in REFUSALS:
        return EverstepError(
            f"GET {path} failed: the API server returned {status} {reason}",
            "Run the command again; if it repeats, check the API server: kubectl get --raw /readyz?verbose",
        )
    return RequestRefusedError(
        f"the API server refused GET {path}: {status} {reason}",
        "Allow the kubeconfig's user to read this path.",
    )


def _command_error(host: str, pod: str, error: "ApiException") -> BaseException:
    """Return the error for a command that a pod did not run.

    The package kubernetes wraps every error of the connection, even Ctrl-C, in an ApiException without a status.
    """
    from websocket import WebSocketTimeoutException

    cause = error.__context__
    if isinstance(cause, (KeyboardInterrupt, SystemExit)):
        return cause
    if isinstance(cause, (OSError, WebSocketTimeoutException)):
        return unreachable(host, cause)
    reason = str(error.reason).partition(" -+-+- ")[0]  # headers and body follow
    if getattr(cause, "status_code", None) in REFUSALS:
        return EverstepError(
            f"the API server refused to run a command in the pod {pod}: {reason}",
            "Allow the kubeconfig's user to create pods/exec.",
        )
    return PodCommandError(f"the command could not run in the pod {pod}: {reason}")


def _message(data: bytes) -> str:
    """Return the message of the API server's response; empty if it has none."""
    try:
        status = json.loads(data)
    except ValueError:
        return ""
    return str(status.get("message", "")) if isinstance(status, dict) else ""


def unreachable(host: str, error: Exception) -> ClusterUnreachableError:
    """Return the error for a cluster that does not respond."""
    reason = str(getattr(error, "reason", None) or error).rsplit(": ", 1)[-1]
    return ClusterUnreachableError(
        f"the cluster at {host} does not respond: {reason}",
        "If it is the local cluster, `everstep up` starts it again.",
    )


def true_conditions(status: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions in a job's status that are true."""
    return tuple(
        Condition(
            str(condition["type"]),
            str(condition.get("reason", "")),
            str(condition.get("message", "")),
        )
        for condition in status.get("conditions") or []
        if condition.get("status") == "True"
    )


def pod_view(pod: Mapping[str, Any]) -> PodView:
    """Return a pod from the API's JSON."""
    status = pod.get("status") or {}
    ready = _is_true(status.get("conditions"), "Ready")
    terminating = pod["metadata"].get("deletionTimestamp") is not None
    return PodView(
        name=str(pod["metadata"]["name"]),
        node=str(pod["spec"].get("nodeName") or ""),
        phase="Terminating" if terminating else str(status.get("phase", "Unknown")),
        ready=ready and not terminating,
        labels=pod["metadata"].get("labels") or {},
        unscheduled_reason=_unscheduled_reason(status),
    )


def _unscheduled_reason(status: Mapping[str, Any]) -> str:
    """Return the scheduler's reason why no node can run a pod; empty if there is none."""
    return next(
        (
            str(condition.get("message") or condition.get("reason", ""))
            for condition in status.get("conditions") or ()
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        ),
        "",
    )


def node_view(node: Mapping[str, Any], pods: Sequence[PodView]) -> NodeView:
    """Return a node from the API's JSON, with its pods."""
    name = str(node["metadata"]["name"])
    labels = node["metadata"].get("labels") or {}
    return NodeView(
        name=name,
        pool=str(labels.get(POOL_LABEL, "")),
        ready=_is_true((node.get("status") or {}).get("conditions"), "Ready"),
        schedulable=not (node.get("spec") or {}).get("unschedulable", False),
        pods=tuple(sorted(pod.name for pod in pods if pod.node == name)),
        labels=labels,
        created=unix_time(node["metadata"].get("creationTimestamp")),
    )


def unix_time(text: str | None) -> float | None:
    """Return a time of the API in Unix seconds; None for an empty text."""
    if not text:
        return None
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _is_true(conditions: Sequence[Mapping[str, Any]] | None, kind: str) -> bool:
    return any(
        condition["type"] == kind and condition["status"] == "True"
        for condition in conditions or ()
    )
