"""The observed state of a job: the input of one reconcile pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controller import exit_history
from controller.actions import Deletion
from controller.api import ElasticJob, RestartPolicy
from controller.lifetimes import ObservedMachines
from controller.objects import Node, Placeholder, Pod
from controller.placement import ObservedPlacement, PlacementPlan, plan_placement
from controller.placement_state import PlacementState
from controller.pods import template_hash
from controller.scaling import (
    ReplicaRange,
    ScaleUpBasis,
    Scaling,
    ScalingState,
    Timeouts,
    WorkerCapacity,
    desired_replicas,
)
from controller.spending import ObservedSpending, SpendingPlan, plan_spending
from controller.spending_state import ObservedShare
from controller.status import ConditionType, Status
from everstep.capacity.on_demand import Purchase
from everstep.catalog.names import CAPACITY_LABEL, ON_DEMAND, ZONE_LABEL

DEFAULT_TIMEOUTS = Timeouts()
NODE_GRACE_SECONDS = 30  # from the time at which Kubernetes marks a silent node as not Ready


@dataclass(frozen=True, kw_only=True)
class ObservedState:
    """A job and the objects read for it in one pass.

    Attributes:
        services: names of the job's Services.
        lost_pods: pods whose node is lost; the rules treat them as absent.
        last_error: error of the last pass's actions; empty if they succeeded.
        status: the job's status, with the records of its workers updated from the pods.
        exits: exits of workers that are new in this status.
        wake_times: times at which something is due without an event.
        placeholders: its placeholders.
        joined: uids of the pods that have joined the group.
        placement: plan for the zone of its workers; None for a job without zones.
        spending: plan for its deadline and budget; None for a job without limits.
    """

    job: ElasticJob
    pods: tuple[Pod, ...]
    services: frozenset[str]
    lost_pods: tuple[Pod, ...]
    now: datetime
    last_error: str
    status: Status
    exits: tuple[exit_history.WorkerExit, ...]
    wake_times: tuple[datetime, ...]
    placeholders: tuple[Placeholder, ...] = ()
    joined: frozenset[str] = frozenset()
    placement: PlacementPlan | None = None
    spending: SpendingPlan | None = None

    @property
    def purchase(self) -> Purchase | None:
        """Workers to run on demand; None if the cluster autoscaler decides."""
        return self.spending.purchase if self.spending else None

    @property
    def on_demand_workers(self) -> int:
        """Number of workers to run on demand."""
        return self.purchase.on_demand if self.purchase else 0

    @property
    def suspended(self) -> bool:
        """True if the job must have no workers; a lack of spot capacity does not suspend on-demand workers."""
        spec = self.job.spec
        return (
            spec is not None
            and spec.suspended
            and (spec.run_policy.suspend or not self.on_demand_workers)
        )

    @property
    def present_pods(self) -> list[Pod]:
        """Pods whose node is not lost, by index."""
        return [pod for pod in self.pods if pod not in self.lost_pods]

    @property
    def running_pods(self) -> list[Pod]:
        """Running pods that are not terminating."""
        return [pod for pod in self.present_pods if pod.phase == "Running" and not pod.terminating]

    @property
    def active_pods(self) -> list[Pod]:
        """Pending and running pods that are not terminating."""
        return [pod for pod in self.present_pods if not pod.ended and not pod.terminating]

    @property
    def staying_pods(self) -> list[Pod]:
        """Pods of `present_pods` that are not in the zone that the group leaves."""
        move = self.status.placement.move if self.status.placement else None
        return [pod for pod in self.present_pods if move is None or pod.zone != move.leaving_zone]

    def with_spending(
        self, share: ObservedShare | None, nodes: Mapping[str, Node | None]
    ) -> "ObservedState":
        """Return the state with the spending of the job and its plan; a used-up budget suspends the job.

        The rules then treat the job like a job that its owner has suspended.
        """
        spec, created = self.job.spec, self.job.created or self.now
        if spec is None or spec.spending is None:
            return self
        has_ended = self.status.training_ended is not None
        observed = ObservedSpending(
            settings=spec.spending,
            created=created,
            desired_workers=spec.max_replicas
            if self.job.scaling is Scaling.CAPACITY
            else spec.replicas,
            min_workers=spec.min_replicas,
            grace_seconds=spec.grace_seconds,
            pods=self.present_pods,
            nodes=nodes,
            share=share,
            runs=not (spec.suspended or has_ended),
            now=self.now,
        )
        spending = plan_spending(observed, self.job.status.spending)
        job = self.job
        if spending.state.used_up and not has_ended:
            policy = replace(spec.run_policy, suspend=True)
            job = replace(job, spec=replace(spec, run_policy=policy))
        status = replace(self.status, spending=spending.state)
        state = replace(self, job=job, status=status, spending=spending)
        return state.with_wake_times(*spending.wake_times)

    def with_placement(self, nodes: Mapping[str, Node | None]) -> "ObservedState":
        """Return the state with the decision about the zone of the workers.

        A job that has no workers now keeps its zone, its moves and the observed lifetimes.
        """
        settings, spec, status = self.job.placement, self.job.spec, self.status
        ends = status.training_ended or any(worker.succeeded for worker in status.workers.values())
        if settings is None or spec is None or spec.suspended or ends:
            return self
        observed = ObservedPlacement(
            settings=settings,
            desired_workers=spec.max_replicas
            if self.job.scaling is Scaling.CAPACITY
            else spec.replicas,
            min_workers=spec.min_replicas,
            max_workers=spec.max_replicas,
            pods=self.present_pods,
            placeholders=self.placeholders,
            now=self.now,
            starting_since=self._starting_since(),
            joined=self.joined,
            uses_spot=self.purchase is None or self.purchase.use_spot,
            machines=ObservedMachines(
                pods=[pod for pod in self.pods if not _is_on_demand(pod, nodes)],
                lost_uids=frozenset(pod.uid for pod in self.lost_pods),
                now=self.now,
            ),
        )
        placement = plan_placement(observed, status.placement)
        status = replace(status, placement=placement.state)
        state = replace(self, placement=placement, status=status)
        return state.with_wake_times(*placement.wake_times)

    def _starting_since(self) -> datetime | None:
        """Return the time since which the job waits for its first machines; None if it does not wait for them."""
        scaling = self.job.status.scaling
        has_no_machines = scaling is not None and scaling.desired == 0
        has_run = any(record.restarts for record in self.status.workers.values())
        return None if has_no_machines or has_run else self.status.start or self.now

    def with_capacity_scaling(self, schedulable: int, timeouts: Timeouts) -> "ObservedState":
        """Return the state with the spec's replicas replaced by the number that fits the capacity.

        The rules then treat this number like a number in the spec.
        """
        spec = self.job.spec
        if spec is None or spec.suspended or self.status.training_ended is not None:
            return self
        if self.purchase and not self.purchase.use_spot:
            return self  # the number of on-demand workers does not depend on spot capacity
        requested = ReplicaRange(
            replicas=spec.replicas, min_replicas=spec.min_replicas, max_replicas=spec.max_replicas
        )
        active = [pod for pod in self.staying_pods if pod in self.active_pods and not pod.on_demand]
        pending_since = tuple(pod.created for pod in active if pod.node is None)
        scheduled = len(active) - len(pending_since)
        capacity = WorkerCapacity(
            scheduled=scheduled, pending_since=pending_since, schedulable=schedulable
        )
        scaling = self._scaling_of_move(requested)
        wake_time = None
        if scaling is None:
            scaling, wake_time = desired_replicas(
                requested, capacity, self.job.status.scaling, self.now, timeouts
            )
        job = replace(self.job, spec=replace(spec, replicas=scaling.desired))
        status = replace(self.status, scaling=scaling)
        return replace(self, job=job, status=status).with_wake_times(wake_time)

    def _scaling_of_move(self, requested: ReplicaRange) -> ScalingState | None:
        """Return the number of workers while the group moves: the number of machines that the new zone offered.

        None if the group does not move.

        It stays until the move has ended. Workers that find no node must not suspend the job while
        the old zone's workers still train.
        """
        placement = self.status.placement
        move = placement.move if placement else None
        if placement is None or move is None:
            return None
        machines, previous = move.target, self.job.status.scaling
        if move.abandoned:
            machines = sum(pod.zone == placement.zone for pod in self.running_pods)
        desired = min(max(machines, requested.min_replicas), requested.max_replicas)
        if previous is not None and previous.desired == desired:
            return replace(previous, replicas=requested.replicas)
        return ScalingState(
            desired=desired,
            since=self.now,
            replicas=requested.replicas,
            reason=f"the group moves to {placement.zone}, which has machines for {machines}",
            basis=ScaleUpBasis.SCHEDULABLE,
        )

    def lost_pod_deletions(self) -> tuple[Deletion, ...]:
        """Return the forced deletions of all pods whose node is lost.

        Kubernetes waits for the kubelet's confirmation that a pod's processes have ended, which the
        kubelet of a lost node never sends. A forced deletion is safe if the Node object is gone or
        tainted as out of service. On a node that is only unreachable, the processes may continue. A
        StatefulSet would have to wait, but membership is fenced in etcd: a worker whose lease has
        expired is not a member, and its results reach no other worker. An unreachable node is
        therefore considered lost after a grace period.
        """
        return tuple(
            Deletion(pod=pod, cause=f"its node {pod.node} is lost", force=True)
            for pod in self.lost_pods
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

    def with_wake_times(self, *times: datetime | None) -> "ObservedState":
        """Return the state with additional wake times."""
        return replace(self, wake_times=(*self.wake_times, *(time for time in times if time)))

    def predates_edit(self, pod: Pod) -> bool:
        """Return True if the current job would create a different pod; False without a valid spec."""
        if self.job.spec is None or not pod.template_hash:
            return False
        has_zone = self.status.placement is not None
        return pod.template_hash != template_hash(self.job.spec, has_zone=has_zone)

    def without_failures_before_edit(self) -> "ObservedState":
        """Return the state in which an edited job replaces its failed pods without delay.

        With the restart policy `Never`, a failure ends the job whatever was edited.
        """
        if self.job.spec is None or self.job.spec.restart_policy is RestartPolicy.NEVER:
            return self
        records = dict(self.status.workers)
        for pod in self.pods:
            if not pod.is_up and self.predates_edit(pod):  # the hash only where it is needed
                records[pod.index] = exit_history.without_failures(records[pod.index])
        return replace(self, status=replace(self.status, workers=records))

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
    placeholders: Sequence[Placeholder] = (),
    share: ObservedShare | None = None,
    joined: frozenset[str] = frozenset(),
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
        placeholders: its placeholders.
        share: completed share of its training when it was last read; None if it was not read.
        joined: uids of the pods that have joined the group.
    """
    sorted_pods = tuple(sorted((_with_zone(pod, nodes) for pod in pods), key=lambda pod: pod.index))
    lost_pods, wake_times = _lost_pods(sorted_pods, nodes, now)
    records, exits = exit_history.update_records(
        job.status.workers, sorted_pods, frozenset(pod.uid for pod in lost_pods), now
    )
    status = replace(
        job.status,
        workers=records,
        observed_generation=job.generation,
        scaling=None,
        placement=_stored_placement(job, placeholders),
        spending=None,
    )
    state = ObservedState(
        job=job,
        pods=sorted_pods,
        services=services,
        lost_pods=lost_pods,
        now=now,
        last_error=last_error,
        status=status,
        exits=tuple(exits),
        wake_times=wake_times,
        placeholders=tuple(placeholders),
        joined=joined,
    )
    state = state.with_spending(share, nodes).with_placement(nodes).without_failures_before_edit()
    if schedulable is None:
        return state
    return state.with_capacity_scaling(schedulable, timeouts)


def _stored_placement(
    job: ElasticJob, placeholders: Sequence[Placeholder]
) -> PlacementState | None:
    """Return the stored placement of a job that still has zones, or has errors, which may be in the annotation.

    For a job that no longer has zones, the placement is kept until the placeholders are gone: they are read only for a
    job with a placement.
    """
    return job.status.placement if job.placement or job.validation_errors or placeholders else None


def _with_zone(pod: Pod, nodes: Mapping[str, Node | None]) -> Pod:
    """Return a pod with the zone of its node, if it was created before its job had zones."""
    node = nodes.get(pod.node or "")
    return pod if pod.zone or node is None else replace(pod, zone=node.labels.get(ZONE_LABEL, ""))


def _is_on_demand(pod: Pod, nodes: Mapping[str, Node | None]) -> bool:
    """Return True if a pod was created for an on-demand machine, or was scheduled to a fallback node."""
    node = nodes.get(pod.node or "")
    return pod.on_demand or (node is not None and node.labels.get(CAPACITY_LABEL) == ON_DEMAND)


def _lost_pods(
    pods: Sequence[Pod], nodes: Mapping[str, Node | None], now: datetime
) -> tuple[tuple[Pod, ...], tuple[datetime, ...]]:
    """Return the pods on lost nodes, and the times at which further nodes will be considered lost."""
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
