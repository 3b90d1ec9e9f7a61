"""The controller's calls to the API server, as plain JSON.

The typed models of the `kubernetes` package would parse every field of every pod to read ten of
them, and would drop newer fields when an object is written back. Its client provides credentials
and connections. Reads never come from a cache, so that no pass acts on stale objects.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast
from urllib.parse import quote

from kubernetes import client, config

from controller import placeholders, pods
from controller.actions import Deletion, Event
from controller.api import ElasticJob, Spec
from controller.capacity import count_schedulable
from controller.objects import Node, Placeholder, Pod, read_node, read_placeholder
from controller.server_clock import ServerClock
from controller.timestamps import format_time
from everstep.catalog.names import (
    BOUNDS_ANNOTATION,
    ELASTICJOB_API_VERSION,
    ELASTICJOB_GROUP,
    ELASTICJOB_KIND,
    ELASTICJOB_PLURAL,
    MAINTAINED_CONTROLLER,
    REPLICA_INDEX_LABEL,
)

CONFLICT, NOT_FOUND, INVALID, BAD_REQUEST = 409, 404, 422, 400
TIMEOUT_SECONDS = (5, 30)  # timeouts of the connection and of the response
LABEL_LENGTH = 63  # limit of Kubernetes for the value of a label; the name of a job may be longer
Json = Any  # the body of a response
JOBS_PATH = f"/apis/{ELASTICJOB_API_VERSION}"


class ApiError(Exception):
    """A response with an error status.

    Attributes:
        code: the HTTP status.
        message: the server's message.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {code})")
        self.code = code
        self.message = message


def client_configuration(kubeconfig: str | None) -> client.Configuration:
    """Return the address and the credentials of the API server.

    The source is the given kubeconfig, else the pod's service account, else $KUBECONFIG or ~/.kube/config.

    Requests have one attempt: urllib3 would make four, each with the whole timeout, and a failed pass is repeated
    anyway.
    """
    configuration = client.Configuration()
    configuration.retries = False
    load = cast("Any", config)  # the package has no types here
    if kubeconfig:
        load.load_kube_config(kubeconfig, client_configuration=configuration)
        return configuration
    try:
        load.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        load.load_kube_config(client_configuration=configuration)
    return configuration


@dataclass(frozen=True)
class KubernetesClient:
    """Client of the API server, with the calls that the controller makes.

    Attributes:
        api: connections and credentials.
        identity: name of the controller in events.
        timeout_seconds: timeout of each request, or timeouts of the connection and of the response.
        clock: the time of the API server.
    """

    api: client.ApiClient
    identity: str = MAINTAINED_CONTROLLER
    timeout_seconds: float | tuple[float, float] = TIMEOUT_SECONDS
    clock: ServerClock = field(default_factory=ServerClock)
    _rejections: dict[str, tuple[int, str | None]] = field(default_factory=dict)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Make a call and return the JSON of the response.

        Raises:
            ApiError: the response has an error status.
            urllib3.exceptions.HTTPError: the API server cannot be reached or does not respond in time.
        """
        parameters = self.api.param_serialize(
            method=method,
            resource_path=path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = self.api.call_api(*parameters, _request_timeout=self.timeout_seconds)
        self.clock.correct(response.getheader("Date"))  # type: ignore[no-untyped-call]
        text = _text(response)
        if 200 <= response.status < 300:
            return json.loads(text)
        raise ApiError(response.status, _message(text))

    def serves_jobs(self) -> bool:
        """Return True if the API server serves ElasticJobs, which it does a moment after their CRD is created."""
        groups = {group["name"] for group in self.request("GET", "/apis")["groups"]}
        resources = self._find(JOBS_PATH) if ELASTICJOB_GROUP in groups else None
        names = {resource["name"] for resource in (resources or {}).get("resources") or ()}
        return ELASTICJOB_PLURAL in names

    def job(self, namespace: str, name: str) -> Json:
        """Return an ElasticJob's JSON; None if it does not exist."""
        return self._find(f"{JOBS_PATH}/namespaces/{namespace}/{ELASTICJOB_PLURAL}/{name}")

    def owned_objects(self, kind: str, job_name: str, namespace: str, uid: str) -> list[Any]:
        """Return the `pods` or `services` that a job controls."""
        path = f"/api/v1/namespaces/{namespace}/{kind}"
        return [
            item
            for item in self._labeled(path, pods.selector(job_name))
            if pods.is_owned_by(item, uid) and _has_index(item)
        ]

    def placeholders(self, job: ElasticJob) -> list[Placeholder]:
        """Return the placeholders that a job controls."""
        path = f"/api/v1/namespaces/{job.namespace}/pods"
        items = self._labeled(path, placeholders.selector(job.name))
        return [read_placeholder(item) for item in items if pods.is_owned_by(item, job.uid)]

    def nodes(self, names: Iterable[str]) -> dict[str, Node | None]:
        """Return these nodes, each by its own request; None for a node that does not exist."""
        sources = {name: self._find(f"/api/v1/nodes/{quote(name)}") for name in sorted(set(names))}
        return {name: read_node(source) if source else None for name, source in sources.items()}

    def count_schedulable(self, job: ElasticJob) -> int:
        """Return how many more workers of a job the nodes could take (see `capacity`)."""
        assert job.spec is not None, "only for a valid spec"  # noqa: S101
        zone = job.status.placement.zone if job.status.placement else None
        pod = pods.render_pod(job, job.spec, 0, zone)
        node_selector = pod["spec"].get("nodeSelector") or {}
        selector = {"labelSelector": _selector(node_selector)}
        unfinished = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        # Nodes are read first: a pod that is scheduled in between is counted, and the next pass finds a node that
        # joins in between.
        nodes = [read_node(item) for item in self._list("/api/v1/nodes", selector)]
        namespace_pods = self._list(f"/api/v1/namespaces/{job.namespace}/pods", unfinished)
        return count_schedulable(pod, nodes, namespace_pods)

    def pod_rejection(self, job: ElasticJob) -> str | None:
        """Return why the API server rejects this job's pods in a dry run; None if it does not.

        Each job's newest result is kept, so that repeated passes need only one dry run for each spec. Only errors of
        the pod itself count: an exhausted quota is not an error of the spec.
        """
        if (
            job.spec is None
            or job.validation_errors
            or job.spec.source == job.status.last_valid_spec
        ):
            self._rejections.pop(job.uid, None)
            return None
        generation, rejection = self._rejections.get(job.uid, (None, None))
        if generation != job.generation:
            rejection = self._dry_run(job)
            self._rejections[job.uid] = job.generation, rejection
        return rejection

    def forget(self, uid: str) -> None:
        """Forget a deleted job."""
        self._rejections.pop(uid, None)

    def _dry_run(self, job: ElasticJob) -> str | None:
        assert job.spec is not None, "only for a valid spec"  # noqa: S101
        path = f"/api/v1/namespaces/{job.namespace}/pods"
        try:
            self.request("POST", path, _probe(job, job.spec), {"dryRun": "All"})
        except ApiError as error:
            if error.code in (INVALID, BAD_REQUEST):
                return f"the API server rejects a pod made from spec.replicaSpecs.Worker.template: {error.message}"
        return None

    def write_status(self, source: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Write a job's status.

        Raises:
            ApiError: the job was changed (409) or deleted (404) since it was read, or the write was refused.
            urllib3.exceptions.HTTPError: the API server cannot be reached or does not respond in time.
        """
        metadata = source["metadata"]
        path = f"{JOBS_PATH}/namespaces/{metadata['namespace']}/{ELASTICJOB_PLURAL}/{metadata['name']}/status"
        self.request("PUT", path, {**source, "status": status})

    def create(self, kind: str, namespace: str, body: Mapping[str, Any]) -> None:
        """Create a pod or a Service."""
        self.request("POST", f"/api/v1/namespaces/{namespace}/{kind}", body)

    def update_bounds(self, job: ElasticJob, pod: Pod) -> None:
        """Set the bounds annotation of this pod; do nothing if it is gone."""
        assert job.spec is not None, "only for a valid spec"  # noqa: S101
        annotations = {BOUNDS_ANNOTATION: job.spec.bounds}
        change = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        path = f"/api/v1/namespaces/{job.namespace}/pods/{pod.name}"
        try:
            self.request("PATCH", path, change, content_type="application/merge-patch+json")
        except ApiError as error:
            if error.code not in (NOT_FOUND, CONFLICT):  # 409: another pod has that name now
                raise

    def delete_pod(self, namespace: str, deletion: Deletion) -> None:
        """Delete this pod, not a newer pod of the same name; do nothing if it is gone."""
        options: dict[str, Any] = {"preconditions": {"uid": deletion.pod.uid}}
        if deletion.force:
            options["gracePeriodSeconds"] = 0
        self._delete(f"/api/v1/namespaces/{namespace}/pods/{deletion.pod.name}", options)

    def delete_placeholder(self, namespace: str, placeholder: Placeholder) -> None:
        """Delete this placeholder; do nothing if it is gone."""
        path = f"/api/v1/namespaces/{namespace}/pods/{placeholder.name}"
        self._delete(path, {"preconditions": {"uid": placeholder.uid}})

    def delete_service(self, namespace: str, name: str) -> None:
        """Delete a Service; do nothing if it is gone."""
        self._delete(f"/api/v1/namespaces/{namespace}/services/{name}", {})

    def delete_job(self, job: ElasticJob) -> None:
        """Delete a job and, through the garbage collector, all that it owns."""
        path = f"{JOBS_PATH}/namespaces/{job.namespace}/{ELASTICJOB_PLURAL}/{job.name}"
        self._delete(path, {"preconditions": {"uid": job.uid}, "propagationPolicy": "Background"})

    def record_event(self, job: ElasticJob, event: Event, now: datetime) -> None:
        """Record an event about a job."""
        time = format_time(now)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{job.name}.", "namespace": job.namespace},
            "involvedObject": {
                "apiVersion": ELASTICJOB_API_VERSION, "kind": ELASTICJOB_KIND, "name": job.name,
                "namespace": job.namespace, "uid": job.uid,
            },
            "reason": event.reason,
            "message": event.message[:1024],  # limit of the `note` in events.k8s.io/v1
            "type": "Warning" if event.warning else "Normal",
            "source": {"component": self.identity},
            "reportingComponent": self.identity,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }  # fmt: skip
        self.request("POST", f"/api/v1/namespaces/{job.namespace}/events", body)

    def _list(self, path: str, query: Mapping[str, str]) -> list[Any]:
        """Return all objects: without `limit`, the API server never divides a list into pages."""
        items: list[Any] = self.request("GET", path, query=query)["items"]
        return items

    def _labeled(self, path: str, labels: Mapping[str, str]) -> list[Any]:
        """Return the objects with these labels; empty if a value is too long for a label, which the server refuses."""
        if any(len(value) > LABEL_LENGTH for value in labels.values()):
            return []
        return self._list(path, {"labelSelector": _selector(labels)})

    def _find(self, path: str) -> Json:
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    def _delete(self, path: str, options: Mapping[str, Any]) -> None:
        try:
            self.request("DELETE", path, options)
        except ApiError as error:
            if error.code not in (NOT_FOUND, CONFLICT):  # 409: another object has that name now
                raise


def _probe(job: ElasticJob, spec: Spec) -> dict[str, Any]:
    """Return a worker's pod for a dry run.

    If fields of the template have wrong types, the pod is the template itself, so that the server's error names them.
    """
    try:
        pod = pods.render_pod(job, spec, 0)
    except (AttributeError, TypeError):  # for example, a list in place of a mapping
        pod = {"apiVersion": "v1", "kind": "Pod", **spec.template}
    metadata = pod.get("metadata") or {}
    if isinstance(metadata, Mapping):
        name = f"{job.worker_name(0)}-probe"  # not the name of a worker
        pod["metadata"] = {**metadata, "name": name}
    return pod


def _has_index(item: Json) -> bool:
    """Return True for a worker's pod or Service; users can change its labels."""
    return str(item["metadata"]["labels"].get(REPLICA_INDEX_LABEL)).isdecimal()


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _text(response: Any) -> str:  # noqa: ANN401  the package has no types here
    body: bytes = response.read()
    return body.decode()


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        return text or "no message"
