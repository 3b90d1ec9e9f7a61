"""The zone of a job's workers: what is observed, requested, moved and written to the status."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.objects import Placeholder, Pod, read_placeholder, read_pod
from controller.placement import JOIN_POLL_SECONDS, Observed, PlacementPlan, plan_placement
from controller.placement_settings import PlacementSettings, read_settings
from controller.placement_state import PlacementState
from everstep.capacity.placement import State
from tests.controller.builders import NOW, pod

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
SETTINGS = PlacementSettings(zones=(A, B, C))
LATER = SETTINGS.short_seconds


def worker(index: int, zone: str = A, phase: str = "Running", **fields: Any) -> Pod:
    return pod(index, phase, zone=zone, **fields)


def pending(index: int, zone: str = A) -> Pod:
    return worker(index, zone, "Pending", node=None, started=None)


def granted(zone: str, number: int, after: float = 0) -> Placeholder:
    name = f"job-placeholder-{zone}-{number}"
    bound_since = NOW + timedelta(seconds=after)
    return Placeholder(name=name, uid=name, zone=zone, bound_since=bound_since)


def decide(
    pods: Sequence[Pod] = (),
    previous: PlacementState | None = None,
    placeholders: Sequence[Placeholder] = (),
    *,
    after: float = 0,
    wanted: int = 4,
    min_workers: int = 1,
    max_workers: int = 5,
    settings: PlacementSettings = SETTINGS,
    starting_since: float | None = None,
    joined: Sequence[Pod] = (),
) -> PlacementPlan:
    """Return the result of one pass; the status goes through its JSON, as after a restart."""
    stored = (
        PlacementState.from_json(json.loads(json.dumps(previous.to_json()))) if previous else None
    )
    observed = Observed(
        settings=settings,
        wanted=wanted,
        min_workers=min_workers,
        max_workers=max_workers,
        pods=pods,
        placeholders=placeholders,
        now=NOW + timedelta(seconds=after),
        starting_since=None if starting_since is None else NOW + timedelta(seconds=starting_since),
        joined=frozenset(pod.uid for pod in joined),
    )
    return plan_placement(observed, stored)


def searching(pods: Sequence[Pod] = ()) -> PlacementState:
    """Return the state of a group that has searched other zones since NOW + LATER."""
    return decide(pods, decide(pods).state, after=LATER).state


def moving(old: Sequence[Pod] = ()) -> PlacementState:
    """Return the state of a group that has begun a move from A to B, which offers four machines."""
    offer = [granted(B, number) for number in range(4)]
    state = decide(old, searching(old), offer, after=LATER).state
    assert (state.zone, state.state) == (B, State.MOVING)
    return state


def test_a_new_job_begins_in_the_preferred_zone_and_a_running_one_stays_where_it_is() -> None:
    assert decide().state.zone == A
    assert decide([worker(0, B), worker(1, B)]).state.zone == B


def test_a_job_that_starts_waits_for_machines_of_its_zone_before_others_are_asked() -> None:
    first = decide(starting_since=0)
    assert first.state.state is State.SETTLED
    assert NOW + timedelta(seconds=SETTINGS.start_seconds) in first.wake_times

    waiting = [pending(index) for index in range(4)]
    early = decide(waiting, first.state, after=SETTINGS.start_seconds - 1, starting_since=0)
    assert (early.state.state, early.placeholders) == (State.SETTLED, {})
    later_plan = decide(waiting, early.state, after=SETTINGS.start_seconds, starting_since=0)
    assert (later_plan.state.state, later_plan.placeholders) == (State.SEARCHING, {B: 4, C: 4})


def test_a_replacement_is_awaited_while_others_train_and_not_if_none_does() -> None:
    others = [worker(0), worker(1), worker(2)]

    assert decide([*others, pending(3)]).state.state is State.SETTLED
    assert decide([*others, pending(3)], after=SETTINGS.start_seconds).state.state is State.SHORT
    assert decide([pending(index) for index in range(4)]).placeholders == {B: 4, C: 4}


def test_a_new_request_here_does_not_end_a_search() -> None:
    waiting = [pending(index) for index in range(4)]
    requested_later = [replace(pod, created=NOW + timedelta(seconds=LATER)) for pod in waiting]

    assert decide(requested_later, searching(waiting), after=LATER + 1).placeholders == {B: 4, C: 4}


def test_another_zone_has_time_to_give_further_machines_before_its_answer_counts() -> None:
    workers, state = [worker(0)], searching([worker(0)])
    offered = [granted(B, 0, LATER), granted(B, 1, LATER), granted(B, 2, LATER)]

    early = decide(workers, state, offered, after=LATER + 1)
    assert early.state.zone == A
    assert NOW + timedelta(seconds=LATER + SETTINGS.answer_seconds) in early.wake_times
    assert decide(workers, state, offered, after=LATER + SETTINGS.answer_seconds).state.zone == B


def test_a_complete_answer_moves_the_group_immediately_with_the_reason_and_the_zones() -> None:
    state = moving([worker(0)])

    (move,) = state.moves
    assert (move.origin, move.to, move.target, state.move_count) == (A, B, 4, 1)
    assert move.reason == f"{B} offers 4 machines, 1 run here"
    assert state.reason == (
        f"from {A} to {B}, since {move.reason}; 0 of 4 workers run in {B}, 0 have joined, "
        f"1 still train in {A}"
    )


def test_machines_that_are_too_few_are_given_back_and_their_zone_is_asked_again_later() -> None:
    workers = [worker(0), worker(1)]
    offer = [granted(B, number) for number in range(3)]

    answered = decide(workers, searching(workers), offer, after=LATER, wanted=5)

    assert answered.state.state is State.SEARCHING
    assert answered.placeholders == {C: 5}, "idle machines are billed"
    assert f"{B} gave 3, too few" in answered.state.reason
    retried = decide(workers, answered.state, after=LATER + SETTINGS.retry_seconds, wanted=5)
    assert retried.placeholders == {B: 5, C: 5}


def test_a_zone_that_gave_too_few_is_tried_again_as_soon_as_they_would_suffice() -> None:
    workers = [worker(0), worker(1)]
    offer = [granted(B, number) for number in range(3)]
    answered = decide(workers, searching(workers), offer, after=LATER, wanted=5)

    assert decide([], answered.state, after=LATER + 1, wanted=5).placeholders == {B: 5, C: 5}


def test_workers_of_the_old_zone_train_until_the_workers_of_the_new_zone_have_joined() -> None:
    old = [worker(0), pending(1)]
    state = moving(old)
    new = started_later(4)

    assert decide([*old, *new[:3]], state, after=LATER + 100, joined=new[:3]).leave == (old[1],), (
        "a worker that waits for a machine leaves immediately"
    )
    early = decide([*old, *new], state, after=LATER + 100, joined=new[:3])
    assert early.leave == (old[1],), "a pod that runs need not have joined"
    assert NOW + timedelta(seconds=LATER + 100 + JOIN_POLL_SECONDS) in early.wake_times
    later_plan = decide([*old, *new], early.state, after=LATER + 101, joined=new)
    assert later_plan.leave == tuple(old)
    assert later_plan.state.moves[-1].unjoined == 0


def started_later(number: int) -> list[Pod]:
    """Return workers of the new zone that run since NOW + LATER."""
    return [worker(2 + n, B, started=NOW + timedelta(seconds=LATER)) for n in range(number)]


def test_a_worker_that_runs_and_does_not_join_is_awaited_for_a_bounded_time() -> None:
    old, new = [worker(0)], started_later(4)
    bound = LATER + SETTINGS.join_seconds

    early = decide([*old, *new], moving(old), after=bound - 1, joined=new[:2])
    assert early.leave == ()
    assert NOW + timedelta(seconds=bound) in early.wake_times
    later_plan = decide([*old, *new], early.state, after=bound, joined=new[:2])
    assert (later_plan.leave, later_plan.state.moves[-1].unjoined) == (tuple(old), 2)


def test_workers_that_restart_repeatedly_hold_up_a_move_for_a_bounded_time() -> None:
    old = [worker(0)]
    bound = LATER + SETTINGS.move_seconds + SETTINGS.join_seconds
    for after in (bound - 1, bound):
        started = NOW + timedelta(seconds=after - 1)
        new = [worker(index, B, started=started) for index in (2, 3, 4, 5)]

        decided = decide([*old, *new], moving(old), after=after)

        assert decided.leave == (tuple(old) if after == bound else ())


def test_only_as_many_workers_are_awaited_as_the_group_takes_in() -> None:
    old, new = [worker(0), worker(1)], started_later(4)

    few = decide([*old, *new], moving(old), after=LATER + 5, max_workers=5, joined=new[:2])
    assert few.leave == ()
    enough = decide([*old, *new], moving(old), after=LATER + 5, max_workers=5, joined=new[:3])
    assert (enough.leave, enough.state.moves[-1].unjoined) == (tuple(old), 0)


def test_one_worker_leaves_first_if_on_demand_workers_fill_the_group() -> None:
    old = [worker(index, on_demand=True) for index in (6, 7, 8, 9)]
    state, new = moving(old), started_later(4)

    assert decide([*old, *new[:3]], state, after=LATER, max_workers=4).leave == ()
    assert decide([*old, *new], state, after=LATER, max_workers=4).leave == (old[3],)
    old[3] = replace(old[3], terminating=True)
    assert decide([*old, *new], state, after=LATER + 1, max_workers=4).leave == ()
    joined = decide([*old, *new], state, after=LATER + 2, max_workers=4, joined=new[:1])
    assert joined.leave == tuple(old[:3])


def test_all_workers_of_the_old_zone_leave_in_one_pass_so_that_the_group_changes_once() -> None:
    old, new = [worker(0), worker(1)], started_later(4)

    assert decide([*old, *new], moving(old), after=LATER, joined=new).leave == tuple(old)


def test_a_move_ends_when_no_worker_is_left_in_the_old_zone() -> None:
    new = [worker(index, B) for index in range(4)]
    leaving = worker(4, terminating=True)
    state = decide([*new, leaving], moving([worker(4)]), after=LATER + 70).state
    assert state.move is not None

    state = decide(new, state, after=LATER + 80).state

    assert state.move is None
    assert state.moves[-1].ended == NOW + timedelta(seconds=LATER + 80)
    assert (state.zone, state.state) == (B, State.SETTLED)


def test_a_move_whose_workers_do_not_come_is_abandoned_while_more_train_in_the_old_zone() -> None:
    old, new = [worker(0), worker(1)], [worker(2, B), pending(3, B)]
    state = moving(old)

    back = decide([*old, *new], state, after=LATER + SETTINGS.move_seconds)

    assert (back.state.zone, back.leave) == (A, tuple(new))
    assert back.state.moves[-1].abandoned
    last_state = decide(old, back.state, after=LATER + SETTINGS.move_seconds + 5).state
    assert (last_state.zone, last_state.move, last_state.state) == (A, None, State.SHORT)
    assert "the next move is possible at 2026-01-01T13:10:00Z" in last_state.reason


def test_a_move_with_fewer_workers_than_offered_is_ended_in_the_new_zone_if_no_fewer_train_there() -> (
    None
):
    old, new = [worker(0)], [worker(2, B), pending(3, B)]

    assert decide([*old, *new], moving(old), after=LATER + SETTINGS.move_seconds).leave == (old[0],)


def test_the_bound_on_moves_survives_in_the_status() -> None:
    state = decide([], moving(), after=LATER + 1).state
    offer = [granted(C, number) for number in range(4)]

    early = decide([], state, offer, after=LATER + SETTINGS.move_interval_seconds - 1)
    assert (early.state.zone, early.placeholders) == (B, {})
    assert "the next move is possible at 2026-01-01T13:10:00Z" in early.state.reason

    later_plan = decide([], early.state, offer, after=LATER + SETTINGS.move_interval_seconds)
    assert (later_plan.state.zone, later_plan.state.move_count) == (C, 2)


def test_workers_with_an_interruption_notice_count_as_lost() -> None:
    leaving = [worker(index, interrupted=True) for index in range(4)]

    assert decide(leaving).placeholders == {B: 4, C: 4}


def test_machines_that_are_too_few_to_train_count_as_none() -> None:
    waiting = decide([worker(0)], min_workers=2)
    assert waiting.placeholders == {B: 4, C: 4}, "no need to wait: it does not train"

    two = [granted(B, number) for number in range(2)]
    assert decide([worker(0)], waiting.state, two, after=200, min_workers=3).state.zone == A
    assert decide([worker(0)], waiting.state, two, after=200, min_workers=2).state.zone == B


def test_capacity_that_never_comes_is_reported_with_its_beginning_and_what_would_help() -> None:
    reason = decide([], decide().state, after=86_400).state.reason

    assert reason == (
        f"0 of 4 machines; no other zone has clearly more yet; requested in {B}, {C}; too few to train "
        "since 2026-01-01T12:00:00Z; to get machines, add a zone or instance types to cluster.gpuPools, "
        "allow on-demand machines there (fallbackNodes), raise the quota, or lower job.minReplicas"
    )


def test_a_reason_does_not_change_with_the_clock_alone() -> None:
    for pods in ([], [worker(0)], [worker(0), pending(1)]):
        state = decide(pods, decide(pods).state, after=LATER + 300).state
        assert decide(pods, state, after=LATER + 301).state == state, (
            "each change is written, and a written status causes a pass"
        )


def test_a_zone_that_was_removed_from_the_job_keeps_its_workers_until_it_is_short() -> None:
    settings = PlacementSettings(zones=(B, C))
    workers = [worker(index) for index in range(4)]
    state = decide(workers, decide(workers).state, settings=settings)

    assert (state.state.zone, state.leave, state.state.state) == (A, (), State.SETTLED)
    assert decide([], state.state, settings=settings).placeholders == {B: 4, C: 4}


def test_the_annotation_names_zones_and_may_change_times() -> None:
    text = json.dumps({"zones": [A, B], "shortSeconds": 20, "moveIntervalSeconds": 0})
    expected = PlacementSettings(zones=(A, B), short_seconds=20, move_interval_seconds=0)

    assert read_settings(text) == (expected, ())
    assert read_settings(None) == (None, ())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("us-east-1a", "is 'us-east-1a'; set it to a JSON object"),
        ("[]", "set it to a JSON object"),
        ("{}", ".zones is None; set it to a list of at least one"),
        ('{"zones": []}', ".zones is []; set it to a list of at least one"),
        ('{"zones": [1]}', ".zones is [1]; set it to a list"),
        ('{"zones": ["a", "a"]}', ".zones is ['a', 'a']; name each zone once"),
        (
            '{"zones": ["a"], "shortSeconds": -1}',
            ".shortSeconds is -1; set it to seconds, 0 or more",
        ),
        ('{"zones": ["a"], "shortSeconds": NaN}', ".shortSeconds is nan; set it to seconds"),
        ('{"zones": ["a"], "shortSecs": 1}', ".shortSecs is unknown; use zones, startSeconds"),
    ],
)
def test_a_faulty_annotation_is_refused_with_its_fix(text: str, fault: str) -> None:
    settings, faults = read_settings(text)

    assert settings is None
    assert fault in "; ".join(faults)


def test_the_zone_of_a_worker_is_the_one_it_was_created_in_and_a_notice_is_an_annotation() -> None:
    source: dict[str, Any] = {
        "metadata": {
            "name": "job-worker-0",
            "uid": "u",
            "labels": {"replica-index": "0"},
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "annotations": {"everstep.dev/deadline": "2026-01-01T12:02:00Z"},
        },
        "spec": {"nodeSelector": {"topology.kubernetes.io/zone": A}},
    }
    assert (read_pod(source).zone, read_pod(source).interrupted) == (A, True)
    del source["metadata"]["annotations"], source["spec"]["nodeSelector"]
    assert (read_pod(source).zone, read_pod(source).interrupted) == ("", False)


def test_a_placeholder_has_a_machine_since_it_was_scheduled() -> None:
    scheduled = {"type": "PodScheduled", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    source: dict[str, Any] = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"nodeSelector": {"topology.kubernetes.io/zone": B}},
        "status": {"phase": "Pending", "conditions": [scheduled]},
    }
    assert read_placeholder(source).bound_since is None
    source["spec"]["nodeName"] = "n0"
    assert read_placeholder(source).bound_since == NOW
    assert not read_placeholder(source).ended
    source["status"]["phase"] = "Failed"
    assert read_placeholder(source).ended
