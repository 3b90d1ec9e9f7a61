"""The workers of a job that runs."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from controller.actions import Deletion, Event, Plan
from controller.api import Spec
from controller.exit_history import describe_exit
from controller.objects import Pod
from controller.observed_state import ObservedState
from controller.rules.backoff_limit import describe_exhausted, exhausted_workers
from controller.rules.common import (
    accept_spec,
    deadline_of,
    make_plan,
    mark_created,
    reset_records,
    spec_of,
    with_validation_errors,
)
from controller.scaling import ScaleUpBasis
from controller.status import ConditionType
from controller.timestamps import format_time
from everstep.catalog.plurals import amount

JOB_EDITED = "it does not run, and the job was edited"  # reason for deletions


def reconcile_workers(state: ObservedState) -> Plan | None:
    """Reconcile the workers: remove surplus pods, replace failed pods and create missing pods."""
    spec = spec_of(state)
    state = accept_spec(mark_created(state), spec)
    if state.status.start is None:
        state = replace(state, status=replace(state.status, start=state.now))
    leaving_pods = list(state.placement.leaving_pods) if state.placement else []
    surplus_pods = _surplus_pods(state, spec)
    removed_pods = [*surplus_pods, *leaving_pods]
    pods_before_edit = _pods_before_edit(state, removed_pods)
    state = reset_records(state, [*removed_pods, *_never_bound(state, pods_before_edit)])
    failed_pods, state = _pods_to_replace(state, surplus_pods)
    new_indices, on_demand_indices, state = _indices_to_create(state, spec)
    state = _with_conditions(state.with_wake_times(deadline_of(state, spec)), spec, removed_pods)
    stale_pods = [
        pod
        for pod in state.active_pods
        if pod not in (*removed_pods, *pods_before_edit) and pod.bounds != spec.bounds
    ]
    services = {
        state.job.worker_name(pod.index): pod.index for pod in state.pods if pod not in surplus_pods
    }
    services |= {state.job.worker_name(index): index for index in new_indices}
    return make_plan(
        state,
        create_pods=new_indices,
        create_on_demand=on_demand_indices,
        delete_pods=(
            *(Deletion(pod=pod, cause=_surplus_reason(state, pod)) for pod in surplus_pods),
            *(Deletion(pod=pod, cause=_leaving_reason(state)) for pod in leaving_pods),
            *(
                Deletion(pod=pod, cause=f"it is replaced: it {describe_exit(pod)}")
                for pod in failed_pods
            ),
            *(Deletion(pod=pod, cause=JOB_EDITED) for pod in pods_before_edit),
        ),
        create_services=tuple(
            sorted(index for name, index in services.items() if name not in state.services)
        ),
        delete_services=tuple(sorted(state.services - set(services))),
        update_bounds=tuple(stale_pods),
        events=_left_out_events(state, spec),
    )


def _pods_before_edit(state: ObservedState, removed_pods: Collection[Pod]) -> list[Pod]:
    """Return the pods that do not run and that the current job would not create: an edit may let them run."""
    return [
        pod
        for pod in state.active_pods
        if pod.phase in ("Pending", "Running")
        and not pod.is_up
        and pod not in removed_pods
        and state.predates_edit(pod)
    ]


def _never_bound(state: ObservedState, pods: Collection[Pod]) -> list[Pod]:
    """Return the first pods of workers that never had a node; the deletion of any other pod counts as its exit."""
    return [
        pod for pod in pods if pod.node is None and not state.status.workers[pod.index].restarts
    ]


def _surplus_reason(state: ObservedState, pod: Pod) -> str:
    if pod.on_demand:
        return "spot workers replace it"
    purchase = state.purchase
    return "the job was scaled in" if purchase is None or purchase.use_spot else purchase.reason


def _leaving_reason(state: ObservedState) -> str:
    placement = state.status.placement
    return f"the group trains in {placement.zone}" if placement else ""


def _left_out_events(state: ObservedState, spec: Spec) -> tuple[Event, ...]:
    """Return an event for each new exit of a worker that exceeds the back-off limit."""
    failed = {worker_exit.index for worker_exit in state.exits}
    return tuple(
        Event(
            reason="WorkerLeftOut",
            message=f"{describe_exhausted(state, spec, index, description)}; the others continue",
            warning=True,
        )
        for index, description in exhausted_workers(state, spec).items()
        if index in failed
    )


def _spot_target(state: ObservedState, spec: Spec) -> int:
    """Return the desired number of spot workers.

    If all workers are to run on demand, running spot workers stay until enough on-demand workers run.
    """
    if state.purchase is None or state.purchase.use_spot:
        return spec.replicas
    on_demand = sum(pod.on_demand for pod in state.running_pods)
    return 0 if on_demand >= state.on_demand_workers else len(state.running_pods) - on_demand


def _surplus_pods(state: ObservedState, spec: Spec) -> list[Pod]:
    """Return the pods that exceed the desired numbers of spot and of on-demand workers."""
    pods = [pod for pod in state.staying_pods if not pod.terminating]
    spot = [pod for pod in pods if not pod.on_demand]
    on_demand = [pod for pod in pods if pod.on_demand]
    return [
        *_least_useful_pods(spot, len(spot) - _spot_target(state, spec)),
        *_least_useful_pods(on_demand, len(on_demand) - state.on_demand_workers),
    ]


def _least_useful_pods(candidates: list[Pod], number: int) -> list[Pod]:
    """Return this number of pods: failed pods first, then pending pods, then the highest indices.

    Of the pods without a node, those that have waited longest are first: they are the ones that found none.
    """
    ranks = {"Failed": 0, "Pending": 1, "Unknown": 2, "Running": 4}

    def usefulness(pod: Pod) -> tuple[int, float, int]:
        rank = ranks.get(pod.phase, 2)
        is_bound = pod.phase == "Pending" and pod.node is not None
        waits = pod.phase == "Pending" and pod.node is None
        return (rank + is_bound, pod.created.timestamp() if waits else 0.0, -pod.index)

    return sorted(candidates, key=usefulness)[: max(number, 0)]


def _pods_to_replace(
    state: ObservedState, surplus_pods: Collection[Pod]
) -> tuple[list[Pod], ObservedState]:
    """Return the failed pods whose back-off is over; until then, a pod stays with its log."""
    failed = [
        pod
        for pod in state.staying_pods
        if pod.phase == "Failed" and not pod.terminating and pod not in surplus_pods
    ]
    due = {pod.index: state.status.workers[pod.index].not_before for pod in failed}
    ready = [pod for pod in failed if _is_due(due[pod.index], state.now)]
    return ready, state.with_wake_times(*due.values())


def _indices_to_create(
    state: ObservedState, spec: Spec
) -> tuple[tuple[int, ...], frozenset[int], ObservedState]:
    """Return the indices of the pods to create, lowest first, and the indices among them to run on demand.

    A pod occupies its index until its object is gone, so that a job never has more pods than
    replicas, except while it is scaled in, moves to another zone or has workers on demand.
    """
    used_indices = {pod.index for pod in state.pods}
    spot_count = _missing_count(state, _spot_target(state, spec), on_demand=False)
    on_demand_count = _missing_count(state, state.on_demand_workers, on_demand=True)
    count_to_create = spot_count + on_demand_count
    candidates = range(count_to_create + len(used_indices))
    free_indices = [index for index in candidates if index not in used_indices][:count_to_create]
    records = state.status.workers
    due = {index: records[index].not_before for index in free_indices if index in records}
    ready = tuple(index for index in free_indices if _is_due(due.get(index), state.now))
    return (
        ready,
        frozenset(ready[max(len(ready) - on_demand_count, 0) :]),
        state.with_wake_times(*due.values()),
    )


def _missing_count(state: ObservedState, target: int, *, on_demand: bool) -> int:
    """Return how many pods of one kind are missing; pods in a zone that the group leaves do not count."""
    leaving_pods = [pod for pod in state.present_pods if pod not in state.staying_pods]
    existing = sum(pod.on_demand is on_demand and pod not in leaving_pods for pod in state.pods)
    return max(target - existing, 0)


def _is_due(not_before: datetime | None, now: datetime) -> bool:
    return not_before is None or not_before <= now


def _with_conditions(
    state: ObservedState, spec: Spec, removed_pods: Collection[Pod]
) -> ObservedState:
    """Return the state with the conditions that follow from its workers."""
    running = [pod for pod in state.running_pods if pod not in removed_pods]
    enough_run = len(running) >= spec.min_replicas
    state = state.with_condition(
        ConditionType.RUNNING,
        is_true=enough_run,
        reason="ElasticJobRunning" if enough_run else "TooFewWorkers",
        message=with_validation_errors(state, _summary(state, spec, running)),
    )
    if not _is_still_suspended(state):
        state = state.with_condition_cleared(
            ConditionType.SUSPENDED, "ElasticJobResumed", "the job may run"
        )
    state = state.with_condition_cleared(ConditionType.FAILED, "SpecValid", "the spec is valid now")
    return _with_restarting(state, spec, running)


def _summary(state: ObservedState, spec: Spec, running: Collection[Pod]) -> str:
    """Return the number of running workers as text, with the reason if not all run."""
    desired = max(spec.replicas, state.on_demand_workers)
    workers = amount(desired, "worker")
    message = f"{len(running)} of {workers} running, at least {spec.min_replicas} needed"
    if (scaling := state.status.scaling) and scaling.desired < spec.max_replicas:
        message += f"; up to {spec.max_replicas} as nodes become available ({scaling.reason})"
    for index, description in exhausted_workers(state, spec).items():
        message += f"; left out: {describe_exhausted(state, spec, index, description)}"
        if due := state.status.workers[index].not_before:
            message += (
                f"; next attempt, preferably on another node, at {format_time(due)}, "
                "or as soon as the job's template is edited"
            )
    if state.on_demand_workers and state.purchase:
        message += f"; {state.on_demand_workers} on demand"
    if len(running) < desired:
        message = "; ".join(filter(None, (message, state.last_error or _waiting_reason(state))))
    return message


def _with_restarting(state: ObservedState, spec: Spec, running: Collection[Pod]) -> ObservedState:
    """Return the state with the condition Restarting."""
    indices = {pod.index for pod in running}
    restarting_indices = [
        index
        for index, record in sorted(state.status.workers.items())
        if record.restarts and index not in indices
    ]
    if not restarting_indices or len(running) >= spec.replicas:
        return state.with_condition_cleared(
            ConditionType.RESTARTING, "WorkersRestarted", "all workers run again"
        )
    causes = ", ".join(
        f"{state.job.worker_name(index)} ({state.status.workers[index].cause})"
        for index in restarting_indices
    )
    return state.with_condition(
        ConditionType.RESTARTING,
        is_true=True,
        reason="ElasticJobRestarting",
        message=f"being replaced: {causes}",
    )


def _is_still_suspended(state: ObservedState) -> bool:
    """Return True if a job without nodes only requests nodes, which does not end its suspension."""
    scaling = state.status.scaling
    requests = scaling is not None and scaling.basis is ScaleUpBasis.REQUEST
    return requests and not any(pod.node for pod in state.active_pods)


def _waiting_reason(state: ObservedState) -> str:
    """Return the reason why the first pending pod is not running."""
    return next(
        (
            f"{pod.name}: {pod.waiting_reason}"
            for pod in state.present_pods
            if pod.waiting_reason and not pod.terminating
        ),
        "",
    )
