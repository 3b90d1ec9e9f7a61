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
    count,
    deadline_of,
    make_plan,
    mark_created,
    reset_records,
    spec_of,
    with_faults,
)
from controller.scaling import RaiseBasis
from controller.status import ConditionType
from controller.timestamps import format_time


def reconcile_workers(state: ObservedState) -> Plan | None:
    """Reconcile the number of workers: remove surplus, replace failed and create missing ones."""
    spec = spec_of(state)
    state = accept_spec(mark_created(state), spec)
    if state.status.start is None:
        state = replace(state, status=replace(state.status, start=state.now))
    leaving = list(state.placement.leave) if state.placement else []
    surplus = _surplus(state, spec)
    state = reset_records(state, (*surplus, *leaving))
    replaced, state = _to_replace(state, surplus)
    created, bought, state = _to_create(state, spec)
    removed = [*surplus, *leaving]
    state = _with_conditions(state.waking_at(deadline_of(state, spec)), spec, removed)
    outdated = [pod for pod in state.active if pod not in removed and pod.bounds != spec.bounds]
    services = {
        state.job.worker_name(pod.index): pod.index for pod in state.pods if pod not in surplus
    }
    services |= {state.job.worker_name(index): index for index in created}
    return make_plan(
        state,
        create_pods=created,
        create_on_demand=bought,
        delete_pods=(
            *(Deletion(pod=pod, reason=_reason_of_surplus(state, pod)) for pod in surplus),
            *(Deletion(pod=pod, reason=_reason_to_leave(state)) for pod in leaving),
            *(
                Deletion(pod=pod, reason=f"it is replaced: it {describe_exit(pod)}")
                for pod in replaced
            ),
        ),
        create_services=tuple(
            sorted(index for name, index in services.items() if name not in state.services)
        ),
        delete_services=tuple(sorted(state.services - set(services))),
        update_bounds=tuple(outdated),
        events=_left_out_events(state, spec),
    )


def _reason_of_surplus(state: ObservedState, pod: Pod) -> str:
    if pod.on_demand:
        return "spot workers replace it"
    purchase = state.purchase
    return "the job was scaled in" if purchase is None or purchase.use_spot else purchase.reason


def _reason_to_leave(state: ObservedState) -> str:
    placement = state.status.placement
    return f"the group trains in {placement.zone}" if placement else ""


def _left_out_events(state: ObservedState, spec: Spec) -> tuple[Event, ...]:
    """Return an event for each worker that exceeds the back-off limit since this pass."""
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
    """Return the number of spot workers to have.

    If all are to be on demand, spot workers that train stay until the others do.
    """
    if state.purchase is None or state.purchase.use_spot:
        return spec.replicas
    on_demand = sum(pod.on_demand for pod in state.running)
    return 0 if on_demand >= state.bought else len(state.running) - on_demand


def _surplus(state: ObservedState, spec: Spec) -> list[Pod]:
    """Return the pods to remove, of spot and of on-demand workers."""
    pods = [pod for pod in state.staying if not pod.terminating]
    spot = [pod for pod in pods if not pod.on_demand]
    on_demand = [pod for pod in pods if pod.on_demand]
    return [
        *_least_useful(spot, len(spot) - _spot_target(state, spec)),
        *_least_useful(on_demand, len(on_demand) - state.bought),
    ]


def _least_useful(candidates: list[Pod], number: int) -> list[Pod]:
    """Return some pods: failed ones first, then pending ones, then the highest indices."""
    ranks = {"Failed": 0, "Pending": 1, "Unknown": 2, "Running": 4}

    def usefulness(pod: Pod) -> tuple[int, int]:
        rank = ranks.get(pod.phase, 2)
        return (rank + (pod.phase == "Pending" and pod.node is not None), -pod.index)

    return sorted(candidates, key=usefulness)[: max(number, 0)]


def _to_replace(state: ObservedState, surplus: Collection[Pod]) -> tuple[list[Pod], ObservedState]:
    """Return the failed pods whose back-off is over; until then a pod stays with its log."""
    failed = [
        pod
        for pod in state.staying
        if pod.phase == "Failed" and not pod.terminating and pod not in surplus
    ]
    due = {pod.index: state.status.workers[pod.index].not_before for pod in failed}
    ready = [pod for pod in failed if _is_due(due[pod.index], state.now)]
    return ready, state.waking_at(*due.values())


def _to_create(
    state: ObservedState, spec: Spec
) -> tuple[tuple[int, ...], frozenset[int], ObservedState]:
    """Return the indices of the pods to create, lowest first, and the indices among them to run on demand.

    A pod occupies its index until its object is gone, so that a job never has more pods than
    replicas, except while it is scaled in, moves to another zone or has workers on demand.
    """
    occupied = {pod.index for pod in state.pods}
    spot = _missing(state, _spot_target(state, spec), on_demand=False)
    bought = _missing(state, state.bought, on_demand=True)
    candidates = range(spot + bought + len(occupied))
    free = [index for index in candidates if index not in occupied][: spot + bought]
    records = state.status.workers
    due = {index: records[index].not_before for index in free if index in records}
    ready = tuple(index for index in free if _is_due(due.get(index), state.now))
    return (
        ready,
        frozenset(ready[len(ready) - bought :] if bought else ()),
        state.waking_at(*due.values()),
    )


def _missing(state: ObservedState, target: int, *, on_demand: bool) -> int:
    """Return how many pods of one kind are missing; pods that leave for another zone do not count."""
    leaving = [pod for pod in state.present if pod not in state.staying]
    staying = sum(pod.on_demand is on_demand and pod not in leaving for pod in state.pods)
    return max(target - staying, 0)


def _is_due(not_before: datetime | None, now: datetime) -> bool:
    return not_before is None or not_before <= now


def _with_conditions(state: ObservedState, spec: Spec, surplus: Collection[Pod]) -> ObservedState:
    """Return the state with the conditions that follow from its workers."""
    running = [pod for pod in state.running if pod not in surplus]
    enough = len(running) >= spec.min_replicas
    state = state.with_condition(
        ConditionType.RUNNING,
        is_true=enough,
        reason="ElasticJobRunning" if enough else "TooFewWorkers",
        message=with_faults(state, _summary(state, spec, running)),
    )
    if not _still_suspended(state):
        state = state.with_condition_cleared(
            ConditionType.SUSPENDED, "ElasticJobResumed", "the job may run"
        )
    state = state.with_condition_cleared(ConditionType.FAILED, "SpecValid", "the spec is valid now")
    return _with_restarting(state, spec, running)


def _summary(state: ObservedState, spec: Spec, running: Collection[Pod]) -> str:
    """Return the number of running workers, and the reason if not all run, as text."""
    desired = max(spec.replicas, state.bought)
    workers = count(desired, "worker")
    message = f"{len(running)} of {workers} running, at least {spec.min_replicas} needed"
    if (scaling := state.status.scaling) and scaling.desired < spec.max_replicas:
        message += f"; up to {spec.max_replicas} as nodes come ({scaling.reason})"
    for index, description in exhausted_workers(state, spec).items():
        message += f"; left out: {describe_exhausted(state, spec, index, description)}"
        if due := state.status.workers[index].not_before:
            message += f"; next attempt, preferably on another node, at {format_time(due)}"
    if state.bought and state.purchase:
        message += f"; {state.bought} on demand"
    if len(running) < desired:
        message = "; ".join(filter(None, (message, state.last_error or _waiting_reason(state))))
    return message


def _with_restarting(state: ObservedState, spec: Spec, running: Collection[Pod]) -> ObservedState:
    """Return the state with the condition Restarting."""
    indices = {pod.index for pod in running}
    restarting = [
        index
        for index, record in sorted(state.status.workers.items())
        if record.restarts and index not in indices
    ]
    if not restarting or len(running) >= spec.replicas:
        return state.with_condition_cleared(
            ConditionType.RESTARTING, "WorkersRestarted", "all workers run again"
        )
    causes = ", ".join(
        f"{state.job.worker_name(index)} ({state.status.workers[index].cause})"
        for index in restarting
    )
    return state.with_condition(
        ConditionType.RESTARTING,
        is_true=True,
        reason="ElasticJobRestarting",
        message=f"being replaced: {causes}",
    )


def _still_suspended(state: ObservedState) -> bool:
    """Return True if a job without nodes only requests some, which does not end its suspension."""
    scaling = state.status.scaling
    requests = scaling is not None and scaling.basis is RaiseBasis.REQUEST
    return requests and not any(pod.node for pod in state.active)


def _waiting_reason(state: ObservedState) -> str:
    """Return the reason why the first pending pod does not run."""
    return next(
        (
            f"{pod.name}: {pod.waiting_reason}"
            for pod in state.present
            if pod.waiting_reason and not pod.terminating
        ),
        "",
    )
