"""Helpers for conformance tests: create a job, inspect it, wait for it."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml
from kubernetes import client

from tests.waiting import wait_until

GROUP, VERSION, PLURAL = "elastic.pytorch.org", "v1alpha1", "elasticjobs"
WAIT_SECONDS = 200.0
"""Limit on a busy machine; with simulated kubelets, a wait typically takes less than 1 s."""


@dataclass(frozen=True)
class JobNamespace:
    """A namespace in which a controller under test runs ElasticJobs.

    Attributes:
        api: client of the cluster.
        namespace: namespace of the jobs.
        adapt_pod: adapts a pod's spec to the machines of the cluster.
        time_factor: factor of the timeouts; the time for which `check_holds` observes a condition is divided by it.
    """

    api: client.ApiClient
    namespace: str
    adapt_pod: Callable[[dict[str, Any]], dict[str, Any]] = lambda spec: spec
    time_factor: float = 1.0

    @property
    def core(self) -> Any:  # the stubs make every field of a read object optional
        return client.CoreV1Api(self.api)

    @property
    def custom_objects(self) -> Any:
        return client.CustomObjectsApi(self.api)

    def job(self, name: str, **fields: Any) -> "Job":
        """Create a job; see `manifest` for the fields."""
        body = manifest(name, self.namespace, **fields)
        self.custom_objects.create_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, {**body, "spec": self.adapt_spec(body["spec"])}
        )
        return Job(self, name)

    def adapt_spec(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return a job's spec, or a patch of one, with its pods adapted to the machines."""
        spec = copy.deepcopy(spec)
        for replicas in spec.get("replicaSpecs", {}).values():
            if "template" in replicas:
                replicas["template"]["spec"] = self.adapt_pod(replicas["template"]["spec"])
        return spec


def manifest(
    name: str,
    namespace: str,
    *,
    replicas: int = 3,
    min_replicas: int | None = 1,
    max_replicas: int | None = 5,
    restart_policy: str | None = "ExitCode",
    run_policy: dict[str, Any] | None = None,
    pod: dict[str, Any] | None = None,
    annotations: dict[str, Any] | None = None,
    spending: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an ElasticJob's JSON."""
    container = {
        "name": "elasticjob-worker",
        "image": "localhost/everstep/none:local",
        "args": ["train.py"],
    }
    worker = {
        "replicas": replicas,
        "template": {"spec": {"containers": [container], **(pod or {})}},
    }
    if restart_policy:
        worker["restartPolicy"] = restart_policy
    spec: dict[str, Any] = {"rdzvEndpoint": "etcd-client:2379", "replicaSpecs": {"Worker": worker}}
    spec |= {
        key: value
        for key, value in (("minReplicas", min_replicas), ("maxReplicas", max_replicas))
        if value
    }
    if run_policy is not None:
        spec["RunPolicy"] = run_policy
    if spending is not None:
        spec["spending"] = spending
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ElasticJob",
        "metadata": metadata,
        "spec": spec,
    }


@dataclass(frozen=True)
class Job:
    """One job under test."""

    job_namespace: JobNamespace
    name: str

    def read(self) -> dict[str, Any]:
        result: dict[str, Any] = self.job_namespace.custom_objects.get_namespaced_custom_object(
            GROUP, VERSION, self.job_namespace.namespace, PLURAL, self.name
        )
        return result

    def is_gone(self) -> bool:
        try:
            self.read()
        except client.ApiException as error:
            return bool(error.status == 404)
        return False

    def patch(self, spec: dict[str, Any]) -> None:
        self.job_namespace.custom_objects.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            self.job_namespace.namespace,
            PLURAL,
            self.name,
            {"spec": self.job_namespace.adapt_spec(spec)},
        )

    def scale(self, replicas: int) -> None:
        self.job_namespace.custom_objects.patch_namespaced_custom_object_scale(
            GROUP,
            VERSION,
            self.job_namespace.namespace,
            PLURAL,
            self.name,
            {"spec": {"replicas": replicas}},
        )

    def delete(self) -> None:
        self.job_namespace.custom_objects.delete_namespaced_custom_object(
            GROUP, VERSION, self.job_namespace.namespace, PLURAL, self.name
        )

    def pods(self) -> dict[int, Any]:
        """Return the job's pods by index."""
        selector = f"job-name={self.name}"
        pods = self.job_namespace.core.list_namespaced_pod(
            self.job_namespace.namespace, label_selector=selector
        ).items
        return {int(pod.metadata.labels["replica-index"]): pod for pod in pods}

    def uids(self) -> dict[int, str]:
        return {index: pod.metadata.uid for index, pod in self.pods().items()}

    def running_workers(self) -> set[int]:
        return {
            index
            for index, pod in self.pods().items()
            if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
        }

    def services(self) -> list[Any]:
        selector = f"job-name={self.name}"
        services: list[Any] = self.job_namespace.core.list_namespaced_service(
            self.job_namespace.namespace, label_selector=selector
        ).items
        return services

    def conditions(self) -> dict[str, dict[str, Any]]:
        conditions = (self.read().get("status") or {}).get("conditions") or ()
        return {condition["type"]: condition for condition in conditions}

    def is_true(self, kind: str) -> bool:
        return self.conditions().get(kind, {}).get("status") == "True"

    def annotated_bounds(self) -> dict[int, str]:
        """Return the bounds in the annotation of each worker's pod, by index."""
        return {
            index: (pod.metadata.annotations or {}).get("everstep.dev/nnodes", "")
            for index, pod in self.pods().items()
        }

    def desired_workers(self) -> int | None:
        """Return the desired number of workers of a job that follows capacity; None without one in the status."""
        return ((self.read().get("status") or {}).get("scaling") or {}).get("desired")

    def count(self, kind: str) -> int:
        status = self.read().get("status") or {}
        return ((status.get("replicaStatuses") or {}).get("Worker") or {}).get(kind) or 0

    def events(self) -> list[Any]:
        selector = f"involvedObject.kind=ElasticJob,involvedObject.name={self.name}"
        events: list[Any] = self.job_namespace.core.list_namespaced_event(
            self.job_namespace.namespace, field_selector=selector
        ).items
        return events

    def wait_for_events(self, *reasons: str) -> None:
        """Wait for events with these reasons: the controller records them after the status."""
        self.wait_until(
            f"there are events {reasons}",
            lambda: {event.reason for event in self.events()} >= set(reasons),
        )

    def wait_until(
        self, description: str, condition: Callable[[], object], seconds: float = WAIT_SECONDS
    ) -> None:
        """Wait for a condition; on a timeout, fail with the state of the job."""
        wait_until(
            condition,
            description,
            seconds * self.job_namespace.time_factor,
            details=self._describe,
            interval_seconds=0.05,
        )

    def check_holds(
        self, description: str, condition: Callable[[], object], seconds: float = 1.0
    ) -> None:
        """Check that a condition holds for some time."""
        end = time.monotonic() + seconds / self.job_namespace.time_factor
        while time.monotonic() < end:
            assert condition(), f"does not hold: {description}\n{self._describe()}"
            time.sleep(0.05)

    def wait_until_running(self, indices: set[int], old_uids: dict[int, str] | None = None) -> None:
        """Wait until exactly these workers have pods, all pods run, and none has one of the old uids."""
        uids_to_avoid = set((old_uids or {}).values())
        self.wait_until(
            f"exactly the workers {indices} run, none of them in an old pod",
            lambda: (
                self.running_workers() == indices == set(self.pods())
                and not uids_to_avoid & set(self.uids().values())
            ),
        )

    def _describe(self) -> str:
        if self.is_gone():
            return "the job is gone"
        job = self.read()
        pods = [
            f"{pod.metadata.name}: {pod.status.phase}, on {pod.spec.node_name}"
            for pod in self.pods().values()
        ]
        events = [f"{event.reason}: {event.message}" for event in self.events()]
        spec = {key: value for key, value in job["spec"].items() if key != "replicaSpecs"}
        status = {
            key: value for key, value in (job.get("status") or {}).items() if key != "lastValidSpec"
        }
        return yaml.safe_dump(
            {"spec": spec, "status": status, "pods": pods, "events": events}, sort_keys=False
        )
