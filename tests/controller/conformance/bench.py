"""What every conformance test needs: make a job, look at what became of it, wait for it."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml
from kubernetes import client

GROUP, VERSION, PLURAL = "elastic.pytorch.org", "v1alpha1", "elasticjobs"
WAIT_SECONDS = 15.0


@dataclass(frozen=True)
class Bench:
    """A namespace in which some controller runs ElasticJobs. Which one it is, is not known here.

    Attributes:
        api: a connection to the cluster.
        namespace: where the jobs are made.
        dress: makes a pod's spec one that the cluster's machines can run.
        patience: how many times longer than on the stand-in's machines things may take.
    """

    api: client.ApiClient
    namespace: str
    dress: Callable[[dict], dict] = lambda spec: spec
    patience: float = 1.0

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    @property
    def custom(self) -> client.CustomObjectsApi:
        return client.CustomObjectsApi(self.api)

    def job(self, name: str, **asked: Any) -> "Job":
        """Create a job; see `manifest` for what can be asked."""
        body = manifest(name, self.namespace, **asked)
        self.custom.create_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, {**body, "spec": self.dressed(body["spec"])}
        )
        return Job(self, name)

    def dressed(self, spec: dict) -> dict:
        """Return a job's spec, or a change of one, with the pods it has dressed."""
        spec = copy.deepcopy(spec)
        for replicas in spec.get("replicaSpecs", {}).values():
            if "template" in replicas:
                replicas["template"]["spec"] = self.dress(replicas["template"]["spec"])
        return spec


def manifest(
    name: str,
    namespace: str,
    *,
    replicas: int = 3,
    least: int | None = 1,
    most: int | None = 5,
    restart_policy: str | None = "ExitCode",
    run_policy: dict | None = None,
    pod: dict | None = None,
    annotations: dict | None = None,
) -> dict:
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
    spec: dict = {"rdzvEndpoint": "etcd-client:2379", "replicaSpecs": {"Worker": worker}}
    spec |= {key: value for key, value in (("minReplicas", least), ("maxReplicas", most)) if value}
    if run_policy is not None:
        spec["RunPolicy"] = run_policy
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

    bench: Bench
    name: str

    def read(self) -> dict:
        return self.bench.custom.get_namespaced_custom_object(
            GROUP, VERSION, self.bench.namespace, PLURAL, self.name
        )

    def gone(self) -> bool:
        try:
            self.read()
        except client.ApiException as error:
            return error.status == 404
        return False

    def patch(self, spec: dict) -> None:
        self.bench.custom.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            self.bench.namespace,
            PLURAL,
            self.name,
            {"spec": self.bench.dressed(spec)},
        )

    def scale(self, replicas: int) -> None:
        self.bench.custom.patch_namespaced_custom_object_scale(
            GROUP,
            VERSION,
            self.bench.namespace,
            PLURAL,
            self.name,
            {"spec": {"replicas": replicas}},
        )

    def delete(self) -> None:
        self.bench.custom.delete_namespaced_custom_object(
            GROUP, VERSION, self.bench.namespace, PLURAL, self.name
        )

    def pods(self) -> dict[int, client.V1Pod]:
        """Return the job's pods by index."""
        chosen = f"job-name={self.name}"
        found = self.bench.core.list_namespaced_pod(
            self.bench.namespace, label_selector=chosen
        ).items
        return {int(pod.metadata.labels["replica-index"]): pod for pod in found}

    def uids(self) -> dict[int, str]:
        return {index: pod.metadata.uid for index, pod in self.pods().items()}

    def running(self) -> set[int]:
        return {
            index
            for index, pod in self.pods().items()
            if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
        }

    def services(self) -> list[client.V1Service]:
        chosen = f"job-name={self.name}"
        return self.bench.core.list_namespaced_service(
            self.bench.namespace, label_selector=chosen
        ).items

    def conditions(self) -> dict[str, dict]:
        found = (self.read().get("status") or {}).get("conditions") or ()
        return {condition["type"]: condition for condition in found}

    def holds(self, kind: str) -> bool:
        return self.conditions().get(kind, {}).get("status") == "True"

    def bounds_told(self) -> dict[int, str]:
        """Return the bounds that each worker's pod says, by index."""
        return {
            index: (pod.metadata.annotations or {}).get("everstep.dev/nnodes", "")
            for index, pod in self.pods().items()
        }

    def wanted(self) -> int | None:
        """Return how many workers the controller wants, where the job follows capacity."""
        return ((self.read().get("status") or {}).get("scaling") or {}).get("wanted")

    def count(self, what: str) -> int:
        status = self.read().get("status") or {}
        return ((status.get("replicaStatuses") or {}).get("Worker") or {}).get(what) or 0

    def events(self) -> list[client.CoreV1Event]:
        chosen = f"involvedObject.kind=ElasticJob,involvedObject.name={self.name}"
        return self.bench.core.list_namespaced_event(
            self.bench.namespace, field_selector=chosen
        ).items

    def until(self, what: str, true: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
        """Wait for something to become true; if it does not, fail with all that is known."""
        seconds *= self.bench.patience
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"not within {seconds:g} s: {what}\n{self._story()}"
            time.sleep(0.05)

    def stays(self, what: str, true: Callable[[], object], seconds: float = 1.0) -> None:
        """Watch for a while that something stays true; kubelets that report late leave less of it."""
        end = time.monotonic() + seconds / self.bench.patience
        while time.monotonic() < end:
            assert true(), f"no longer true: {what}\n{self._story()}"
            time.sleep(0.05)

    def until_running(self, indices: set[int], but_not: dict[int, str] | None = None) -> None:
        """Wait until exactly these workers run, none of them in a pod named in `but_not`."""
        old = set((but_not or {}).values())
        self.until(
            f"workers {indices} run, renewed",
            lambda: (
                self.running() == indices == set(self.pods())
                and not old & set(self.uids().values())
            ),
        )

    def _story(self) -> str:
        if self.gone():
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
