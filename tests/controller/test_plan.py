from datetime import timedelta
from typing import Any

import pytest

from controller.actions import Plan
from controller.api import ElasticJob
from controller.objects import Node, Pod
from controller.pods import render_pod
from controller.status import Condition, ConditionType
from tests.controller.builders import NOW, after_pass, decide, failed, job, pod, spec


def deleted(result: Plan) -> list[int]:
    return [deletion.pod.index for deletion in result.delete_pods]


def condition(result: Plan, kind: ConditionType) -> Condition:
    current = result.status.condition(kind)
    assert current is not None, kind
    return current


def test_a_new_job_gets_all_its_workers_and_services_in_one_pass() -> None:
    result = decide(job())

    assert result.create_pods == result.create_services == (0, 1, 2)
    assert result.status.is_true(ConditionType.CREATED)
    assert not result.status.is_true(ConditionType.RUNNING)


def test_a_job_runs_once_enough_workers_run_and_its_message_counts_them() -> None:
    result = decide(job(), pod(0), pod(1, "Pending", waiting_reason="Unschedulable: no GPU"))

    running = condition(result, ConditionType.RUNNING)
    assert running.is_true
    assert (
        running.message
        == "1 of 3 workers running, at least 1 needed; job-worker-1: Unschedulable: no GPU"
    )


def test_a_terminating_pod_is_not_replaced_before_it_is_gone() -> None:
    assert decide(job(), pod(0), pod(1, terminating=True), pod(2)).create_pods == ()


def test_a_vanished_worker_is_replaced_under_its_own_index() -> None:
    before = decide(job(), pod(0), pod(1), pod(2))

    result = decide(after_pass(job(), before), pod(0), pod(2))

    assert result.create_pods == (1,)
    assert result.status.is_true(ConditionType.RESTARTING)
    assert [end.cause for end in result.exits] == ["deleted"]


def test_a_failed_worker_keeps_its_pod_and_log_until_its_back_off_is_over() -> None:
    waiting = decide(job(), pod(0), failed(1), pod(2))
    assert deleted(waiting) == []
    assert waiting.requeue_at == NOW + timedelta(seconds=2)

    later = decide(after_pass(job(), waiting), pod(0), failed(1), pod(2), after=2)

    assert deleted(later) == [1]
    assert later.exits == (), "each exit is counted once"


def test_a_worker_that_was_evicted_is_replaced_immediately() -> None:
    assert deleted(decide(job(), pod(0), failed(1, 143), pod(2))) == [1]


@pytest.mark.parametrize(
    ("unhealthy", "removed"),
    [(failed(0), 0), (pod(0, "Pending", node=None), 0), (pod(0, "Running"), 2)],
)
def test_scaling_in_removes_unhealthy_workers_first_and_then_the_highest_index(
    unhealthy: Any, removed: Any
) -> None:
    assert deleted(decide(job(spec(2)), unhealthy, pod(1), pod(2))) == [removed]


def test_a_worker_that_was_scaled_in_does_not_count_as_lost() -> None:
    result = decide(job(spec(2)), pod(0), pod(1), pod(2))
    after = decide(after_pass(job(spec(2)), result), pod(0), pod(1))

    assert after.exits == ()
    assert not after.status.is_true(ConditionType.RESTARTING)


def test_pods_of_a_node_that_is_gone_are_removed_by_force() -> None:
    result = decide(
        job(), pod(0), pod(1, node="gone"), pod(2), nodes={"n0": Node(name="n0"), "gone": None}
    )

    (deletion,) = result.delete_pods
    assert (deletion.pod.index, deletion.force) == (1, True)
    assert [end.cause for end in result.exits] == ["node_lost"]


def test_a_node_that_is_not_ready_gets_a_grace_period() -> None:
    not_ready = {"n0": Node(name="n0", unready_since=NOW)}
    soon = decide(job(spec(1)), pod(0), nodes=not_ready, after=29)
    later = decide(job(spec(1)), pod(0), nodes=not_ready, after=30)

    assert soon.delete_pods == ()
    assert soon.requeue_at == NOW + timedelta(seconds=30)
    assert later.delete_pods[0].force


def fail_repeatedly(times: int, *others: Pod) -> Plan:
    """Return the plan after worker 1 has failed `times` times."""
    elastic_job, after = job(), 0.0
    for attempt in range(times):
        result = decide(elastic_job, *others, failed(1, uid=f"attempt-{attempt}"), after=after)
        elastic_job, after = after_pass(elastic_job, result), after + 4000
    return result


def test_a_worker_that_fails_seven_times_is_left_out_while_others_run() -> None:
    result = fail_repeatedly(7, pod(0), pod(2))

    assert not result.status.is_true(ConditionType.FAILED), "one bad node ends no job"
    assert deleted(result) == [], "healthy pods are kept"
    running = condition(result, ConditionType.RUNNING)
    assert running.is_true
    assert "left out: job-worker-1 exited with code 1, 7 consecutive failures" in running.message
    assert "kubectl logs" in running.message
    assert [event.reason for event in result.events if event.warning].count("WorkerLeftOut") == 1


def test_a_worker_that_is_left_out_is_tried_again_ever_more_rarely() -> None:
    result = fail_repeatedly(20, pod(0), pod(2))

    retry_at = result.status.workers[1].not_before
    assert retry_at is not None
    assert retry_at - NOW - timedelta(seconds=19 * 4000) == timedelta(hours=1)


def test_a_worker_that_is_left_out_prefers_another_node() -> None:
    elastic_job = after_pass(job(), fail_repeatedly(7, pod(0), pod(2)))
    assert elastic_job.spec is not None

    affinity = render_pod(elastic_job, elastic_job.spec, 1)["spec"]["affinity"]["nodeAffinity"]

    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchFields"][0]["values"] == ["n0"]
    assert "affinity" not in render_pod(elastic_job, elastic_job.spec, 0)["spec"]


def test_an_evicted_worker_that_is_being_replaced_keeps_the_job_alive() -> None:
    before = decide(job(spec(backoffLimit=0)), pod(0), pod(1))

    result = decide(after_pass(job(spec(backoffLimit=0)), before), failed(1))

    assert not result.status.is_true(ConditionType.FAILED)


@pytest.mark.parametrize("others", [(), (pod(0, "Pending", node=None),)])
def test_the_job_fails_when_no_other_worker_makes_progress(others: tuple[Pod, ...]) -> None:
    result = decide(job(spec(backoffLimit=0)), *others, failed(1, 7))

    failure = condition(result, ConditionType.FAILED)
    assert failure.reason == "BackoffLimitExceeded"
    assert "job-worker-1 exited with code 7" in failure.message
    assert "kubectl logs --namespace ns job-worker-1" in failure.message
    assert result.delete_pods == ()


def test_restart_policy_never_allows_no_failure_regardless_of_the_back_off_limit() -> None:
    result = decide(job(spec(policy="Never", backoffLimit=9)), failed(0), pod(1), pod(2))

    assert result.status.is_true(ConditionType.FAILED)


def test_a_kubelet_that_restarts_a_worker_too_often_fails_the_job() -> None:
    looping = pod(0, crash_looping=True, restarts=7, exit_code=1)

    assert decide(job(spec(1, policy="OnFailure")), looping).status.is_true(ConditionType.FAILED)


def test_after_the_first_success_no_worker_is_replaced() -> None:
    result = decide(job(), pod(0, "Succeeded"), failed(1), pod(2))

    assert (result.create_pods, result.delete_pods) == ((), ())
    assert not result.status.is_true(ConditionType.SUCCEEDED)


def test_the_job_succeeds_when_no_worker_is_left_running() -> None:
    result = decide(job(), pod(0, "Succeeded"), failed(1), pod(2, "Pending", node=None))

    assert result.status.is_true(ConditionType.SUCCEEDED)
    assert result.status.completion == NOW
    assert deleted(result) == [2]


def test_a_worker_that_starts_when_the_training_ends_gets_a_grace_period() -> None:
    finished = (pod(0, "Succeeded"), pod(1, "Pending"))
    first = decide(job(spec(2)), *finished)
    later = decide(after_pass(job(spec(2)), first), *finished, after=30)

    assert first.delete_pods == ()
    assert deleted(later) == [1]
    assert later.status.is_true(ConditionType.SUCCEEDED)


def test_a_success_is_remembered_when_its_pod_is_gone() -> None:
    first = decide(job(spec(2)), pod(0, "Succeeded"), pod(1))

    assert decide(after_pass(job(spec(2)), first), pod(1, "Succeeded")).status.succeeded == 2


def test_an_invalid_new_spec_fails_the_job_and_a_valid_one_starts_it() -> None:
    invalid = decide(job(spec(9)))
    valid = decide(job(spec(2), invalid.status.to_json()))

    assert condition(invalid, ConditionType.FAILED).reason == "InvalidSpec"
    assert invalid.create_pods == ()
    assert valid.create_pods == (0, 1)
    assert not valid.status.is_true(ConditionType.FAILED)


def test_an_invalid_edit_does_not_change_the_job_and_is_reported_once() -> None:
    running = decide(job(spec(2)), pod(0), pod(1)).status.to_json()
    first = decide(job(spec(9), running, generation=2), pod(0), pod(1))
    second = decide(job(spec(9), first.status.to_json(), generation=2), pod(0), pod(1))

    assert (first.create_pods, first.delete_pods) == ((), ())
    assert [event.reason for event in first.events] == ["InvalidSpec"]
    assert "maxReplicas" in condition(first, ConditionType.RUNNING).message
    assert second.events == ()
    assert second.status == first.status


def test_the_controller_wakes_at_the_deadline_and_stops_the_workers() -> None:
    elastic_job = job(spec(1, activeDeadlineSeconds=60))
    first = decide(elastic_job, pod(0))
    later = decide(after_pass(elastic_job, first), pod(0), after=60)

    assert first.requeue_at == NOW + timedelta(seconds=60)
    assert condition(later, ConditionType.FAILED).reason == "DeadlineExceeded"
    assert deleted(later) == [0]


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("None", "deadline"),
        ("Running", "cleanPodPolicy is Running"),
        ("All", "cleanPodPolicy is All"),
    ],
)
def test_the_reason_of_a_deletion_after_the_deadline_is_the_rule_that_selects_the_pod(
    policy: str, reason: str
) -> None:
    elastic_job = job(spec(1, activeDeadlineSeconds=60, cleanPodPolicy=policy))
    later = decide(after_pass(elastic_job, decide(elastic_job, pod(0))), pod(0), after=60)

    second = decide(after_pass(elastic_job, later), pod(0), after=61)

    (deletion,) = second.delete_pods
    assert reason in deletion.reason, "the event must name the cause, not a policy that keeps pods"


def test_a_suspended_job_has_no_pods_and_its_deadline_does_not_run() -> None:
    elastic_job = job(spec(2, suspend=True, activeDeadlineSeconds=60))
    result = decide(elastic_job, pod(0), pod(1))

    assert deleted(result) == [0, 1]
    assert result.status.start is None
    assert decide(after_pass(elastic_job, result), after=90).status.is_true(ConditionType.SUSPENDED)


def test_a_finished_job_is_deleted_after_its_time_to_live() -> None:
    elastic_job = job(spec(1, ttlSecondsAfterFinished=60))
    completed = after_pass(elastic_job, decide(elastic_job, pod(0, "Succeeded")))

    assert decide(completed, pod(0, "Succeeded")).requeue_at == NOW + timedelta(seconds=60)
    assert decide(completed, pod(0, "Succeeded"), after=60).delete_job


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    from dataclasses import replace

    result = decide(replace(job(), terminating=True))

    assert (result.create_pods, result.delete_pods) == ((), ())


def test_an_error_of_the_api_server_is_reported_in_the_status() -> None:
    result = decide(job(), error="pods is forbidden: exceeded quota")

    assert "exceeded quota" in condition(result, ConditionType.RUNNING).message


def test_a_condition_keeps_its_transition_time_if_only_its_message_changes() -> None:
    first = decide(job(), pod(0))
    second = decide(after_pass(job(), first), pod(0), pod(1), after=50)

    running = condition(second, ConditionType.RUNNING)
    assert running.last_transition == NOW
    assert running.last_update == NOW + timedelta(seconds=50)


def test_changed_bounds_reach_running_workers_without_replacing_them() -> None:
    elastic_job = job(spec(2, min_replicas=2, max_replicas=4))
    result = decide(elastic_job, pod(0), pod(1, "Pending", bounds="2:4"))

    assert [pod.index for pod in result.update_bounds] == [0]
    assert (result.create_pods, result.delete_pods) == ((), ())


def test_terminating_and_failed_workers_get_no_new_bounds() -> None:
    elastic_job = job(spec(2, min_replicas=2, max_replicas=4))

    assert decide(elastic_job, pod(0, terminating=True), failed(1)).update_bounds == ()


def follower(replicas: int = 3, **fields: Any) -> ElasticJob:
    return job(spec(replicas, **fields), scaling="capacity")


def test_a_job_that_follows_capacity_removes_only_workers_without_a_machine() -> None:
    elastic_job = follower()
    first = decide(elastic_job, pod(0), pod(1), pod(2, "Pending", node=None))
    later = decide(
        after_pass(elastic_job, first), pod(0), pod(1), pod(2, "Pending", node=None), after=120
    )

    assert first.delete_pods == ()
    assert first.requeue_at == NOW + timedelta(seconds=120)
    assert deleted(later) == [2]
    assert "Scaled" in [event.reason for event in later.events]
    assert later.status.is_true(ConditionType.RUNNING)
    assert later.status.scaling is not None
    assert later.status.scaling.desired == 2


def test_a_job_grows_into_stable_capacity_without_disturbing_other_workers() -> None:
    elastic_job = follower()
    first = decide(elastic_job, pod(0), pod(1), pod(2), schedulable=1)
    later = decide(after_pass(elastic_job, first), pod(0), pod(1), pod(2), schedulable=1, after=10)

    assert first.create_pods == ()
    assert later.create_pods == (3,)
    assert later.delete_pods == ()


def without_machines(after: float = 120) -> tuple[ElasticJob, Plan]:
    elastic_job = follower(2)
    waiting = [pod(index, "Pending", node=None) for index in range(2)]
    first = decide(elastic_job, *waiting)
    return elastic_job, decide(after_pass(elastic_job, first), *waiting, after=after)


def test_without_machines_the_job_is_suspended_and_has_not_failed() -> None:
    _, result = without_machines()

    suspended = condition(result, ConditionType.SUSPENDED)
    assert (suspended.is_true, suspended.reason) == (True, "NoCapacity")
    assert "resumes automatically" in suspended.message
    assert deleted(result) == [0, 1]
    assert not result.status.is_true(ConditionType.FAILED)
    assert all(record.failures == 0 for record in result.status.workers.values())


def test_the_job_resumes_when_machines_return() -> None:
    elastic_job, suspended = without_machines()
    waiting = decide(after_pass(elastic_job, suspended), schedulable=2, after=130)
    result = decide(after_pass(elastic_job, waiting), schedulable=2, after=140)

    assert result.create_pods == (0, 1)
    assert not result.status.is_true(ConditionType.SUSPENDED)


def test_a_job_that_requests_machines_stays_suspended_until_a_worker_is_scheduled() -> None:
    elastic_job, suspended = without_machines()
    requesting = decide(after_pass(elastic_job, suspended), after=420)
    scheduled = decide(after_pass(elastic_job, requesting), pod(0), after=425)

    assert requesting.create_pods == (0,)
    assert requesting.status.is_true(ConditionType.SUSPENDED)
    assert not scheduled.status.is_true(ConditionType.SUSPENDED)


@pytest.mark.parametrize("suspension", [{"replicas": 0}, {"suspend": True}])
def test_a_job_that_a_user_suspended_stays_suspended_at_any_capacity(
    suspension: dict[str, Any],
) -> None:
    result = decide(follower(**suspension), schedulable=5, after=1000)

    assert result.create_pods == ()
    assert condition(result, ConditionType.SUSPENDED).reason == "ElasticJobSuspended"
    assert result.status.scaling is None


def test_a_job_that_stops_following_capacity_returns_to_its_spec() -> None:
    elastic_job = follower()
    fewer = decide(elastic_job, pod(0), pod(1), pod(2, "Pending", node=None), after=120)
    assert elastic_job.spec is not None
    fixed = job(dict(elastic_job.spec.source), fewer.status.to_json())

    result = decide(fixed, pod(0), pod(1))

    assert result.create_pods == (2,)
    assert result.status.scaling is None


def test_an_unknown_scaling_mode_is_reported_with_its_fix() -> None:
    result = decide(job(scaling="always"))

    failure = condition(result, ConditionType.FAILED)
    assert "everstep.dev/scaling] is 'always'; use one of fixed, capacity" in failure.message
