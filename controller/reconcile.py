"""One pass over one job: read everything afresh, let `plan` decide, write the status, act, tell.

The status goes first. It remembers which ends of workers were counted; were a failed pod deleted
before that is written, a crash in between would forget the failure. A status written without the
actions costs nothing: the next pass finds the same pods and plans the same actions.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from controller.api import ElasticJob, read_job
from controller.cluster import CONFLICT, NOT_FOUND, Cluster, Refused
from controller.metrics import Metrics
from controller.observed import read_pod
from controller.plan import is_over, plan
from controller.pods import render_pod, render_service
from controller.scaling import Patience, Scaling
from controller.situation import STANDARD_PATIENCE, Event, Plan, look

log = logging.getLogger(__name__)

Key = tuple[str, str]  # namespace, name


class TryAgain(Exception):  # noqa: N818  (not an error: the world moved on, or an action was refused for now)
    """The pass could not be finished; another one is needed."""


@dataclass(frozen=True)
class Reconciler:
    """Passes over jobs. Safe to use from several threads for different jobs.

    `trouble` holds why the last attempt to act for a job failed, to be said in its status; it may
    be lost, since the next attempt finds out again.
    """

    cluster: Cluster
    metrics: Metrics
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    trouble: dict[Key, str] = field(default_factory=dict)
    patience: Patience = STANDARD_PATIENCE

    def reconcile(self, key: Key) -> float | None:
        """Make one pass; return in how many seconds the next is due by itself.

        Raises:
            TryAgain: something changed under the pass, or the API server refused an action.
            Refused: the API server could not even be read from or written to.
        """
        namespace, name = key
        source = self.cluster.job(namespace, name)
        if source is None:
            self.trouble.pop(key, None)
            self.metrics.forget(key)
            return None
        job = read_job(source)
        refusal = self.cluster.refusal(job)
        if refusal:
            job = read_job(source, refusal)
        now = self.now().replace(
            microsecond=0
        )  # what the status can hold, so that it reads back the same
        planned = self._decide(job, now)
        self.metrics.saw(key, planned.status)
        written = planned.status.write()
        if written != (source.get("status") or {}):
            self._write(source, written)
            for end in planned.ends:
                self.metrics.restarts.labels(end.cause).inc()
        self._act(key, job, planned, now)
        if planned.wake is None:
            return None
        return max((planned.wake - self.now()).total_seconds(), 0.0)

    def _decide(self, job: ElasticJob, now: datetime) -> Plan:
        found = self.cluster.owned("pods", job.name, job.namespace, job.uid)
        pods = [read_pod(item) for item in found]
        services = self.cluster.owned("services", job.name, job.namespace, job.uid)
        # Nodes are read after the pods: a node that a pod was bound to was there before it, so one
        # not found is gone.
        nodes = self.cluster.nodes(pod.node for pod in pods if pod.node)
        names = frozenset(item["metadata"]["name"] for item in services)
        trouble = self.trouble.get((job.namespace, job.name), "")
        follows = job.scaling is Scaling.CAPACITY and job.spec and not is_over(job.status)
        room = self.cluster.room(job) if follows else None
        return plan(look(job, pods, names, nodes, now, trouble, room, self.patience))

    def _write(self, source: dict[str, object], status: dict[str, object]) -> None:
        try:
            self.cluster.write_status(source, status)
        except Refused as refused:
            if refused.code in (CONFLICT, NOT_FOUND):
                raise TryAgain("the job changed or went meanwhile") from refused
            raise

    def _act(self, key: Key, job: ElasticJob, planned: Plan, now: datetime) -> None:
        for event in planned.events:
            self._tell(job, event, now)
        try:
            for deletion in planned.delete_pods:
                self.cluster.delete_pod(job.namespace, deletion)
                message = f"deleted {deletion.pod.name}: {deletion.why}"
                self._tell(job, Event(reason="WorkerDeleted", message=message), now)
            for name in planned.delete_services:
                self.cluster.delete_service(job.namespace, name)
            for index in planned.create_services:
                self.cluster.create("services", job.namespace, render_service(job, index))
            for index in planned.create_pods:
                self._create_pod(job, index, now)
            for pod in planned.tell_bounds:
                self.cluster.tell_bounds(job, pod)
            if planned.delete_job:
                self.cluster.delete_job(job)
        except Refused as refused:
            raise self._troubled(key, job, refused, now) from refused
        self.trouble.pop(key, None)

    def _create_pod(self, job: ElasticJob, index: int, now: datetime) -> None:
        assert job.spec is not None, "a plan creates pods only for a good spec"  # noqa: S101
        self.cluster.create("pods", job.namespace, render_pod(job, job.spec, index))
        self._tell(
            job, Event(reason="WorkerCreated", message=f"created {job.worker_name(index)}"), now
        )

    def _troubled(self, key: Key, job: ElasticJob, refused: Refused, now: datetime) -> TryAgain:
        if self.trouble.get(key) != refused.message:
            self.trouble[key] = refused.message
            self._tell(
                job, Event(reason="ActionRefused", message=refused.message, warning=True), now
            )
        return TryAgain(refused.message)

    def _tell(self, job: ElasticJob, event: Event, now: datetime) -> None:
        log.info("%s/%s: %s: %s", job.namespace, job.name, event.reason, event.message)
        try:
            self.cluster.tell(job, event, now)
        except Refused as refused:  # an event is news, not memory: without it the job goes on
            log.warning("event not recorded: %s", refused)
