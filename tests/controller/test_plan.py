"""The plan of one pass over a job: workers to create and to delete, the status, and events."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.actions import Plan
from controller.api import ElasticJob
from controller.exit_history import STEADY_SECONDS
from controller.objects import Node, Pod
from controller.placement_state import PlacementState
from controller.pods import render_pod, template_hash
from controller.status import Condition, ConditionType
from everstep.capacity.placement import PlacementPhase
from tests.controller.builders import (
    NOW,
    TEMPLATE,
    decide,
    deleted_indices,
    failed_pod,
    job,
    job_after_pass,
    pod,
    spec,
)


def condition(plan: Plan, kind: ConditionType) -> Condition:
    result = plan.status.condition(kind)
    assert result is not None, kind
    return result


def test_a_new_job_gets_all_its_workers_and_services_in_one_pass() -> None:
    result = decide(job())

    assert result.create_pods == result.create_services == (0, 1, 2)
    assert result.status.is_true(ConditionType.CREATED)
    assert not result.status.is_true(ConditionType.RUNNING)


def test_a_job_runs_once_enough_workers_run_and_its_message_counts_them() -> None:
    result = decide(job(), pod(0), pod(1, "Pending", waiting_reason="Unschedulable: no GPU"))

    running_condition = condition(result, ConditionType.RUNNING)
    assert running_condition.is_true
    assert (
        running_condition.message
        == "1 of 3 workers running, at least 1 needed; job-worker-1: Unschedulable: no GPU"
    )


def test_a_job_with_fewer_running_workers_than_its_minimum_does_not_run() -> None:
    result = decide(job(spec(min_replicas=2)), pod(0), pod(1, "Pending"), pod(2, "Pending"))

    running_condition = condition(result, ConditionType.RUNNING)
    assert (running_condition.is_true, running_condition.reason) == (False, "TooFewWorkers")


def test_a_terminating_pod_is_not_replaced_before_it_is_gone() -> None:
    assert decide(job(), pod(0), pod(1, terminating=True), pod(2)).create_pods == ()


def test_a_vanished_worker_is_replaced_under_its_own_index() -> None:
    first_plan = decide(job(), pod(0), pod(1), pod(2))

    result = decide(job_after_pass(job(), first_plan), pod(0), pod(2))

    assert result.create_pods == (1,)
    assert result.status.is_true(ConditionType.RESTARTING)
    assert [end.cause for end in result.exits] == ["deleted"]


def test_a_failed_worker_keeps_its_pod_and_log_until_its_back_off_is_over() -> None:
    waiting_plan = decide(job(), pod(0), failed_pod(1), pod(2))
    assert deleted_indices(waiting_plan) == []
    assert waiting_plan.requeue_at == NOW + timedelta(seconds=2)

    later_plan = decide(job_after_pass(job(), waiting_plan), pod(0), failed_pod(1), pod(2), after=2)

    assert deleted_indices(later_plan) == [1]
    assert later_plan.exits == (), "each exit is counted once"


def test_a_worker_that_was_terminated_by_a_signal_is_replaced_immediately() -> None:
    assert deleted_indices(decide(job(), pod(0), failed_pod(1, 143), pod(2))) == [1]


@pytest.mark.parametrize(
    ("unhealthy", "expected"),
    [(failed_pod(0), 0), (pod(0, "Pending", node=None), 0), (pod(0, "Running"), 2)],
)
def test_scaling_in_removes_unhealthy_workers_first_and_then_the_highest_index(
    unhealthy: Pod, expected: int
) -> None:
    assert deleted_indices(decide(job(spec(2)), unhealthy, pod(1), pod(2))) == [expected]


def test_a_worker_that_was_scaled_in_does_not_count_as_lost() -> None:
    result = decide(job(spec(2)), pod(0), pod(1), pod(2))
    later_plan = decide(job_after_pass(job(spec(2)), result), pod(0), pod(1))

    assert later_plan.exits == ()
    assert not later_plan.status.is_true(ConditionType.RESTARTING)


def test_pods_on_a_node_that_is_gone_are_force_deleted() -> None:
    result = decide(
        job(), pod(0), pod(1, node="gone"), pod(2), nodes={"n0": Node(name="n0"), "gone": None}
    )

    (deletion,) = result.delete_pods
    assert (deletion.pod.index, deletion.force) == (1, True)
    assert [end.cause for end in result.exits] == ["node_lost"]


def test_a_node_that_is_not_ready_gets_a_grace_period() -> None:
    nodes = {"n0": Node(name="n0", unready_since=NOW)}
    early_plan = decide(job(spec(1)), pod(0), nodes=nodes, after=29)
    later_plan = decide(job(spec(1)), pod(0), nodes=nodes, after=30)

    assert early_plan.delete_pods == ()
    assert early_plan.requeue_at == NOW + timedelta(seconds=30)
    assert later_plan.delete_pods[0].force


def test_a_worker_whose_node_returns_before_its_pod_is_deleted_was_not_lost() -> None:
    """The controller may stop after it has written the status and before it deletes the pod."""
    elastic_job = job(spec(1))
    lost_plan = decide(elastic_job, pod(0), nodes={"n0": Node(name="n0", out_of_service=True)})
    assert [end.cause for end in lost_plan.exits] == ["node_lost"]

    returned_plan = decide(job_after_pass(elastic_job, lost_plan), pod(0))
    failed_plan = decide(job_after_pass(elastic_job, returned_plan), failed_pod(0))

    assert returned_plan.delete_pods == ()
    assert returned_plan.status.workers[0].restarts == 0
    assert [end.cause for end in failed_plan.exits] == ["failed"], "its next exit counts"


FAILURE_INTERVAL_SECONDS = 4000.0
"""Longer than any back-off, so that a new pod exists at each failure."""


def fail_repeatedly(times: int, *others: Pod) -> Plan:
    """Return the plan after worker 1 has failed `times` times."""
    elastic_job, after = job(), 0.0
    for attempt in range(times):
        result = decide(elastic_job, *others, failed_pod(1, uid=f"attempt-{attempt}"), after=after)
        elastic_job, after = job_after_pass(elastic_job, result), after + FAILURE_INTERVAL_SECONDS
    return result


def test_a_worker_that_fails_seven_times_is_left_out_while_others_run() -> None:
    result = fail_repeatedly(7, pod(0), pod(2))

    assert not result.status.is_true(ConditionType.FAILED), "one bad node does not end the job"
    assert deleted_indices(result) == [], "healthy pods are kept"
    running_condition = condition(result, ConditionType.RUNNING)
    assert running_condition.is_true
    assert (
        "left out: job-worker-1 exited with code 1, 7 consecutive failures"
        in running_condition.message
    )
    assert "kubectl logs" in running_condition.message
    assert "or as soon as the job's template is edited" in running_condition.message
    assert [event.reason for event in result.events if event.warning].count("WorkerLeftOut") == 1


@pytest.mark.parametrize(
    ("failures", "delay_seconds"), [(7, 128), (8, 256), (11, 2048), (12, 3600), (20, 3600)]
)
def test_a_worker_that_is_left_out_is_retried_with_growing_delays_up_to_an_hour(
    failures: int, delay_seconds: int
) -> None:
    result = fail_repeatedly(failures, pod(0), pod(2))

    last_failed_at = NOW + timedelta(seconds=(failures - 1) * FAILURE_INTERVAL_SECONDS)
    retry_at = result.status.workers[1].not_before
    assert retry_at == last_failed_at + timedelta(seconds=delay_seconds)


@pytest.mark.parametrize(
    ("run_seconds", "failures"), [(STEADY_SECONDS - 1, 7), (STEADY_SECONDS, 1)]
)
def test_a_steady_run_resets_the_count_of_failures(run_seconds: float, failures: int) -> None:
    elastic_job = job_after_pass(job(), fail_repeatedly(6, pod(0), pod(2)))
    steady_pod = failed_pod(1, uid="steady", run_seconds=run_seconds)

    result = decide(elastic_job, pod(0), steady_pod, pod(2))

    assert result.status.workers[1].failures == failures


def test_a_worker_that_is_left_out_prefers_another_node() -> None:
    elastic_job = job_after_pass(job(), fail_repeatedly(7, pod(0), pod(2)))
    assert elastic_job.spec is not None

    affinity = render_pod(elastic_job, elastic_job.spec, 1)["spec"]["affinity"]["nodeAffinity"]

    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchFields"][0]["values"] == ["n0"]
    assert "affinity" not in render_pod(elastic_job, elastic_job.spec, 0)["spec"]


def test_a_deleted_worker_that_is_being_replaced_keeps_the_job_alive() -> None:
    first_plan = decide(job(spec(backoffLimit=0)), pod(0), pod(1))

    result = decide(job_after_pass(job(spec(backoffLimit=0)), first_plan), failed_pod(1))

    assert not result.status.is_true(ConditionType.FAILED)


@pytest.mark.parametrize("others", [(), (pod(0, "Pending", node=None),)])
def test_the_job_fails_when_no_other_worker_makes_progress(others: tuple[Pod, ...]) -> None:
    result = decide(job(spec(backoffLimit=0)), *others, failed_pod(1, 7))

    failure = condition(result, ConditionType.FAILED)
    assert failure.reason == "BackoffLimitExceeded"
    assert "job-worker-1 exited with code 7" in failure.message
    assert "kubectl logs --namespace ns job-worker-1" in failure.message
    assert result.delete_pods == ()


def test_a_job_whose_init_container_fails_repeatedly_fails_with_the_command_for_its_log() -> None:
    elastic_job = job(spec(1, backoffLimit=0))

    result = decide(elastic_job, failed_pod(0, init_container="prepare"))

    failure = condition(result, ConditionType.FAILED)
    assert failure.is_true
    assert "job-worker-0 --container prepare" in failure.message


def test_under_restart_policy_never_the_first_failure_fails_the_job_at_any_back_off_limit() -> None:
    result = decide(job(spec(policy="Never", backoffLimit=9)), failed_pod(0), pod(1), pod(2))

    failure = condition(result, ConditionType.FAILED)
    assert "no worker is replaced (restartPolicy is Never)" in failure.message
    assert "backoffLimit" not in failure.message
    assert "other worker" not in failure.message, "two others make progress"


def test_a_kubelet_that_restarts_a_worker_too_often_fails_the_job() -> None:
    looping_pod = pod(0, crash_looping=True, restarts=7, exit_code=1)

    assert decide(job(spec(1, policy="OnFailure")), looping_pod).status.is_true(
        ConditionType.FAILED
    )


def test_after_the_first_success_no_worker_is_replaced() -> None:
    result = decide(job(), pod(0, "Succeeded"), failed_pod(1), pod(2))

    assert (result.create_pods, result.delete_pods) == ((), ())
    assert not result.status.is_true(ConditionType.SUCCEEDED)


def test_the_job_succeeds_when_no_worker_is_left_running() -> None:
    result = decide(job(), pod(0, "Succeeded"), failed_pod(1), pod(2, "Pending", node=None))

    assert result.status.is_true(ConditionType.SUCCEEDED)
    assert result.status.completion == NOW
    assert deleted_indices(result) == [2]


def test_a_worker_that_starts_when_the_training_ends_gets_a_grace_period() -> None:
    finished_pods = (pod(0, "Succeeded"), pod(1, "Pending"))
    first_plan = decide(job(spec(2)), *finished_pods)
    later_plan = decide(job_after_pass(job(spec(2)), first_plan), *finished_pods, after=30)

    assert first_plan.delete_pods == ()
    assert deleted_indices(later_plan) == [1]
    assert later_plan.status.is_true(ConditionType.SUCCEEDED)


def test_a_success_is_remembered_when_its_pod_is_gone() -> None:
    first_plan = decide(job(spec(2)), pod(0, "Succeeded"), pod(1))

    assert (
        decide(job_after_pass(job(spec(2)), first_plan), pod(1, "Succeeded")).status.succeeded == 2
    )


def test_an_invalid_new_spec_fails_the_job_and_a_valid_one_starts_it() -> None:
    invalid_plan = decide(job(spec(9)))
    valid_plan = decide(job(spec(2), invalid_plan.status.to_json()))

    assert condition(invalid_plan, ConditionType.FAILED).reason == "InvalidSpec"
    assert invalid_plan.create_pods == ()
    assert valid_plan.create_pods == (0, 1)
    assert not valid_plan.status.is_true(ConditionType.FAILED)


def test_an_invalid_edit_does_not_change_the_job_and_is_reported_once() -> None:
    status = decide(job(spec(2)), pod(0), pod(1)).status.to_json()
    first_plan = decide(job(spec(9), status, generation=2), pod(0), pod(1))
    second_plan = decide(job(spec(9), first_plan.status.to_json(), generation=2), pod(0), pod(1))

    assert (first_plan.create_pods, first_plan.delete_pods) == ((), ())
    assert [event.reason for event in first_plan.events] == ["InvalidSpec"]
    assert "maxReplicas" in condition(first_plan, ConditionType.RUNNING).message
    assert second_plan.events == ()
    assert second_plan.status == first_plan.status


def test_the_controller_wakes_at_the_deadline_and_stops_the_workers() -> None:
    elastic_job = job(spec(1, activeDeadlineSeconds=60))
    first_plan = decide(elastic_job, pod(0))
    later_plan = decide(job_after_pass(elastic_job, first_plan), pod(0), after=60)

    assert first_plan.requeue_at == NOW + timedelta(seconds=60)
    assert condition(later_plan, ConditionType.FAILED).reason == "DeadlineExceeded"
    assert deleted_indices(later_plan) == [0]


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
    later_plan = decide(job_after_pass(elastic_job, decide(elastic_job, pod(0))), pod(0), after=60)

    second_plan = decide(job_after_pass(elastic_job, later_plan), pod(0), after=61)

    (deletion,) = second_plan.delete_pods
    assert reason in deletion.cause, "the event must name the cause, not a policy that keeps pods"


@pytest.mark.parametrize(("policy", "deleted"), [("None", []), ("Running", [1]), ("All", [0, 1])])
def test_a_failed_job_is_cleaned_up_by_its_policy(policy: str, deleted: list[int]) -> None:
    elastic_job = job(spec(2, policy="Never", cleanPodPolicy=policy))
    failed_job = job_after_pass(elastic_job, decide(elastic_job, failed_pod(0), pod(1)))

    assert deleted_indices(decide(failed_job, failed_pod(0), pod(1))) == deleted


@pytest.mark.parametrize(("policy", "deleted"), [("None", []), ("Running", [0])])
def test_a_job_ends_beside_a_sidecar_that_runs_until_its_policy_deletes_it(
    policy: str, deleted: list[int]
) -> None:
    elastic_job = job(spec(1, cleanPodPolicy=policy))
    worker = pod(0, "Succeeded", exit_code=0, lingering=True)

    finished = decide(elastic_job, worker)

    assert finished.status.is_true(ConditionType.SUCCEEDED)
    assert deleted_indices(decide(job_after_pass(elastic_job, finished), worker)) == deleted


@pytest.mark.parametrize("node", [None, "n0"])
def test_workers_of_a_finished_job_that_have_not_started_are_deleted(node: str | None) -> None:
    """They would request a machine, or occupy one, and a worker could train after the end of its job."""
    waiting_pod = pod(1, "Pending", node=node)
    elastic_job = job(spec(2, policy="Never", cleanPodPolicy="None"))
    failed_job = job_after_pass(elastic_job, decide(elastic_job, failed_pod(0), waiting_pod))

    assert deleted_indices(decide(failed_job, failed_pod(0), waiting_pod)) == [1]


def test_a_job_runs_with_the_longest_times_that_the_api_server_accepts() -> None:
    """Python's times have a smaller range."""
    longest = 2**63 - 1
    body = spec(1, activeDeadlineSeconds=longest)
    pod_spec = {**TEMPLATE["spec"], "terminationGracePeriodSeconds": longest}
    body["replicaSpecs"]["Worker"]["template"] = {"spec": pod_spec}
    body["spending"] = {"onDemand": "never", "pools": [{"capacity": "spot", "usdPerHour": 1}]}

    assert decide(job(body), pod(0)).status.is_true(ConditionType.RUNNING)


def test_a_suspended_job_has_no_pods_and_its_deadline_does_not_run() -> None:
    elastic_job = job(spec(2, suspend=True, activeDeadlineSeconds=60))
    result = decide(elastic_job, pod(0), pod(1))

    assert deleted_indices(result) == [0, 1]
    assert result.status.start is None
    assert decide(job_after_pass(elastic_job, result), after=90).status.is_true(
        ConditionType.SUSPENDED
    )


@pytest.mark.parametrize(
    ("ended_pod", "kind"),
    [
        (pod(0, "Succeeded"), ConditionType.SUCCEEDED),
        (failed_pod(0), ConditionType.FAILED),
    ],
)
def test_the_exit_of_a_worker_that_was_not_deleted_counts(
    ended_pod: Pod, kind: ConditionType
) -> None:
    """A controller wrote the suspension to the status and stopped before the deletion; then the job was resumed."""
    suspended_job, resumed_spec = job(spec(1, suspend=True)), spec(1, backoffLimit=0)
    suspension = decide(suspended_job, pod(0))
    resumption = decide(job(resumed_spec, suspension.status.to_json()), pod(0))

    result = decide(job(resumed_spec, resumption.status.to_json()), ended_pod)

    assert result.status.is_true(kind)


def test_a_finished_job_is_deleted_after_its_time_to_live() -> None:
    elastic_job = job(spec(1, ttlSecondsAfterFinished=60))
    completed_job = job_after_pass(elastic_job, decide(elastic_job, pod(0, "Succeeded")))

    early_plan = decide(completed_job, pod(0, "Succeeded"), after=59)
    assert not early_plan.delete_job
    assert early_plan.requeue_at == NOW + timedelta(seconds=60)
    assert decide(completed_job, pod(0, "Succeeded"), after=60).delete_job


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    result = decide(replace(job(), terminating=True))

    assert (result.create_pods, result.delete_pods) == ((), ())


def test_a_job_that_is_being_deleted_requests_no_machines_in_other_zones() -> None:
    """With foreground propagation the job exists until its placeholders are gone, too."""
    an_hour_ago = NOW - timedelta(hours=1)
    searching = PlacementState(
        zone="a", state=PlacementPhase.SEARCHING, since=NOW, short_since=an_hour_ago
    )
    elastic_job = job(zones=("a", "b"))
    status = replace(elastic_job.status, placement=searching, start=an_hour_ago)
    elastic_job = replace(elastic_job, status=status)
    assert decide(elastic_job).create_placeholders

    result = decide(replace(elastic_job, terminating=True))

    assert result.create_placeholders == ()
    assert result.status == elastic_job.status


def test_an_error_of_the_api_server_is_reported_in_the_status() -> None:
    result = decide(job(), error="pods is forbidden: exceeded quota")

    assert "exceeded quota" in condition(result, ConditionType.RUNNING).message


def test_a_condition_keeps_its_transition_time_if_only_its_message_changes() -> None:
    first_plan = decide(job(), pod(0))
    second_plan = decide(job_after_pass(job(), first_plan), pod(0), pod(1), after=50)

    running_condition = condition(second_plan, ConditionType.RUNNING)
    assert running_condition.last_transition == NOW
    assert running_condition.last_update == NOW + timedelta(seconds=50)


def test_changed_bounds_reach_running_workers_without_replacing_them() -> None:
    elastic_job = job(spec(2, min_replicas=2, max_replicas=4))
    result = decide(elastic_job, pod(0), pod(1, "Pending", bounds="2:4"))

    assert [pod.index for pod in result.update_bounds] == [0]
    assert (result.create_pods, result.delete_pods) == ((), ())


def test_terminating_and_failed_workers_get_no_new_bounds() -> None:
    elastic_job = job(spec(2, min_replicas=2, max_replicas=4))

    assert decide(elastic_job, pod(0, terminating=True), failed_pod(1)).update_bounds == ()


def capacity_job(replicas: int = 3, **fields: Any) -> ElasticJob:
    return job(spec(replicas, **fields), scaling="capacity")


def test_a_job_that_follows_capacity_removes_only_workers_without_a_machine() -> None:
    elastic_job = capacity_job()
    first_plan = decide(elastic_job, pod(0), pod(1), pod(2, "Pending", node=None))
    later_plan = decide(
        job_after_pass(elastic_job, first_plan),
        pod(0),
        pod(1),
        pod(2, "Pending", node=None),
        after=120,
    )

    assert first_plan.delete_pods == ()
    assert first_plan.requeue_at == NOW + timedelta(seconds=120)
    assert deleted_indices(later_plan) == [2]
    assert "Scaled" in [event.reason for event in later_plan.events]
    assert later_plan.status.is_true(ConditionType.RUNNING)
    assert later_plan.status.scaling is not None
    assert later_plan.status.scaling.desired == 2


def test_the_worker_that_has_waited_longest_for_a_machine_is_removed_first() -> None:
    elastic_job = capacity_job()
    pods = (
        pod(0),
        pod(1, "Pending", node=None),
        pod(2, "Pending", node=None, created=NOW + timedelta(seconds=100)),
    )

    later_plan = decide(job_after_pass(elastic_job, decide(elastic_job, *pods)), *pods, after=120)

    assert deleted_indices(later_plan) == [1]


def test_a_job_grows_into_stable_capacity_without_disturbing_other_workers() -> None:
    elastic_job = capacity_job()
    first_plan = decide(elastic_job, pod(0), pod(1), pod(2), schedulable=1)
    later_plan = decide(
        job_after_pass(elastic_job, first_plan), pod(0), pod(1), pod(2), schedulable=1, after=10
    )

    assert first_plan.create_pods == ()
    assert later_plan.create_pods == (3,)
    assert later_plan.delete_pods == ()


def plan_without_machines() -> tuple[ElasticJob, Plan]:
    """Return a job that follows capacity, and its plan once its workers have waited for too long."""
    elastic_job = capacity_job(2)
    waiting_pods = [pod(index, "Pending", node=None) for index in range(2)]
    first_plan = decide(elastic_job, *waiting_pods)
    return elastic_job, decide(job_after_pass(elastic_job, first_plan), *waiting_pods, after=120)


def test_without_machines_the_job_is_suspended_and_has_not_failed() -> None:
    _, result = plan_without_machines()

    suspension = condition(result, ConditionType.SUSPENDED)
    assert (suspension.is_true, suspension.reason) == (True, "NoCapacity")
    assert "resumes automatically" in suspension.message
    assert deleted_indices(result) == [0, 1]
    assert not result.status.is_true(ConditionType.FAILED)
    assert all(record.failures == 0 for record in result.status.workers.values())


def test_the_job_resumes_when_machines_return() -> None:
    elastic_job, suspended_plan = plan_without_machines()
    waiting_plan = decide(job_after_pass(elastic_job, suspended_plan), schedulable=2, after=130)
    result = decide(job_after_pass(elastic_job, waiting_plan), schedulable=2, after=140)

    assert result.create_pods == (0, 1)
    assert not result.status.is_true(ConditionType.SUSPENDED)


def test_a_job_that_requests_machines_stays_suspended_until_a_worker_is_scheduled() -> None:
    elastic_job, suspended_plan = plan_without_machines()
    requesting_plan = decide(job_after_pass(elastic_job, suspended_plan), after=420)
    scheduled_plan = decide(job_after_pass(elastic_job, requesting_plan), pod(0), after=425)

    assert requesting_plan.create_pods == (0,)
    assert requesting_plan.status.is_true(ConditionType.SUSPENDED)
    assert not scheduled_plan.status.is_true(ConditionType.SUSPENDED)


@pytest.mark.parametrize("suspension", [{"replicas": 0}, {"suspend": True}])
def test_a_job_that_a_user_suspended_stays_suspended_at_any_capacity(
    suspension: dict[str, Any],
) -> None:
    result = decide(capacity_job(**suspension), schedulable=5, after=1000)

    assert result.create_pods == ()
    assert condition(result, ConditionType.SUSPENDED).reason == "ElasticJobSuspended"
    assert result.status.scaling is None


def test_a_job_that_stops_following_capacity_returns_to_its_spec() -> None:
    elastic_job = capacity_job()
    smaller_plan = decide(elastic_job, pod(0), pod(1), pod(2, "Pending", node=None), after=120)
    assert elastic_job.spec is not None
    fixed_job = job(dict(elastic_job.spec.source), smaller_plan.status.to_json())

    result = decide(fixed_job, pod(0), pod(1))

    assert result.create_pods == (2,)
    assert result.status.scaling is None


def test_an_unknown_scaling_mode_is_reported_with_its_fix() -> None:
    result = decide(job(scaling="always"))

    failure = condition(result, ConditionType.FAILED)
    assert "everstep.dev/scaling] is 'always'; use one of fixed, capacity" in failure.message


def test_an_invalid_scaling_mode_of_a_running_job_has_no_effect() -> None:
    elastic_job = capacity_job()
    pods = (pod(0), pod(1))
    smaller_plan = decide(elastic_job, *pods, pod(2, "Pending", node=None), after=120)
    assert elastic_job.spec is not None
    invalid_job = job(
        dict(elastic_job.spec.source), smaller_plan.status.to_json(), scaling="capcity"
    )

    result = decide(invalid_job, *pods, after=121)

    assert (result.create_pods, result.delete_pods) == ((), ())
    assert result.status.scaling == smaller_plan.status.scaling
    assert "is 'capcity'; use one of" in condition(result, ConditionType.RUNNING).message


def test_a_condition_of_another_program_is_kept() -> None:
    status = decide(job(), pod(0)).status.to_json()
    foreign_condition = {
        "type": "Audited",
        "status": "True",
        "reason": "AuditPassed",
        "message": "",
        "lastUpdateTime": "2026-01-01T12:00:00Z",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    status["conditions"].append(foreign_condition)

    result = decide(job(status=status), pod(0))

    assert foreign_condition in result.status.to_json()["conditions"]
    assert result.events == ()


def hash_of(elastic_job: ElasticJob, *, has_zone: bool = False) -> str:
    assert elastic_job.spec is not None
    return template_hash(elastic_job.spec, has_zone=has_zone)


def edited_spec(replicas: int = 3, **arguments: Any) -> dict[str, Any]:
    """Return a job's spec with a template other than the template of `spec`."""
    edited = spec(replicas, **arguments)
    edited["replicaSpecs"]["Worker"]["template"] = {
        "spec": {**TEMPLATE["spec"], "hostNetwork": True}
    }
    return edited


def test_an_edited_template_replaces_pods_that_have_not_started_and_no_others() -> None:
    old_hash, edited = hash_of(job()), edited_spec(5)

    result = decide(
        job(edited),
        pod(0, template_hash=old_hash),
        pod(1, "Pending", template_hash=old_hash),
        pod(2, "Pending", node=None, template_hash=old_hash),
        pod(3, "Pending", node=None, template_hash=hash_of(job(edited))),
        pod(4, "Pending", node=None),  # an older controller created it
    )

    assert deleted_indices(result) == [1, 2]
    assert {deletion.cause for deletion in result.delete_pods} == {
        "it does not run, and the job was edited"
    }
    assert result.delete_services == ()
    after = decide(
        job_after_pass(job(edited), result), pod(0), pod(3, "Pending"), pod(4, "Pending")
    )
    assert after.create_pods == (1, 2)
    assert [worker_exit.index for worker_exit in after.exits] == [1], "worker 2 never had a node"


def test_an_edited_job_replaces_a_worker_without_delay_and_forgets_its_failures() -> None:
    """The edit may have repaired the program that failed."""
    first_uid, last_uid = "attempt-0", "attempt-8"
    delayed = fail_repeatedly(9, pod(0), pod(2))
    assert delayed.status.workers[1].not_before is not None
    after = 8 * FAILURE_INTERVAL_SECONDS + 1

    def decide_with(body: dict[str, Any], uid: str) -> Plan:
        failed = failed_pod(1, uid=uid, template_hash=hash_of(job()))
        return decide(job_after_pass(job(body), delayed), pod(0), failed, pod(2), after=after)

    assert deleted_indices(decide_with(spec(), last_uid)) == [], "it still waits"
    result = decide_with(edited_spec(), last_uid)
    assert deleted_indices(result) == [1]
    record = result.status.workers[1]
    assert (record.failures, record.quick_exits, record.not_before) == (0, 0, None)
    assert record.restarts == delayed.status.workers[1].restarts, "its exits stay counted"
    assert "left out" not in condition(result, ConditionType.RUNNING).message
    failed_since = decide_with(edited_spec(), first_uid)
    assert failed_since.status.workers[1].failures == 0, "a pod before the edit fails after it"
    assert deleted_indices(failed_since) == [1]


def test_a_job_whose_only_worker_fails_with_an_edited_template_fails_after_the_full_limit() -> None:
    elastic_job = job(edited_spec(1, backoffLimit=0))
    before_edit = failed_pod(0, template_hash=hash_of(job()))
    after_edit = failed_pod(0, uid="new", template_hash=hash_of(elastic_job))

    first = decide(elastic_job, before_edit)
    second = decide(job_after_pass(elastic_job, first), after_edit)

    assert not first.status.is_true(ConditionType.FAILED)
    assert second.status.is_true(ConditionType.FAILED)


def test_an_edit_does_not_save_a_job_that_never_restarts() -> None:
    edited = job(edited_spec(1, policy="Never", backoffLimit=0))

    result = decide(edited, failed_pod(0, template_hash=hash_of(job())))

    assert result.status.is_true(ConditionType.FAILED)


def test_an_edited_job_replaces_a_worker_that_the_kubelet_restarts_repeatedly() -> None:
    looping = pod(
        0,
        crash_looping=True,
        restarts=7,
        exit_code=1,
        template_hash=hash_of(job(spec(policy="OnFailure"))),
    )

    def decide_with(body: dict[str, Any]) -> Plan:
        return decide(job(body), looping)

    assert decide_with(spec(1, policy="OnFailure")).status.is_true(ConditionType.FAILED)
    result = decide_with(edited_spec(1, policy="OnFailure"))
    assert not result.status.is_true(ConditionType.FAILED)
    assert deleted_indices(result) == [0]


def test_edited_bounds_replace_no_pod() -> None:
    edited = job(spec(min_replicas=2, max_replicas=9))

    assert deleted_indices(decide(edited, pod(0, "Pending", template_hash=hash_of(job())))) == []


def test_a_pod_that_waits_in_a_zone_is_replaced_once_its_job_has_no_zones() -> None:
    waiting = pod(0, "Pending", node=None, zone="a", template_hash=hash_of(job(), has_zone=True))

    assert deleted_indices(decide(job(), waiting)) == [0]


def test_a_rendered_pod_is_current() -> None:
    elastic_job = job()
    assert elastic_job.spec is not None
    metadata = render_pod(elastic_job, elastic_job.spec, 0)["metadata"]

    assert metadata["annotations"]["everstep.dev/template-hash"] == hash_of(elastic_job)
