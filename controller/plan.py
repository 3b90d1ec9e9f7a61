"""What one pass over a job should change: a list of rules, of which the first that applies decides.

Pure: everything it needs is in its arguments, the time included, and it touches nothing; `operator`
reads the world and does what the plan says. Each pass starts from what is there now, so a lost
event, a crash or a second controller costs time, never correctness.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from controller.api import CleanPodPolicy, RestartPolicy, Spec
from controller.ledger import WorkerRecord, how_it_ended
from controller.observed import Pod
from controller.scaling import Trial
from controller.situation import Deletion, Event, Plan, Situation
from controller.status import ConditionType, Status

LATECOMER_SECONDS = 30  # for a worker that is starting when the training ends
INVALID_SPEC = "InvalidSpec"
NO_CAPACITY = "NoCapacity"
SENT_AWAY = "sent_away"  # the cause in the record of a worker that we deleted for good


def plan(seen: Situation) -> Plan:
    """Decide what one pass should change."""
    decided = next(made for rule in RULES if (made := rule(seen)) is not None)
    return replace(decided, events=(*_news(seen, decided.status), *decided.events))


def leave_to_its_deletion(seen: Situation) -> Plan | None:
    """A job that is being deleted takes its pods with it: the garbage collector sees to that."""
    return Plan(status=seen.job.status) if seen.job.deleting else None


def clean_up_after_the_end(seen: Situation) -> Plan | None:
    """A job that Succeeded or Failed stays so; what is left of it is cleaned up as its policy says."""
    if not is_over(seen.job.status):
        return None
    active = len(seen.running)
    status = replace(seen.job.status, active=active, observed_generation=seen.job.generation)
    spec, completion = seen.job.spec, seen.job.status.completion
    if spec is None or completion is None:
        return Plan(status=status)
    doomed = seen.sweep() + _doomed_by_policy(seen, spec)
    gone = {deletion.pod.name for deletion in doomed}
    everything = spec.run_policy.clean_pod_policy is CleanPodPolicy.ALL
    ttl, due = spec.run_policy.ttl_seconds_after_finished, None
    if ttl is not None:
        due = completion + timedelta(seconds=ttl)
    return Plan(
        status=status,
        delete_pods=doomed,
        delete_services=tuple(sorted(seen.services if everything else seen.services & gone)),
        delete_job=due is not None and due <= seen.now,
        wake=seen.waking(due).next_wake(),
    )


def refuse_nonsense(seen: Situation) -> Plan | None:
    """A job that never had a good spec fails; mending the spec starts it, since nothing has run yet."""
    if seen.job.spec is not None:
        return None
    message = "; ".join(seen.job.faults)
    seen = _created(seen).said(
        ConditionType.FAILED, holds=True, reason=INVALID_SPEC, message=message
    )
    seen = seen.said(
        ConditionType.RUNNING, holds=False, reason=INVALID_SPEC, message="there is nothing to run"
    )
    return Plan(status=seen.status)


def wind_up(seen: Situation) -> Plan | None:
    """Once a worker has succeeded the training is over: nobody is replaced, and the others are waited for.

    Workers end together; one that starts late finds the training finished and exits with 0. One
    that waits for a machine is not needed any more, one that is starting gets some seconds.
    """
    finished = [record for record in seen.status.workers.values() if record.succeeded]
    if not finished:
        return None
    spec = _spec(seen)
    ended = seen.status.training_ended or seen.now
    seen = replace(seen, status=replace(seen.status, training_ended=ended))
    due = ended + timedelta(seconds=LATECOMER_SECONDS)
    deadline = _deadline(seen, spec)
    late = [
        pod for pod in seen.present if not pod.over and pod.phase != "Running" and not pod.deleting
    ]
    unneeded = [pod for pod in late if pod.node is None or due <= seen.now]
    busy = [pod for pod in seen.present if not pod.over and pod not in unneeded]
    seen = _retire(seen, unneeded)
    doomed = [Deletion(pod=pod, why="the training is over") for pod in unneeded]
    if deadline is not None and deadline <= seen.now:
        doomed += [
            Deletion(pod=pod, why="the job's deadline has passed")
            for pod in busy
            if not pod.deleting
        ]
    if busy:
        message = f"{_count(len(finished), 'worker')} finished; {_count(len(busy), 'other')} to end"
        seen = _created(seen).said(
            ConditionType.RUNNING, holds=True, reason="ElasticJobRunning", message=message
        )
        seen = seen.ceased(ConditionType.RESTARTING, "TrainingEnded", message).waking(due, deadline)
        return _plan(seen, delete_pods=(*seen.sweep(), *doomed))
    seen = _ended(
        seen, ConditionType.SUCCEEDED, "ElasticJobSucceeded", _how_it_went(seen, len(finished))
    )
    return _plan(seen, delete_pods=(*seen.sweep(), *doomed))


def stop_at_the_deadline(seen: Situation) -> Plan | None:
    """A job that may run so long and no longer fails then, and its workers stop."""
    spec = _spec(seen)
    deadline = _deadline(seen, spec)
    if deadline is None or deadline > seen.now or spec.suspended:
        return None
    message = (
        f"the job has run for RunPolicy.activeDeadlineSeconds ({spec.run_policy.active_deadline_seconds} s) without "
        "finishing; make it anew with a longer one: training goes on from its newest checkpoint"
    )
    seen = _ended(seen, ConditionType.FAILED, "DeadlineExceeded", message)
    stopped = [pod for pod in seen.present if not pod.over and not pod.deleting]
    doomed = tuple(Deletion(pod=pod, why="the job's deadline has passed") for pod in stopped)
    return _plan(seen, delete_pods=(*seen.sweep(), *doomed))


def suspend(seen: Situation) -> Plan | None:
    """A suspended job, or one of 0 workers, has no pods; its workers begin with a clean record after it."""
    spec = _spec(seen)
    if not spec.suspended:
        return None
    reason, why = _why_suspended(seen, spec)
    seen = _accepted(_created(seen), spec)
    seen = seen.said(ConditionType.RUNNING, holds=False, reason=reason, message=_also(seen, why))
    seen = seen.ceased(ConditionType.FAILED, "SpecMended", "the spec is good now")
    seen = seen.ceased(ConditionType.RESTARTING, reason, why)
    seen = seen.said(ConditionType.SUSPENDED, holds=True, reason=reason, message=why)
    doomed = [
        Deletion(pod=pod, why="the job is suspended") for pod in seen.present if not pod.deleting
    ]
    seen = replace(seen, status=replace(seen.status, start=None, workers={}), ends=())
    seen = _retire(seen, seen.pods)
    return _plan(
        seen, delete_pods=(*seen.sweep(), *doomed), delete_services=tuple(sorted(seen.services))
    )


def give_up(seen: Situation) -> Plan | None:
    """A worker that keeps failing fails the job: a new pod would fail as well."""
    spec = _spec(seen)
    limit = spec.backoff_limit
    for index, record in sorted(seen.status.workers.items()):
        if record.ended and record.failures > limit:
            how = f"exited with code {record.exit_code}, {_count(record.failures, 'failure')} in a row"
            return _given_up(seen, spec, index, how)
    for pod in seen.present:
        if (
            spec.restart_policy in (RestartPolicy.ON_FAILURE, RestartPolicy.ALWAYS)
            and pod.crash_looping
            and pod.restarts > limit
        ):
            how = f"exited with code {pod.exit_code}, restarted {pod.restarts} times"
            return _given_up(seen, spec, pod.index, how)
    return None


def staff(seen: Situation) -> Plan | None:
    """Have as many workers as are asked for: take too many away, replace who ended, add who is missing."""
    spec = _spec(seen)
    seen = _accepted(_created(seen), spec)
    if seen.status.start is None:
        seen = replace(seen, status=replace(seen.status, start=seen.now))
    leaving = _too_many(seen, spec)
    seen = _retire(seen, leaving)
    replaced, seen = _to_be_replaced(seen, leaving)
    created, seen = _missing(seen, spec)
    seen = _told(seen.waking(_deadline(seen, spec)), spec, leaving)
    outdated = [pod for pod in seen.starting if pod not in leaving and pod.bounds != spec.bounds]
    named = {seen.job.worker_name(pod.index): pod.index for pod in seen.pods if pod not in leaving}
    named |= {seen.job.worker_name(index): index for index in created}
    return _plan(
        seen,
        create_pods=created,
        delete_pods=(
            *seen.sweep(),
            *(Deletion(pod=pod, why="the job was scaled in") for pod in leaving),
            *(Deletion(pod=pod, why=f"it is replaced: it {how_it_ended(pod)}") for pod in replaced),
        ),
        create_services=tuple(
            sorted(index for name, index in named.items() if name not in seen.services)
        ),
        delete_services=tuple(sorted(seen.services - set(named))),
        tell_bounds=tuple(outdated),
    )


RULES: tuple[Callable[[Situation], Plan | None], ...] = (
    leave_to_its_deletion,
    clean_up_after_the_end,
    refuse_nonsense,
    wind_up,
    stop_at_the_deadline,
    suspend,
    give_up,
    staff,
)


def is_over(status: Status) -> bool:
    """Say whether a job has Succeeded or Failed for good."""
    failed = status.condition(ConditionType.FAILED)
    return status.holds(ConditionType.SUCCEEDED) or (
        failed is not None and failed.holds and failed.reason != INVALID_SPEC
    )


def _too_many(seen: Situation, spec: Spec) -> list[Pod]:
    """Choose who leaves when fewer are wanted: who does the least for the training, then the highest index."""
    staying = [pod for pod in seen.present if not pod.deleting]
    ranks = {"Failed": 0, "Pending": 1, "Unknown": 2, "Running": 4}

    def usefulness(pod: Pod) -> tuple[int, int]:
        rank = ranks.get(pod.phase, 2)
        return (rank + (pod.phase == "Pending" and pod.node is not None), -pod.index)

    return sorted(staying, key=usefulness)[: max(len(staying) - spec.replicas, 0)]


def _retire(seen: Situation, leaving: Iterable[Pod]) -> Situation:
    """Begin the records of workers that we send away anew, so that their absence is counted as no loss."""
    records = dict(seen.status.workers)
    records |= {
        pod.index: WorkerRecord(pod=pod.uid, ended=True, cause=SENT_AWAY) for pod in leaving
    }
    return replace(seen, status=replace(seen.status, workers=records))


def _to_be_replaced(seen: Situation, leaving: Iterable[Pod]) -> tuple[list[Pod], Situation]:
    """Return the failed pods whose wait is over; until then a pod stays, and so does its log."""
    waiting = [
        pod
        for pod in seen.present
        if pod.phase == "Failed" and not pod.deleting and pod not in leaving
    ]
    due = {pod.index: seen.status.workers[pod.index].not_before for pod in waiting}
    ready = [pod for pod in waiting if (moment := due[pod.index]) is None or moment <= seen.now]
    return ready, seen.waking(*due.values())


def _missing(seen: Situation, spec: Spec) -> tuple[tuple[int, ...], Situation]:
    """Return the indices to fill, lowest first.

    A pod that is there in any state holds its place until its object is gone, so a job never has
    more pods than workers asked for, except while it is scaled in.
    """
    taken = {pod.index for pod in seen.pods}
    wanted = max(spec.replicas - len(taken), 0)
    free = [index for index in range(spec.replicas + len(taken)) if index not in taken][:wanted]
    records = seen.status.workers
    due = {index: records[index].not_before for index in free if index in records}
    ready = tuple(
        index for index in free if (moment := due.get(index)) is None or moment <= seen.now
    )
    return ready, seen.waking(*due.values())


def _told(seen: Situation, spec: Spec, leaving: list[Pod]) -> Situation:
    """Say in the conditions how the workers are."""
    running = [pod for pod in seen.running if pod not in leaving]
    message = f"{len(running)} of {_count(spec.replicas, 'worker')} running, at least {spec.min_replicas} needed"
    if (scaling := seen.status.scaling) and scaling.wanted < spec.max_replicas:
        message += f"; up to {spec.max_replicas} as machines come ({scaling.reason})"
    if len(running) < spec.replicas:
        message = "; ".join(filter(None, (message, seen.trouble or _why_not_all(seen))))
    enough = len(running) >= spec.min_replicas
    seen = seen.said(
        ConditionType.RUNNING,
        holds=enough,
        reason="ElasticJobRunning" if enough else "TooFewWorkers",
        message=_also(seen, message),
    )
    if not _still_set_aside(seen):
        seen = seen.ceased(ConditionType.SUSPENDED, "ElasticJobResumed", "the job may run")
    seen = seen.ceased(ConditionType.FAILED, "SpecMended", "the spec is good now")
    indices = {pod.index for pod in running}
    back = [
        index
        for index, record in sorted(seen.status.workers.items())
        if record.restarts and index not in indices
    ]
    if not back or len(running) >= spec.replicas:
        return seen.ceased(ConditionType.RESTARTING, "WorkersRestarted", "all workers run again")
    causes = ", ".join(
        f"{seen.job.worker_name(index)} ({seen.status.workers[index].cause})" for index in back
    )
    return seen.said(
        ConditionType.RESTARTING,
        holds=True,
        reason="ElasticJobRestarting",
        message=f"being replaced: {causes}",
    )


def _why_suspended(seen: Situation, spec: Spec) -> tuple[str, str]:
    """Return the reason and the message of the condition Suspended."""
    if spec.run_policy.suspend:
        return "ElasticJobSuspended", "RunPolicy.suspend is true"
    if seen.status.scaling is None:
        return "ElasticJobSuspended", "replicaSpecs.Worker.replicas is 0"
    why = f"waiting for machines: {seen.status.scaling.reason}; it goes on by itself when they come"
    return NO_CAPACITY, why


def _still_set_aside(seen: Situation) -> bool:
    """Whether a job without machines only asks for some, which is no news."""
    scaling = seen.status.scaling
    asks = scaling is not None and scaling.trial is Trial.ASK
    return asks and not any(pod.node for pod in seen.starting)


def _why_not_all(seen: Situation) -> str:
    return next(
        (f"{pod.name}: {pod.waiting}" for pod in seen.present if pod.waiting and not pod.deleting),
        "",
    )


def _also(seen: Situation, message: str) -> str:
    """Add to a message that the newest spec is not followed, where it is faulty."""
    if not seen.job.faults:
        return message
    return f"{message}; the newest spec is faulty and the one before it is followed: {'; '.join(seen.job.faults)}"


def _doomed_by_policy(seen: Situation, spec: Spec) -> tuple[Deletion, ...]:
    policy = spec.run_policy.clean_pod_policy
    stopped = seen.status.condition(ConditionType.FAILED)
    deadline = stopped is not None and stopped.holds and stopped.reason == "DeadlineExceeded"
    running = deadline or policy is CleanPodPolicy.RUNNING
    return tuple(
        Deletion(pod=pod, why=f"the job is over and its cleanPodPolicy is {policy}")
        for pod in seen.present
        if not pod.deleting and (policy is CleanPodPolicy.ALL or (running and not pod.over))
    )


def _given_up(seen: Situation, spec: Spec, index: int, how: str) -> Plan:
    name = seen.job.worker_name(index)
    message = (
        f"{name} {how}, and the limit is {spec.backoff_limit} (RunPolicy.backoffLimit); its log: "
        f"kubectl logs --namespace {seen.job.namespace} {name} --container elasticjob-worker"
    )
    return _plan(
        _ended(seen, ConditionType.FAILED, "BackoffLimitExceeded", message),
        delete_pods=seen.sweep(),
    )


def _how_it_went(seen: Situation, finished: int) -> str:
    counted = [record for record in seen.status.workers.values() if record.cause != SENT_AWAY]
    others = len(counted) - finished
    if not others:
        return f"{_count(finished, 'worker')} finished the training"
    return f"{_count(finished, 'worker')} finished the training; {_count(others, 'other')} did not run to its end"


def _ended(seen: Situation, kind: ConditionType, reason: str, message: str) -> Situation:
    seen = _created(seen).said(kind, holds=True, reason=reason, message=message)
    seen = seen.said(ConditionType.RUNNING, holds=False, reason=reason, message="the job is over")
    seen = seen.ceased(ConditionType.RESTARTING, reason, "the job is over")
    return replace(seen, status=replace(seen.status, completion=seen.now))


def _created(seen: Situation) -> Situation:
    return seen.said(
        ConditionType.CREATED,
        holds=True,
        reason="ElasticJobCreated",
        message="the controller has seen the job",
    )


def _accepted(seen: Situation, spec: Spec) -> Situation:
    if seen.job.faults:
        return seen
    return replace(seen, status=replace(seen.status, last_valid_spec=spec.source))


def _plan(
    seen: Situation,
    *,
    create_pods: tuple[int, ...] = (),
    delete_pods: tuple[Deletion, ...] = (),
    create_services: tuple[int, ...] = (),
    delete_services: tuple[str, ...] = (),
    tell_bounds: tuple[Pod, ...] = (),
) -> Plan:
    """Make the plan of a job that has a spec, with its workers counted in its status."""
    records = seen.status.workers.values()
    status = replace(
        seen.status,
        active=len(seen.running),
        succeeded=sum(record.succeeded for record in records),
        failed=sum(pod.phase == "Failed" and not pod.deleting for pod in seen.present),
    )
    return Plan(
        status=status,
        create_pods=create_pods,
        delete_pods=delete_pods,
        create_services=create_services,
        delete_services=delete_services,
        tell_bounds=tell_bounds,
        ends=seen.ends,
        wake=seen.next_wake(),
    )


def _news(seen: Situation, status: Status) -> tuple[Event, ...]:
    """Return what is worth an event: each end, each condition that became True, a spec newly found faulty."""
    old = seen.job.status
    news = [
        Event(reason="WorkerEnded", message=end.message, warning=True)
        for end in seen.ends
        if status is not old
    ]
    if seen.job.faults and seen.job.generation != old.observed_generation:
        news.append(Event(reason=INVALID_SPEC, message="; ".join(seen.job.faults), warning=True))
    if (scaling := status.scaling) and scaling != old.scaling:
        before = old.scaling.wanted if old.scaling else scaling.replicas
        if scaling.wanted != before:
            message = (
                f"{_count(scaling.wanted, 'worker')} wanted instead of {before}: {scaling.reason}"
            )
            news.append(Event(reason="Scaled", message=message))
    for condition in status.conditions:
        kind = ConditionType(condition.type)
        if condition.holds and not old.holds(kind):
            warning = kind in (ConditionType.FAILED, ConditionType.RESTARTING)
            news.append(Event(reason=condition.reason, message=condition.message, warning=warning))
    return tuple(news)


def _deadline(seen: Situation, spec: Spec) -> datetime | None:
    seconds, start = spec.run_policy.active_deadline_seconds, seen.status.start
    return None if seconds is None or start is None else start + timedelta(seconds=seconds)


def _spec(seen: Situation) -> Spec:
    assert seen.job.spec is not None, "refuse_nonsense comes first"  # noqa: S101  (a bug of ours, not input)
    return seen.job.spec


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
