"""The calls that the controller makes to the API server, on plain JSON.

The typed models of the `kubernetes` package would parse every field of every pod to read ten of
them, and drop fields newer than themselves on the way back; its client is used for what is hard:
credentials and connections. Reads are never from a cache, so no pass decides on what is no longer
true.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast
from urllib.parse import quote

from kubernetes import client, config

from controller import pods
from controller.api import GROUP, KIND, PLURAL, VERSION, ElasticJob
from controller.clock import format_time
from controller.observed import BOUNDS_ANNOTATION, Node, Pod, read_node
from controller.room import room
from controller.situation import Deletion, Event

CONFLICT, NOT_FOUND, INVALID, BAD_REQUEST = 409, 404, 422, 400
TIMEOUT_SECONDS = (5, 30)  # to connect, to answer
Json = Any  # what the API server answers with
JOBS = f"/apis/{GROUP}/{VERSION}"


class Refused(Exception):  # noqa: N818  (it is the API server that errs or not; this says what it answered)
    """The API server answered with an error.

    Attributes:
        code: the HTTP status.
        message: the server's own words.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {code})")
        self.code = code
        self.message = message


def settings_for(kubeconfig: str | None) -> client.Configuration:
    """Return how to reach the cluster and as whom.

    By a kubeconfig where one is named, else as the pod's service account, else by $KUBECONFIG.
    """
    settings = client.Configuration()
    load = cast("Any", config)  # the package has no types here
    if kubeconfig:
        load.load_kube_config(kubeconfig, client_configuration=settings)
        return settings
    try:
        load.load_incluster_config(client_configuration=settings)
    except config.ConfigException:
        load.load_kube_config(client_configuration=settings)
    return settings


@dataclass(frozen=True)
class Cluster:
    """A cluster, for a controller."""

    api: client.ApiClient
    identity: str = "elasticjob-controller"
    _refusals: dict[tuple[str, int], str | None] = field(default_factory=dict)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
    ) -> Json:
        """Make one call and return the JSON it answers with.

        Raises:
            Refused: the server answered with an error.
        """
        prepared = self.api.param_serialize(
            method=method,
            resource_path=path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = self.api.call_api(*prepared, _request_timeout=TIMEOUT_SECONDS)
        text = _text(response)
        if 200 <= response.status < 300:
            return json.loads(text)
        raise Refused(response.status, _words(text))

    def jobs(self, namespace: str | None) -> list[Any]:
        """Return all ElasticJobs of a namespace, or of all."""
        where = f"/namespaces/{namespace}" if namespace else ""
        found: list[Any] = self.request("GET", f"{JOBS}{where}/{PLURAL}")["items"]
        return found

    def job(self, namespace: str, name: str) -> Json:
        """Return one ElasticJob's JSON; None where there is none."""
        return self._find(f"{JOBS}/namespaces/{namespace}/{PLURAL}/{name}")

    def owned(self, kind: str, job_name: str, namespace: str, uid: str) -> list[Any]:
        """Return the `pods` or `services` that a job controls."""
        chosen = ",".join(f"{key}={value}" for key, value in pods.selector(job_name).items())
        path = f"/api/v1/namespaces/{namespace}/{kind}"
        found = self.request("GET", path, query={"labelSelector": chosen})["items"]
        return [
            item
            for item in found
            if pods.owned_by(item, uid) and "replica-index" in item["metadata"]["labels"]
        ]

    def nodes(self, names: Iterable[str]) -> dict[str, Node | None]:
        """Return these nodes, one by one: a job has few, a cluster may have very many. None: it is gone."""
        found = {name: self._find(f"/api/v1/nodes/{quote(name)}") for name in sorted(set(names))}
        return {name: read_node(source) if source else None for name, source in found.items()}

    def room(self, job: ElasticJob) -> int:
        """Count the further workers of a job that the machines could take (see `room`)."""
        assert job.spec is not None, "asked only about a readable spec"  # noqa: S101
        pod = pods.render_pod(job, job.spec, 0)
        wanted = pod["spec"].get("nodeSelector") or {}
        chosen = {"labelSelector": ",".join(f"{key}={value}" for key, value in wanted.items())}
        alive = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        # The nodes first: a pod that takes their room in between is seen, and room that one leaves
        # in between is found by the next pass.
        nodes = [read_node(item) for item in self._list("/api/v1/nodes", chosen)]
        others = self._list(f"/api/v1/namespaces/{job.namespace}/pods", alive)
        return room(pod, nodes, others)

    def refusal(self, job: ElasticJob) -> str | None:
        """Ask the API server whether it would take this job's pods; return why not.

        Asked once for each spec. Only what is wrong with the pod itself counts: a quota that is
        used up today is no fault of the spec.
        """
        key = (job.uid, job.generation)
        if job.spec is None or job.faults or job.spec.source == job.status.last_valid_spec:
            return None
        if key not in self._refusals:
            self._refusals.clear()  # one entry at most is of use: passes of one job follow each other
            self._refusals[key] = self._dry_run(job)
        return self._refusals[key]

    def _dry_run(self, job: ElasticJob) -> str | None:
        assert job.spec is not None, "asked only about a readable spec"  # noqa: S101
        pod = pods.render_pod(job, job.spec, 0)
        pod["metadata"]["name"] += "-probe"  # a name that no worker has
        try:
            self.request("POST", f"/api/v1/namespaces/{job.namespace}/pods", pod, {"dryRun": "All"})
        except Refused as refused:
            if refused.code in (INVALID, BAD_REQUEST):
                return f"the API server refuses a pod made from spec.replicaSpecs.Worker.template: {refused.message}"
        return None

    def write_status(self, source: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Write a job's status, unless the job has changed since it was read (Refused, 409)."""
        metadata = source["metadata"]
        path = f"{JOBS}/namespaces/{metadata['namespace']}/{PLURAL}/{metadata['name']}/status"
        self.request("PUT", path, {**source, "status": status})

    def create(self, kind: str, namespace: str, body: Mapping[str, Any]) -> None:
        """Create a pod or a Service."""
        self.request("POST", f"/api/v1/namespaces/{namespace}/{kind}", body)

    def tell_bounds(self, job: ElasticJob, pod: Pod) -> None:
        """Tell exactly this pod the bounds of its group; one that is gone needs no telling."""
        assert job.spec is not None, "pods are told only of a good spec"  # noqa: S101
        annotations = {BOUNDS_ANNOTATION: job.spec.bounds}
        change = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        path = f"/api/v1/namespaces/{job.namespace}/pods/{pod.name}"
        try:
            self.request("PATCH", path, change, content="application/merge-patch+json")
        except Refused as refused:
            if refused.code not in (NOT_FOUND, CONFLICT):  # 409: another pod has that name now
                raise

    def delete_pod(self, namespace: str, deletion: Deletion) -> None:
        """Delete exactly this pod, not one that has taken its name meanwhile; already gone is well."""
        options: dict[str, Any] = {"preconditions": {"uid": deletion.pod.uid}}
        if deletion.force:
            options["gracePeriodSeconds"] = 0
        self._delete(f"/api/v1/namespaces/{namespace}/pods/{deletion.pod.name}", options)

    def delete_service(self, namespace: str, name: str) -> None:
        """Delete a Service; already gone is well."""
        self._delete(f"/api/v1/namespaces/{namespace}/services/{name}", {})

    def delete_job(self, job: ElasticJob) -> None:
        """Delete a job and, through the garbage collector, all that it owns."""
        path = f"{JOBS}/namespaces/{job.namespace}/{PLURAL}/{job.name}"
        self._delete(path, {"preconditions": {"uid": job.uid}, "propagationPolicy": "Background"})

    def tell(self, job: ElasticJob, event: Event, now: datetime) -> None:
        """Record an event about a job."""
        moment = format_time(now)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{job.name}.", "namespace": job.namespace},
            "involvedObject": {
                "apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": job.name,
                "namespace": job.namespace, "uid": job.uid,
            },
            "reason": event.reason,
            "message": event.message[:1024],  # the API server's limit
            "type": "Warning" if event.warning else "Normal",
            "source": {"component": self.identity},
            "reportingComponent": self.identity,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }  # fmt: skip
        self.request("POST", f"/api/v1/namespaces/{job.namespace}/events", body)

    def _list(self, path: str, query: Mapping[str, str]) -> list[Any]:
        found: list[Any] = self.request("GET", path, query=query)["items"]
        return found

    def _find(self, path: str) -> Json:
        try:
            return self.request("GET", path)
        except Refused as refused:
            if refused.code == NOT_FOUND:
                return None
            raise

    def _delete(self, path: str, options: Mapping[str, Any]) -> None:
        try:
            self.request("DELETE", path, options)
        except Refused as refused:
            if refused.code not in (NOT_FOUND, CONFLICT):  # 409: another object has that name now
                raise


def _text(response: Json) -> str:  # the client has no types here
    body: bytes = response.read()
    return body.decode()


def _words(text: str) -> str:
    try:
        return str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        return text or "no answer"
