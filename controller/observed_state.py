"""The observed state of a job: everything that one reconcile pass decides on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controller import exit_history
from controller.actions import Deletion
from controller.api import ElasticJob
from controller.objects import Node, Pod
from controller.scaling import ReplicaRange, Timeouts, WorkerCapacity, desired_replicas
from controller.status import ConditionType, Status

DEFAULT_TIMEOUTS = Timeouts()
NODE_GRACE_SECONDS = 30  # after the 40 s in which Kubernetes marks a silent node as not Ready


@dataclass(frozen=True, kw_only=True)
class ObservedState:
    """A job and the objects read for it in one pass.

    Attributes:
        services: names of the job's Services.
        lost: pods whose node is lost; the rules treat them as absent.
        last_error: error of the last pass's actions; empty if they succeeded.
        status: the job's status, with the records of its workers updated from the pods.
        exits: exits of workers that are new in this status.
        wake_times: times at which something is due without an event.
    """

    job: ElasticJob
    pods: tuple[Pod, ...]
    services: frozenset[str]
    lost: tuple[Pod, ...]
    now: datetime
    last_error: str
    status: Status
    exits: tuple[exit_history.WorkerExit, ...]
    wake_times: tuple[datetime, ...]

    @property
    def present(self) -> list[Pod]:
        """Pods whose node is not lost, by index."""
        return [pod for pod in self.pods if pod not in self.lost]

    @property
    def running(self) -> list[Pod]:
        """Running pods that are not terminating."""
        return [pod for pod in self.present if pod.phase == "Running" and not pod.terminating]

    @property
    def active(self) -> list[Pod]:
        """Pending and running pods that are not terminating."""
        return [pod for pod in self.present if not pod.ended and not pod.terminating]

    def with_capacity_scaling(self, schedulable: int, timeouts: Timeouts) -> "ObservedState":
        """Return the state with the spec's replicas replaced by the number that fits the capacity.

        The rules then treat this number like one in the spec.
        """
        spec = self.job.spec
        if spec is None or spec.suspended or self.status.training_ended is not None:
            return self
        requested = ReplicaRange(
            replicas=spec.replicas, min_replicas=spec.min_replicas, max_replicas=spec.max_replicas
        )
        pending_since = tuple(pod.created for pod in self.active if pod.node is None)
        scheduled = len(self.active) - len(pending_since)
        capacity = WorkerCapacity(
            scheduled=scheduled, pending_since=pending_since, schedulable=schedulable
        )
        scaling, wake_time = desired_replicas(
            requested, capacity, self.job.status.scaling, self.now, timeouts
        )
        job = replace(self.job, spec=replace(spec, replicas=scaling.desired))
        status = replace(self.status, scaling=scaling)
        return replace(self, job=job, status=status).waking_at(wake_time)

    def lost_pod_deletions(self) -> tuple[Deletion, ...]:
        """Return the forced deletions of all pods whose node is lost.

        Kubernetes waits for the kubelet's confirmation that a pod's processes have ended, which the
        kubelet of a lost node never sends. A forced deletion is safe if the Node object is gone or
        tainted as out of service. On a node that is only unreachable, the processes may continue; a
        StatefulSet would have to wait, but membership is fenced in etcd: a worker whose lease has
        expired is not a member, and its results reach no other worker. An unreachable node is
        therefore considered lost after a grace period.
        """
        return tuple(
            Deletion(pod=pod, reason=f"its node {pod.node} is lost", force=True)
            for pod in self.lost
        )

    def with_condition(
        self, kind: ConditionType, *, is_true: bool, reason: str, message: str
    ) -> "ObservedState":
        """Return the state with a condition set in its status."""
        status = self.status.with_condition(
            kind, is_true=is_true, reason=reason, message=message, now=self.now
        )
        return replace(self, status=status)

    def with_condition_cleared(
        self, kind: ConditionType, reason: str, message: str
    ) -> "ObservedState":
        """Return the state with a condition set to False if it is True."""
        status = self.status.with_condition_cleared(
            kind, reason=reason, message=message, now=self.now
        )
        return replace(self, status=status)

    def waking_at(self, *times: datetime | None) -> "ObservedState":
        """Return the state with additional wake times."""
        return replace(self, wake_times=(*self.wake_times, *(time for time in times if time)))

    def next_wake_time(self) -> datetime | None:
        """Return the earliest wake time in the future."""
        return min((time for time in self.wake_times if time > self.now), default=None)


def observe(
    job: ElasticJob,
    pods: Sequence[Pod],
    services: frozenset[str],
    nodes: Mapping[str, Node | None],
    now: datetime,
    last_error: str = "",
    schedulable: int | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> ObservedState:
    """Return the observed state of a job.

    Args:
        job: the job, with its status.
        pods: its pods.
        services: names of its Services.
        nodes: every node that has one of the pods; None for a node that no longer exists.
        now: the current time.
        last_error: error of the last pass's actions.
        schedulable: number of further workers that the nodes could take; None for a job that does not follow
            capacity.
        timeouts: delays before a job follows a change of capacity.
    """
    ordered = tuple(sorted(pods, key=lambda pod: pod.index))
    lost, wake_times = _lost_pods(ordered, nodes, now)
    records, exits = exit_history.update_records(
        job.status.workers, ordered, frozenset(pod.uid for pod in lost), now
    )
    status = replace(job.status, workers=records, observed_generation=job.generation, scaling=None)
    state = ObservedState(
        job=job,
        pods=ordered,
        services=services,
        lost=lost,
        now=now,
        last_error=last_error,
        status=status,
        exits=tuple(exits),
        wake_times=wake_times,
    )
    if schedulable is None:
        return state
    return state.with_capacity_scaling(schedulable, timeouts)


def _lost_pods(
    pods: Sequence[Pod], nodes: Mapping[str, Node | None], now: datetime
) -> tuple[tuple[Pod, ...], tuple[datetime, ...]]:
    """Return the pods on lost nodes, and when further nodes will be considered lost."""
    lost, wake_times = list[Pod](), list[datetime]()
    for pod in pods:
        if pod.node is None or pod.node not in nodes or (pod.ended and not pod.terminating):
            continue
        node = nodes[pod.node]
        if node is None or node.out_of_service:
            lost.append(pod)
        elif node.unready_since is not None:
            due = node.unready_since + timedelta(seconds=NODE_GRACE_SECONDS)
            if due <= now:
                lost.append(pod)
            else:
                wake_times.append(due)
    return tuple(lost), tuple(wake_times)
