"""What the cluster says: nodes, pods, the ElasticJob. Read afresh each time, never remembered.

The kubernetes package takes a second to import, so it is imported where it is used. Every request
has a deadline: a cluster that does not answer is reported within ten seconds, not waited for.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everstep.cli.workspace import NAMESPACE
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

CONNECT_SECONDS, READ_SECONDS = 3, 5
POOL_LABEL = "everstep/pool"
JOB_LABEL = "job-name"
WORKER_SELECTOR = "replica-type=worker"


@dataclass(frozen=True)
class NodeView:
    """A machine of the cluster."""

    name: str
    pool: str
    ready: bool
    schedulable: bool
    pods: tuple[str, ...] = ()


@dataclass(frozen=True)
class PodView:
    """A pod of ours."""

    name: str
    node: str
    phase: str
    ready: bool
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Condition:
    """One thing that the controller says about the job."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class ClusterView:
    """The cluster at one moment."""

    version: str
    nodes: tuple[NodeView, ...]
    pods: tuple[PodView, ...]
    conditions: tuple[Condition, ...]

    def condition(self, kind: str) -> Condition | None:
        """A condition of the job that is true now."""
        return next((one for one in self.conditions if one.type == kind), None)


class Cluster:
    """A connection to a cluster."""

    def __init__(self, client: "ApiClient") -> None:
        self._client = client

    @classmethod
    def connect(cls, kubeconfig: Path | None, context: str | None = None) -> "Cluster":
        """Read a kubeconfig; nothing is sent yet.

        Raises:
            EverstepError: there is no kubeconfig, or it cannot be used.
        """
        from kubernetes import client, config

        settings = client.Configuration()
        settings.retries = False
        try:
            config.load_kube_config(  # type: ignore[no-untyped-call]  # kubernetes has no types
                config_file=str(kubeconfig) if kubeconfig else None,
                context=context,
                client_configuration=settings,
                persist_config=False,
            )
        except (config.ConfigException, OSError) as error:
            raise EverstepError(
                f"the kubeconfig {kubeconfig or '($KUBECONFIG)'} cannot be used: {error}",
                "`everstep up` starts a local cluster; for one of your own name its kubeconfig in "
                "the stack file, under everstep:cluster.",
            ) from None
        settings.retries = False
        return cls(client.ApiClient(settings))

    def view(self, job: str) -> ClusterView:
        """Nodes, pods of ours and the job's conditions, as they are now.

        Raises:
            EverstepError: the cluster does not answer.
        """
        pods = self._get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        nodes = self._get("/api/v1/nodes")["items"]
        version = self._get("/version")["gitVersion"]
        views = tuple(pod_view(pod) for pod in pods)
        return ClusterView(
            version=str(version),
            nodes=tuple(node_view(node, views) for node in nodes),
            pods=views,
            conditions=self.conditions(job),
        )

    def check(self) -> str:
        """Ask for the version: the cheapest proof that the cluster answers.

        Raises:
            EverstepError: it does not.
        """
        return str(self._get("/version")["gitVersion"])

    def conditions(self, job: str) -> tuple[Condition, ...]:
        """What is true of the job; empty where there is no such job."""
        path = f"/apis/elastic.pytorch.org/v1alpha1/namespaces/{NAMESPACE}/elasticjobs/{job}"
        found = self._get(path, missing={})
        said = (found.get("status") or {}).get("conditions") or []
        return tuple(
            Condition(str(one["type"]), str(one.get("reason", "")), str(one.get("message", "")))
            for one in said
            if one.get("status") == "True"
        )

    def running_worker(self, job: str) -> str | None:
        """The name of a worker that runs and is ready, if any."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={JOB_LABEL}%3D{job}"
        pods = [pod_view(pod) for pod in self._get(path)["items"]]
        return next((pod.name for pod in pods if pod.phase == "Running" and pod.ready), None)

    def shell(self, pod: str, script: str) -> str:
        """Run a script in a pod and give what it prints."""
        from kubernetes import client
        from kubernetes.stream import stream

        return str(
            stream(
                client.CoreV1Api(self._client).connect_get_namespaced_pod_exec,
                pod,
                NAMESPACE,
                command=["sh", "-c", script],
                stdout=True,
                stderr=False,
                stdin=False,
                tty=False,
                _request_timeout=READ_SECONDS,
            )
        )

    def _get(self, path: str, missing: dict[str, Any] | None = None) -> dict[str, Any]:
        """GET a path as JSON; `missing` is the answer for what is not there."""
        from urllib3.exceptions import HTTPError

        asked = self._client.param_serialize(
            "GET",
            path,
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*asked, _request_timeout=(CONNECT_SECONDS, READ_SECONDS))
            data = answer.read()  # type: ignore[no-untyped-call]  # kubernetes has no types
        except (HTTPError, OSError) as error:
            raise unreachable(self._client.configuration.host, error) from None
        if answer.status == HTTPStatus.NOT_FOUND and missing is not None:
            return missing
        if answer.status != HTTPStatus.OK:
            raise EverstepError(
                f"the API server refused GET {path}: {answer.status} {answer.reason}",
                "Is the kubeconfig's user allowed to read there?",
            )
        value = json.loads(data)
        return value if isinstance(value, dict) else {}


def unreachable(host: str, error: Exception) -> EverstepError:
    """The error for a cluster that does not answer."""
    reason = str(getattr(error, "reason", None) or error).rsplit(": ", 1)[-1]
    return EverstepError(
        f"the cluster at {host} does not answer: {reason}",
        "If it is the local one, `everstep up` starts it again.",
    )


def pod_view(pod: Mapping[str, Any]) -> PodView:
    """A pod from the API's JSON."""
    status = pod.get("status") or {}
    ready = _is_true(status.get("conditions"), "Ready")
    going = pod["metadata"].get("deletionTimestamp") is not None
    return PodView(
        name=str(pod["metadata"]["name"]),
        node=str(pod["spec"].get("nodeName") or ""),
        phase="Terminating" if going else str(status.get("phase", "Unknown")),
        ready=ready and not going,
        labels=pod["metadata"].get("labels") or {},
    )


def node_view(node: Mapping[str, Any], pods: Sequence[PodView]) -> NodeView:
    """A node from the API's JSON, with those of the pods that are on it."""
    name = str(node["metadata"]["name"])
    return NodeView(
        name=name,
        pool=str((node["metadata"].get("labels") or {}).get(POOL_LABEL, "")),
        ready=_is_true((node.get("status") or {}).get("conditions"), "Ready"),
        schedulable=not (node.get("spec") or {}).get("unschedulable", False),
        pods=tuple(sorted(pod.name for pod in pods if pod.node == name)),
    )


def _is_true(conditions: Sequence[Mapping[str, Any]] | None, kind: str) -> bool:
    return any(one["type"] == kind and one["status"] == "True" for one in conditions or ())
