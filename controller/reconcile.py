"""One reconcile pass over one job: observe, plan, write the status, record events, act.

The status is written first, because it records which exits have been counted. If a failed pod were
deleted first, a crash in between would lose the failure. A status without the actions does no
harm: the next pass finds the same pods and plans the same actions.
"""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from urllib3.exceptions import HTTPError

from controller.actions import Deletion, Event, PlaceholderRequest, Plan
from controller.api import ElasticJob, read_job
from controller.client import CONFLICT, NOT_FOUND, ApiError, KubernetesClient
from controller.joining import JoinReader
from controller.metrics import Metrics
from controller.objects import Placeholder, Pod, read_pod
from controller.observed_state import DEFAULT_TIMEOUTS, observe
from controller.placeholders import render_placeholder
from controller.plan import plan
from controller.pods import render_pod, render_service, with_rendezvous_of
from controller.progress import ProgressReader
from controller.rules.common import has_finished
from controller.scaling import Scaling, Timeouts
from controller.spending_state import ObservedShare

log = logging.getLogger(__name__)

Key = tuple[str, str]  # namespace, name
TOO_MANY_REQUESTS, INTERNAL_ERROR = 429, 500


class RetryError(Exception):
    """The pass could not be completed: an object changed, or the API server refused an action."""


@dataclass
class EventRecorder:
    """Recorder of the events of one pass, which are only informative: a failure does not prevent the pass's actions.

    Attributes:
        responds: False once a request got no response; later events are only logged, since each would wait as long.
    """

    client: KubernetesClient
    job: ElasticJob
    now: datetime
    responds: bool = True

    def record(self, event: Event) -> None:
        """Log an event and record it about the job."""
        log.info("%s/%s: %s: %s", self.job.namespace, self.job.name, event.reason, event.message)
        if not self.responds:
            return
        try:
            self.client.record_event(self.job, event, self.now)
        except (ApiError, HTTPError) as error:
            self.responds = isinstance(error, ApiError)
            log.warning("event not recorded: %s", error)


@dataclass(frozen=True)
class Reconciler:
    """Reconciler of jobs, which several threads may use for different jobs.

    Attributes:
        client: the API server.
        metrics: metrics of the controller.
        now: function that returns the current time, by the clock that sets the times in objects.
        last_errors: error of each job's last pass, for its status; it is not stored, because the first pass after a
            restart encounters the error again.
        uids: uid of each job, to forget the job once it is deleted.
        timeouts: delays of jobs that follow capacity.
        progress: reader of the completed shares.
        joining: reader of the workers that have joined their group.
    """

    client: KubernetesClient
    metrics: Metrics
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    last_errors: dict[Key, str] = field(default_factory=dict)
    uids: dict[Key, str] = field(default_factory=dict)
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    progress: ProgressReader = field(default_factory=ProgressReader)
    joining: JoinReader = field(default_factory=JoinReader)

    def reconcile(self, key: Key) -> float | None:
        """Run one pass; return the seconds until the next pass without an event, or None if it needs an event.

        Raises:
            RetryError: the job changed during the pass, or the API server refused an action.
            ApiError: the API server refused to return the objects or to write the status.
            urllib3.exceptions.HTTPError: the API server cannot be reached or does not respond in time.
        """
        namespace, name = key
        source = self.client.job(namespace, name)
        if source is None:
            self._forget(key)
            return None
        job = read_job(source)
        if self.uids.get(key, job.uid) != job.uid:  # deleted and created again between two passes
            self._forget(key)
        self.uids[key] = job.uid
        rejection = self.client.pod_rejection(job)
        if rejection:
            job = read_job(source, rejection)
        now = self.now().replace(microsecond=0)  # the resolution of the status
        items = self.client.owned_objects("pods", job.name, job.namespace, job.uid)
        pods = [read_pod(item) for item in items]
        job = with_rendezvous_of(job, pods)
        new_plan = self._decide(job, pods, now)
        self.metrics.observe_job(key, new_plan.status, job.spec)
        status = new_plan.status.to_json()
        if status != (source.get("status") or {}):
            self._write(source, status)
            for worker_exit in new_plan.exits:
                self.metrics.restarts.labels(worker_exit.cause).inc()
            self.metrics.count_moves(key, job.status, new_plan.status)
        self._act(key, job, new_plan, now)
        if new_plan.requeue_at is None:
            return None
        # Passes use whole seconds: a pass before the full second would find `requeue_at` in the future again.
        due = math.ceil(new_plan.requeue_at.timestamp())
        return max(due - self.now().timestamp(), 0.0)

    def _forget(self, key: Key) -> None:
        """Forget a deleted job."""
        self.last_errors.pop(key, None)
        self.metrics.forget(key)
        uid = self.uids.pop(key, None)
        if uid is not None:
            for reader in (self.client, self.progress, self.joining):
                reader.forget(uid)

    def _decide(self, job: ElasticJob, pods: list[Pod], now: datetime) -> Plan:
        services = self.client.owned_objects("services", job.name, job.namespace, job.uid)
        # Nodes are read after the pods: a pod's node existed when the pod was scheduled, so a missing node
        # has been deleted.
        nodes = self.client.nodes(pod.node for pod in pods if pod.node)
        names = frozenset(item["metadata"]["name"] for item in services)
        last_error = self.last_errors.get((job.namespace, job.name), "")
        follows_capacity = (
            job.scaling is Scaling.CAPACITY and job.spec and not has_finished(job.status)
        )
        schedulable = self.client.count_schedulable(job) if follows_capacity else None
        placeholders = self._placeholders(job)
        share, joined = self._share(job, pods, now), self._joined_pods(job, pods)
        return plan(
            observe(
                job, pods, names, nodes, now, last_error, schedulable, self.timeouts, placeholders,
                share, joined,
            )
        )  # fmt: skip

    def _share(self, job: ElasticJob, pods: list[Pod], now: datetime) -> ObservedShare | None:
        """Return the completed share of a job's training if it has a deadline."""
        spending = job.spec.spending if job.spec else None
        if spending is None or not spending.has_deadline or has_finished(job.status):
            return None
        return self.progress.share(job.uid, pods, now)

    def _joined_pods(self, job: ElasticJob, pods: list[Pod]) -> frozenset[str]:
        """Return the uids of a moving job's workers that have joined the group; empty for other jobs."""
        placement = job.status.placement
        if placement is None or placement.move is None or has_finished(job.status):
            self.joining.forget(job.uid)
            return frozenset()
        return self.joining.joined_pods(
            job.uid, [pod for pod in pods if pod.zone == placement.zone]
        )

    def _placeholders(self, job: ElasticJob) -> list[Placeholder]:
        """Return the placeholders of a job that has, or had, zones."""
        if job.placement is None and job.status.placement is None:
            return []
        return self.client.placeholders(job)

    def _write(self, source: dict[str, object], status: dict[str, object]) -> None:
        try:
            self.client.write_status(source, status)
        except ApiError as error:
            if error.code in (CONFLICT, NOT_FOUND):
                raise RetryError("the job was changed or deleted") from error
            raise

    def _act(self, key: Key, job: ElasticJob, new_plan: Plan, now: datetime) -> None:
        """Record the events and apply the plan; a refused action does not prevent the others."""
        events = EventRecorder(self.client, job, now)
        for event in new_plan.events:
            events.record(event)
        first_error: ApiError | None = None
        for act in self._actions(job, new_plan, events):
            try:
                act()
            except ApiError as error:
                first_error = first_error or error
                # An internal error may concern one kind of object, as with an admission webhook that is down.
                if error.code == TOO_MANY_REQUESTS or error.code > INTERNAL_ERROR:
                    break  # more requests would not help an overloaded server
        if first_error:
            raise self._retry(key, first_error, events) from first_error
        self.last_errors.pop(key, None)

    def _actions(
        self, job: ElasticJob, new_plan: Plan, events: EventRecorder
    ) -> Iterator[Callable[[], None]]:
        """Yield the actions of a plan in their order."""
        client, namespace = self.client, job.namespace
        for placeholder in new_plan.delete_placeholders:
            yield partial(client.delete_placeholder, namespace, placeholder)
        for deletion in new_plan.delete_pods:
            yield partial(self._delete_pod, job, deletion, events)
        for name in new_plan.delete_services:
            yield partial(client.delete_service, namespace, name)
        for index in new_plan.create_services:
            yield partial(client.create, "services", namespace, render_service(job, index))
        for index in new_plan.create_pods:
            yield partial(self._create_pod, job, index, new_plan, events)
        for pod in new_plan.update_bounds:
            yield partial(client.update_bounds, job, pod)
        for request in new_plan.create_placeholders:
            yield partial(self._create_placeholder, job, request)
        if new_plan.delete_job:
            yield partial(client.delete_job, job)

    def _delete_pod(self, job: ElasticJob, deletion: Deletion, events: EventRecorder) -> None:
        self.client.delete_pod(job.namespace, deletion)
        message = f"deleted {deletion.pod.name}: {deletion.cause}"
        events.record(Event(reason="WorkerDeleted", message=message))

    def _create_placeholder(self, job: ElasticJob, request: PlaceholderRequest) -> None:
        assert job.spec is not None, "only for a valid spec"  # noqa: S101
        body = render_placeholder(job, job.spec, request.zone, request.number)
        self.client.create("pods", job.namespace, body)

    def _create_pod(
        self, job: ElasticJob, index: int, new_plan: Plan, events: EventRecorder
    ) -> None:
        assert job.spec is not None, "only for a valid spec"  # noqa: S101
        placement = new_plan.status.placement
        zone = placement.zone if placement else None
        on_demand = index in new_plan.create_on_demand
        body = render_pod(job, job.spec, index, zone, on_demand=on_demand)
        self.client.create("pods", job.namespace, body)
        events.record(Event(reason="WorkerCreated", message=f"created {job.worker_name(index)}"))

    def _retry(self, key: Key, error: ApiError, events: EventRecorder) -> RetryError:
        if self.last_errors.get(key) != error.message:
            self.last_errors[key] = error.message
            events.record(Event(reason="ActionRefused", message=error.message, warning=True))
        return RetryError(error.message)
