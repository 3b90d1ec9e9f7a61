"""Interconnect test on the nodes of a stack; its objects are removed afterwards, even if it fails."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from everstep.catalog.names import (
    EFA_RESOURCE,
    ELASTICJOB_API_VERSION,
    ELASTICJOB_PLURAL,
    JOB_NAME_LABEL,
    JOB_NAMESPACE,
)
from everstep.catalog.plurals import amount
from everstep.cli.interconnect import manifests
from everstep.cli.interconnect.manifests import NAME, ClusterTest
from everstep.cli.kubernetes_client import (
    KubernetesClient,
    PodView,
    pod_view,
    retry_while_unreachable,
)
from everstep.errors import EverstepError
from everstep.interconnect import results
from everstep.progress import Progress, Step
from everstep.resources import PACKAGES

CORE, BATCH = f"/api/v1/namespaces/{JOB_NAMESPACE}", f"/apis/batch/v1/namespaces/{JOB_NAMESPACE}"
COLLECTIONS = {
    "ConfigMap": f"{CORE}/configmaps",
    "Service": f"{CORE}/services",
    "Job": f"{BATCH}/jobs",
}
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
POLL_SECONDS = 1.0
DEADLINE_EXCEEDED = "DeadlineExceeded"  # reason of a Job that exceeded its activeDeadlineSeconds
LOG_LINES = 12
"""Number of last lines of a failed pod's log that an error contains."""


class ClusterRun:
    """One test in a cluster.

    Args:
        client: client of the cluster.
        job: name of the stack's ElasticJob.
        sleep: function that waits between two polls.
        clock: a monotonic clock, seconds.
    """

    def __init__(
        self,
        client: KubernetesClient,
        job: str,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._job, self._sleep, self._clock = client, job, sleep, clock

    def run(self, test: ClusterTest, wait_seconds: int, progress: Progress) -> list[str]:
        """Run the test and return the logs of its pods, the first node's first.

        Args:
            test: options of the test.
            wait_seconds: time in which all pods must have started.
            progress: receiver of the progress.

        Raises:
            EverstepError: the job or its nodes do not support the test, another test is running, pods do not start
                in time, or the test fails.
        """
        job = self._read_job()
        self._check_adapters(job, test)
        sources = manifests.read_sources(PACKAGES / "everstep")
        with self._created_objects(manifests.objects(job, test, sources)):
            with progress.step(f"Starting {amount(test.nodes, 'pod')}") as step:
                self._wait_for_pods(test.nodes, wait_seconds, step)
            with progress.step("Measuring the interconnect") as step:
                self._wait_for_end(test, step)
            return [self._log(pod.name) for pod in self._pods()]

    def default_nodes(self) -> int:
        """Return the number of nodes of the stack's job."""
        worker = self._read_job()["spec"]["replicaSpecs"]["Worker"]
        return int(worker.get("replicas", 1))

    def _read_job(self) -> Mapping[str, Any]:
        path = f"/apis/{ELASTICJOB_API_VERSION}/namespaces/{JOB_NAMESPACE}/{ELASTICJOB_PLURAL}/{self._job}"
        job = self._client.get(path, missing={})
        if not job:
            raise EverstepError(
                f"there is no ElasticJob {self._job} in the namespace {JOB_NAMESPACE}",
                "The test takes nodes, image and devices from it: run `everstep up` first.",
            )
        manifests.worker_template(job)
        return job

    def _check_adapters(self, job: Mapping[str, Any], test: ClusterTest) -> None:
        """Check that the stack has nodes with the adapters; without them, pods would stay Pending."""
        if not test.efa:
            return
        nodes = self._client.get("/api/v1/nodes")["items"]
        available = max([manifests.adapters_of_worker(job), *map(_adapters, nodes)])
        if available < test.efa:
            raise EverstepError(
                f"--efa {test.efa}: a node of this stack has {available} EFA adapters ({EFA_RESOURCE})",
                "Use --efa 0, or a stack with cluster.gpuPool.efa and an instance type with EFA.",
            )

    @contextmanager
    def _created_objects(self, objects: Sequence[Mapping[str, Any]]) -> Iterator[None]:
        """Create the objects, and delete them at the end of the block, even after Ctrl-C."""
        job = self._client.get(f"{COLLECTIONS['Job']}/{NAME}", missing={})
        if job and not _end_condition(job):
            raise EverstepError(
                f"a Job {NAME} exists in the namespace {JOB_NAMESPACE}: another test is running",
                f"Wait for it, or remove it: kubectl -n {JOB_NAMESPACE} delete job,svc,cm {NAME}",
            )
        try:
            for item in objects:
                path = COLLECTIONS[item["kind"]]
                self._client.delete(f"{path}/{NAME}")  # left by a killed test
                self._client.create(path, item)
            yield
        finally:
            for path in reversed(COLLECTIONS.values()):
                self._delete(path)

    def _delete(self, collection: str) -> None:
        retry_while_unreachable(
            lambda: self._client.delete(f"{collection}/{NAME}"), self._sleep, self._clock
        )

    def _get(self, path: str, missing: dict[str, Any] | None = None) -> dict[str, Any]:
        return retry_while_unreachable(
            lambda: self._client.get(path, missing), self._sleep, self._clock
        )

    def _pods(self) -> list[PodView]:
        path = f"{CORE}/pods?labelSelector={JOB_NAME_LABEL}%3D{NAME}"
        pods = [pod_view(pod) for pod in self._get(path)["items"]]
        return sorted(pods, key=lambda pod: int(pod.labels.get(INDEX_LABEL, "0")))

    def _wait_for_pods(self, nodes: int, seconds: int, step: Step) -> None:
        deadline = self._clock() + seconds
        while True:
            pods = self._pods()
            started_pods = [pod for pod in pods if pod.phase in ("Running", "Succeeded", "Failed")]
            step.note(f"{len(started_pods)} of {nodes}")
            if len(started_pods) == nodes or self._condition():
                return
            if self._clock() > deadline:
                raise EverstepError(
                    f"{len(started_pods)} of {nodes} pods started within {seconds} s: {self._wait_reasons(pods)}",
                    f"The training {self._job} may use the nodes: wait for its end. For nodes that a cloud "
                    "has yet to create, raise --wait.",
                )
            self._sleep(POLL_SECONDS)

    def _wait_reasons(self, pods: Sequence[PodView]) -> str:
        reasons = sorted({pod.unscheduled_reason for pod in pods if pod.unscheduled_reason})
        return (
            "; ".join(reasons)
            or self._refusal()
            or "their images are being pulled, or the nodes are full"
        )

    def _refusal(self) -> str:
        """Return the reason why the Job could not create pods; empty if there is none."""
        path = f"{CORE}/events?fieldSelector=involvedObject.name%3D{NAME}%2Creason%3DFailedCreate"
        messages = [str(event.get("message", "")) for event in self._client.get(path)["items"]]
        return messages[-1] if messages else ""

    def _wait_for_end(self, test: ClusterTest, step: Step) -> None:
        while not (condition := self._condition()):
            self._note_progress(step)
            self._sleep(POLL_SECONDS)
        if condition["type"] == "Complete":
            return
        if condition.get("reason") == DEADLINE_EXCEEDED:
            raise EverstepError(
                f"the test did not end within {test.seconds} s (--timeout); its pods were removed",
                "Start it again with a larger --timeout, or with a smaller --max-size.",
            )
        failed_pod = next((pod for pod in self._pods() if pod.phase == "Failed"), None)
        lines = self._log(failed_pod.name).splitlines()[-LOG_LINES:] if failed_pod else []
        subject = (
            f"{failed_pod.name} on {failed_pod.node}"
            if failed_pod
            else "a pod that no longer exists"
        )
        raise EverstepError(
            f"the test failed: {subject} was lost or ended with an error",
            "\n".join(lines) or "`everstep status` shows the nodes; start the test again.",
        )

    def _note_progress(self, step: Step) -> None:
        """Show the newest measurement, which the first pod prints."""
        pods = self._pods()
        if pods and pods[0].phase == "Running":
            entries = list(
                results.measurements(results.entries(self._log(pods[0].name).splitlines()))
            )
            if entries:
                step.note(f"{entries[-1].collective} {entries[-1].bytes:,} B")

    def _condition(self) -> Mapping[str, Any]:
        """Return the condition with which the Job has ended; empty while it runs.

        Raises:
            EverstepError: the Job was deleted, for example by the cluster long after its end.
        """
        job = self._get(f"{COLLECTIONS['Job']}/{NAME}", missing={})
        if not job:
            raise EverstepError(
                f"the Job {NAME} was deleted in the namespace {JOB_NAMESPACE} during the test",
                "Start the test again.",
            )
        return _end_condition(job)

    def _log(self, pod: str) -> str:
        path = f"{CORE}/pods/{pod}/log"
        return retry_while_unreachable(lambda: self._client.text(path), self._sleep, self._clock)


def _adapters(node: Mapping[str, Any]) -> int:
    """Return the number of allocatable EFA adapters of a node."""
    return int(((node.get("status") or {}).get("allocatable") or {}).get(EFA_RESOURCE, 0))


def _end_condition(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the condition with which a Job has ended; empty while it runs."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    true_conditions = [condition for condition in conditions if condition.get("status") == "True"]
    return next((c for c in true_conditions if c["type"] in ("Complete", "Failed")), {})
