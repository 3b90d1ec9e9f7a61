from datetime import timedelta

import pytest

from controller.observed import Node
from controller.status import ConditionType
from tests.controller.unit.worlds import NOW, decide, failed, job, pod, spec, then


def deleted(made) -> list[int]:
    return [deletion.pod.index for deletion in made.delete_pods]


def test_a_new_job_gets_all_its_workers_and_their_services_at_once():
    made = decide(job())

    assert made.create_pods == made.create_services == (0, 1, 2)
    assert made.status.holds(ConditionType.CREATED)
    assert not made.status.holds(ConditionType.RUNNING)


def test_a_job_runs_once_enough_workers_do_and_says_how_many():
    made = decide(job(), pod(0), pod(1, "Pending", waiting="Unschedulable: no GPU"))

    running = made.status.condition(ConditionType.RUNNING)
    assert running.holds
    assert (
        running.message
        == "1 of 3 workers running, at least 1 needed; job-worker-1: Unschedulable: no GPU"
    )


def test_a_pod_that_is_going_holds_its_place():
    assert decide(job(), pod(0), pod(1, deleting=True), pod(2)).create_pods == ()


def test_a_vanished_worker_is_replaced_under_its_own_index():
    whole = decide(job(), pod(0), pod(1), pod(2))

    made = decide(then(job(), whole), pod(0), pod(2))

    assert made.create_pods == (1,)
    assert made.status.holds(ConditionType.RESTARTING)
    assert [end.cause for end in made.ends] == ["deleted"]


def test_a_failed_worker_keeps_its_pod_and_log_until_its_pause_is_over():
    waiting = decide(job(), pod(0), failed(1), pod(2))
    assert deleted(waiting) == []
    assert waiting.wake == NOW + timedelta(seconds=2)

    over = decide(then(job(), waiting), pod(0), failed(1), pod(2), after=2)

    assert deleted(over) == [1]
    assert over.ends == (), "an end is counted once"


def test_a_worker_that_was_evicted_is_replaced_at_once():
    assert deleted(decide(job(), pod(0), failed(1, 143), pod(2))) == [1]


@pytest.mark.parametrize(
    ("unhealthy", "going"),
    [(failed(0), 0), (pod(0, "Pending", node=None), 0), (pod(0, "Running"), 2)],
)
def test_scaling_in_takes_the_unhealthy_first_and_then_the_highest_index(unhealthy, going):
    assert deleted(decide(job(spec(2)), unhealthy, pod(1), pod(2))) == [going]


def test_a_worker_that_was_scaled_in_is_no_loss():
    made = decide(job(spec(2)), pod(0), pod(1), pod(2))
    after = decide(then(job(spec(2)), made), pod(0), pod(1))

    assert after.ends == ()
    assert not after.status.holds(ConditionType.RESTARTING)


def test_pods_of_a_node_that_is_gone_are_removed_by_force():
    made = decide(
        job(), pod(0), pod(1, node="gone"), pod(2), nodes={"n0": Node(name="n0"), "gone": None}
    )

    (deletion,) = made.delete_pods
    assert (deletion.pod.index, deletion.force) == (1, True)
    assert [end.cause for end in made.ends] == ["node_lost"]


def test_a_silent_node_is_given_some_seconds():
    silent = {"n0": Node(name="n0", unready_since=NOW)}
    soon = decide(job(spec(1)), pod(0), nodes=silent, after=29)
    late = decide(job(spec(1)), pod(0), nodes=silent, after=30)

    assert soon.delete_pods == ()
    assert soon.wake == NOW + timedelta(seconds=30)
    assert late.delete_pods[0].force


def test_a_worker_that_fails_more_often_in_a_row_than_allowed_fails_the_job():
    made = decide(job(spec(backoffLimit=0)), pod(0), failed(1, 7), pod(2))

    failure = made.status.condition(ConditionType.FAILED)
    assert failure.reason == "BackoffLimitExceeded"
    assert "job-worker-1 exited with code 7" in failure.message
    assert "kubectl logs --namespace ns job-worker-1" in failure.message
    assert made.delete_pods == ()


def test_never_allows_no_failure_whatever_the_back_off_limit():
    made = decide(job(spec(policy="Never", backoffLimit=9)), failed(0), pod(1), pod(2))

    assert made.status.holds(ConditionType.FAILED)


def test_a_kubelet_that_restarts_a_worker_too_often_fails_the_job():
    looping = pod(0, crash_looping=True, restarts=7, exit_code=1)

    assert decide(job(spec(1, policy="OnFailure")), looping).status.holds(ConditionType.FAILED)


def test_after_the_first_success_nobody_is_replaced():
    made = decide(job(), pod(0, "Succeeded"), failed(1), pod(2))

    assert made.create_pods == made.delete_pods == ()
    assert not made.status.holds(ConditionType.SUCCEEDED)


def test_the_job_succeeds_when_nobody_runs_any_more():
    made = decide(job(), pod(0, "Succeeded"), failed(1), pod(2, "Pending", node=None))

    assert made.status.holds(ConditionType.SUCCEEDED)
    assert made.status.completion == NOW
    assert deleted(made) == [2]


def test_a_worker_that_is_starting_when_the_training_ends_gets_some_seconds():
    finished = (pod(0, "Succeeded"), pod(1, "Pending"))
    first = decide(job(spec(2)), *finished)
    late = decide(then(job(spec(2)), first), *finished, after=30)

    assert first.delete_pods == ()
    assert deleted(late) == [1]
    assert late.status.holds(ConditionType.SUCCEEDED)


def test_a_success_is_remembered_when_its_pod_is_gone():
    first = decide(job(spec(2)), pod(0, "Succeeded"), pod(1))

    assert decide(then(job(spec(2)), first), pod(1, "Succeeded")).status.succeeded == 2


def test_a_faulty_new_spec_fails_the_job_and_a_good_one_starts_it():
    bad = decide(job(spec(9)))
    good = decide(job(spec(2), bad.status.write()))

    assert bad.status.condition(ConditionType.FAILED).reason == "InvalidSpec"
    assert bad.create_pods == ()
    assert good.create_pods == (0, 1)
    assert not good.status.holds(ConditionType.FAILED)


def test_a_faulty_edit_leaves_the_job_as_it_was_and_is_told_once():
    running = decide(job(spec(2)), pod(0), pod(1)).status.write()
    first = decide(job(spec(9), running, generation=2), pod(0), pod(1))
    again = decide(job(spec(9), first.status.write(), generation=2), pod(0), pod(1))

    assert first.create_pods == first.delete_pods == ()
    assert [event.reason for event in first.events] == ["InvalidSpec"]
    assert "maxReplicas" in first.status.condition(ConditionType.RUNNING).message
    assert again.events == ()
    assert again.status == first.status


def test_the_deadline_stops_the_workers_and_is_waited_for():
    asked = job(spec(1, activeDeadlineSeconds=60))
    first = decide(asked, pod(0))
    late = decide(then(asked, first), pod(0), after=60)

    assert first.wake == NOW + timedelta(seconds=60)
    assert late.status.condition(ConditionType.FAILED).reason == "DeadlineExceeded"
    assert deleted(late) == [0]


def test_a_suspended_job_has_no_pods_and_its_clock_stands():
    asked = job(spec(2, suspend=True, activeDeadlineSeconds=60))
    made = decide(asked, pod(0), pod(1))

    assert deleted(made) == [0, 1]
    assert made.status.start is None
    assert decide(then(asked, made), after=90).status.holds(ConditionType.SUSPENDED)


def test_a_finished_job_is_deleted_when_its_time_has_come():
    asked = job(spec(1, ttlSecondsAfterFinished=60))
    done = then(asked, decide(asked, pod(0, "Succeeded")))

    assert decide(done, pod(0, "Succeeded")).wake == NOW + timedelta(seconds=60)
    assert decide(done, pod(0, "Succeeded"), after=60).delete_job


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector():
    from dataclasses import replace

    made = decide(replace(job(), deleting=True))

    assert made.create_pods == made.delete_pods == ()


def test_what_the_api_server_refused_is_said_in_the_status():
    made = decide(job(), trouble="pods is forbidden: exceeded quota")

    assert "exceeded quota" in made.status.condition(ConditionType.RUNNING).message


def test_a_condition_keeps_its_transition_time_while_only_its_words_change():
    first = decide(job(), pod(0))
    second = decide(then(job(), first), pod(0), pod(1), after=50)

    running = second.status.condition(ConditionType.RUNNING)
    assert running.last_transition == NOW
    assert running.last_update == NOW + timedelta(seconds=50)


def test_changed_bounds_are_told_to_who_runs_and_touch_nobody():
    asked = job(spec(2, least=2, most=4))
    made = decide(asked, pod(0), pod(1, "Pending", bounds="2:4"))

    assert [known.index for known in made.tell_bounds] == [0]
    assert made.create_pods == made.delete_pods == ()


def test_nobody_who_goes_is_told_of_bounds():
    asked = job(spec(2, least=2, most=4))

    assert decide(asked, pod(0, deleting=True), failed(1)).tell_bounds == ()


def follower(replicas: int = 3, **more):
    return job(spec(replicas, **more), scaling="capacity")


def test_a_job_that_follows_capacity_lets_go_of_who_found_no_machine_and_of_nobody_else():
    asked = follower()
    first = decide(asked, pod(0), pod(1), pod(2, "Pending", node=None))
    late = decide(then(asked, first), pod(0), pod(1), pod(2, "Pending", node=None), after=120)

    assert first.delete_pods == ()
    assert first.wake == NOW + timedelta(seconds=120)
    assert deleted(late) == [2]
    assert "Scaled" in [event.reason for event in late.events]
    assert late.status.holds(ConditionType.RUNNING)
    assert late.status.scaling.wanted == 2


def test_it_grows_into_room_that_stays_and_leaves_the_others_alone():
    asked = follower()
    first = decide(asked, pod(0), pod(1), pod(2), room=1)
    late = decide(then(asked, first), pod(0), pod(1), pod(2), room=1, after=10)

    assert first.create_pods == ()
    assert late.create_pods == (3,)
    assert late.delete_pods == ()


def without_machines(after: float = 120):
    asked = follower(2)
    waiting = [pod(index, "Pending", node=None) for index in range(2)]
    first = decide(asked, *waiting)
    return asked, decide(then(asked, first), *waiting, after=after)


def test_without_any_machine_it_is_set_aside_and_has_not_failed():
    _, made = without_machines()

    suspended = made.status.condition(ConditionType.SUSPENDED)
    assert (suspended.holds, suspended.reason) == (True, "NoCapacity")
    assert "goes on by itself" in suspended.message
    assert deleted(made) == [0, 1]
    assert not made.status.holds(ConditionType.FAILED)
    assert all(record.failures == 0 for record in made.status.workers.values())


def test_it_goes_on_when_machines_come_back():
    asked, aside = without_machines()
    seen = decide(then(asked, aside), room=2, after=130)
    made = decide(then(asked, seen), room=2, after=140)

    assert made.create_pods == (0, 1)
    assert not made.status.holds(ConditionType.SUSPENDED)


def test_asking_for_machines_is_not_going_on():
    asked, aside = without_machines()
    asks = decide(then(asked, aside), after=420)
    placed = decide(then(asked, asks), pod(0), after=425)

    assert asks.create_pods == (0,)
    assert asks.status.holds(ConditionType.SUSPENDED)
    assert not placed.status.holds(ConditionType.SUSPENDED)


@pytest.mark.parametrize("asleep", [{"replicas": 0}, {"suspend": True}])
def test_a_job_that_somebody_suspended_stays_so_whatever_room_there_is(asleep):
    made = decide(follower(**asleep), room=5, after=1000)

    assert made.create_pods == ()
    assert made.status.condition(ConditionType.SUSPENDED).reason == "ElasticJobSuspended"
    assert made.status.scaling is None


def test_a_job_that_no_longer_follows_goes_back_to_its_spec():
    asked = follower()
    fewer = decide(asked, pod(0), pod(1), pod(2, "Pending", node=None), after=120)
    fixed = job(dict(asked.spec.source), fewer.status.write())

    made = decide(fixed, pod(0), pod(1))

    assert made.create_pods == (2,)
    assert made.status.scaling is None


def test_an_unknown_way_to_scale_is_a_fault_with_its_cure():
    made = decide(job(scaling="always"))

    failure = made.status.condition(ConditionType.FAILED)
    assert "everstep.dev/scaling] is 'always'; use one of fixed, capacity" in failure.message
