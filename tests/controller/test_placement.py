"""The zone of a job's workers: observations, requests, moves and the status."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.actions import Plan
from controller.lifetimes import ObservedMachines
from controller.objects import Placeholder, Pod, read_placeholder, read_pod
from controller.observed_state import observe
from controller.placement import JOIN_POLL_SECONDS, ObservedPlacement, PlacementPlan, plan_placement
from controller.placement_settings import PlacementSettings, read_settings
from controller.placement_state import PlacementState
from controller.plan import plan
from controller.status import Status
from everstep.capacity.placement import PlacementPhase
from tests.controller.builders import NOW, job, pod

ZONE_A, ZONE_B, ZONE_C = "us-east-1a", "us-east-1b", "us-east-1c"
SETTINGS = PlacementSettings(zones=(ZONE_A, ZONE_B, ZONE_C))
SHORT_SECONDS = SETTINGS.short_seconds


def worker(index: int, zone: str = ZONE_A, phase: str = "Running", **fields: Any) -> Pod:
    return pod(index, phase, zone=zone, **fields)


def pending_worker(index: int, zone: str = ZONE_A) -> Pod:
    return worker(index, zone, "Pending", node=None, started=None)


def bound_placeholder(zone: str, number: int, after: float = 0) -> Placeholder:
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
    lost: Sequence[Pod] = (),
    uses_spot: bool = True,
) -> PlacementPlan:
    """Return the result of one pass; the status goes through its JSON, as after a restart."""
    stored_state = (
        PlacementState.from_json(json.loads(json.dumps(previous.to_json()))) if previous else None
    )
    now = NOW + timedelta(seconds=after)
    observed = ObservedPlacement(
        settings=settings,
        desired_workers=wanted,
        min_workers=min_workers,
        max_workers=max_workers,
        pods=pods,
        placeholders=placeholders,
        now=now,
        machines=ObservedMachines(
            pods=[*pods, *lost], lost_uids=frozenset(pod.uid for pod in lost), now=now
        ),
        starting_since=None if starting_since is None else NOW + timedelta(seconds=starting_since),
        joined=frozenset(pod.uid for pod in joined),
        uses_spot=uses_spot,
    )
    return plan_placement(observed, stored_state)


def searching_state(pods: Sequence[Pod] = ()) -> PlacementState:
    """Return the state of a group that searches other zones at NOW + SHORT_SECONDS."""
    return decide(pods, decide(pods).state, after=SHORT_SECONDS).state


def moving_state(old: Sequence[Pod] = ()) -> PlacementState:
    """Return the state of a group that has begun a move from A to B, which offers four machines."""
    offer = [bound_placeholder(ZONE_B, number) for number in range(4)]
    state = decide(old, searching_state(old), offer, after=SHORT_SECONDS).state
    assert (state.zone, state.state) == (ZONE_B, PlacementPhase.MOVING)
    return state


def test_a_new_job_begins_in_the_preferred_zone_and_a_running_one_stays_where_it_is() -> None:
    assert decide().state.zone == ZONE_A
    assert decide([worker(0, ZONE_B), worker(1, ZONE_B)]).state.zone == ZONE_B


def test_a_job_that_starts_waits_for_machines_of_its_zone_before_it_requests_others() -> None:
    first_plan = decide(starting_since=0)
    assert first_plan.state.state is PlacementPhase.SETTLED
    assert NOW + timedelta(seconds=SETTINGS.start_seconds) in first_plan.wake_times

    waiting_pods = [pending_worker(index) for index in range(4)]
    early_plan = decide(
        waiting_pods, first_plan.state, after=SETTINGS.start_seconds - 1, starting_since=0
    )
    assert (early_plan.state.state, early_plan.placeholders) == (PlacementPhase.SETTLED, {})
    later_plan = decide(
        waiting_pods, early_plan.state, after=SETTINGS.start_seconds, starting_since=0
    )
    assert (later_plan.state.state, later_plan.placeholders) == (
        PlacementPhase.SEARCHING,
        {ZONE_B: 4, ZONE_C: 4},
    )


def test_a_replacement_is_awaited_while_others_train_and_not_if_none_does() -> None:
    others = [worker(0), worker(1), worker(2)]

    assert decide([*others, pending_worker(3)]).state.state is PlacementPhase.SETTLED
    assert (
        decide([*others, pending_worker(3)], after=SETTINGS.start_seconds).state.state
        is PlacementPhase.SHORT
    )
    assert decide([pending_worker(index) for index in range(4)]).placeholders == {
        ZONE_B: 4,
        ZONE_C: 4,
    }


def test_a_new_request_in_the_same_zone_does_not_end_a_search() -> None:
    waiting_pods = [pending_worker(index) for index in range(4)]
    newer_pods = [
        replace(pod, created=NOW + timedelta(seconds=SHORT_SECONDS)) for pod in waiting_pods
    ]

    assert decide(
        newer_pods, searching_state(waiting_pods), after=SHORT_SECONDS + 1
    ).placeholders == {ZONE_B: 4, ZONE_C: 4}


def test_another_zone_has_time_to_offer_further_machines_before_its_offer_counts() -> None:
    workers, state = [worker(0)], searching_state([worker(0)])
    offers = [
        bound_placeholder(ZONE_B, 0, SHORT_SECONDS),
        bound_placeholder(ZONE_B, 1, SHORT_SECONDS),
        bound_placeholder(ZONE_B, 2, SHORT_SECONDS),
    ]

    early_plan = decide(workers, state, offers, after=SHORT_SECONDS + 1)
    assert early_plan.state.zone == ZONE_A
    assert (
        NOW + timedelta(seconds=SHORT_SECONDS + SETTINGS.further_node_seconds)
        in early_plan.wake_times
    )
    assert (
        decide(
            workers, state, offers, after=SHORT_SECONDS + SETTINGS.further_node_seconds
        ).state.zone
        == ZONE_B
    )


def test_a_complete_offer_moves_the_group_immediately_with_the_reason_and_the_zones() -> None:
    state = moving_state([worker(0)])

    (move,) = state.moves
    assert (move.origin, move.destination, move.target, state.move_count) == (ZONE_A, ZONE_B, 4, 1)
    assert move.reason == f"{ZONE_B} offers 4 machines, 1 run here"
    assert state.reason == (
        f"from {ZONE_A} to {ZONE_B}, since {move.reason}; 0 of 4 workers run in {ZONE_B}, 0 have joined, "
        f"1 still train in {ZONE_A}"
    )


def both_offers(machines: int = 4) -> list[Placeholder]:
    """Return offers of B and C with the same number of machines."""
    return [
        bound_placeholder(zone, number) for zone in (ZONE_B, ZONE_C) for number in range(machines)
    ]


def test_of_equal_offers_the_cheaper_zone_wins_and_without_prices_the_preferred_zone() -> None:
    priced = replace(SETTINGS, usd_per_hour={ZONE_A: 9, ZONE_B: 2, ZONE_C: 1})

    plan = decide([], decide().state, both_offers(), after=1, settings=priced)
    assert plan.state.zone == ZONE_C
    assert plan.state.moves[-1].reason.endswith(
        "about as many productive machines it is the cheapest"
    )
    assert decide([], decide().state, both_offers(), after=1).state.zone == ZONE_B


def test_a_zone_above_its_price_ceiling_is_neither_chosen_first_nor_searched_nor_entered() -> None:
    capped = replace(
        SETTINGS,
        usd_per_hour={ZONE_A: 2, ZONE_B: 2, ZONE_C: 3},
        max_usd_per_hour={ZONE_A: 1, ZONE_B: 1, ZONE_C: 3},
    )

    first_plan = decide(settings=capped)
    assert first_plan.state.zone == ZONE_C
    assert decide([], first_plan.state, after=600, settings=capped).placeholders == {}
    assert decide([], decide().state, both_offers(), after=1, settings=capped).state.zone == ZONE_C


def test_of_equal_offers_the_zone_whose_machines_lived_longer_wins() -> None:
    lost = [worker(index, ZONE_B) for index in range(40)]
    state = decide([], decide().state, lost=lost, after=60).state
    assert state.lifetimes is not None
    assert state.lifetimes.record(ZONE_B).losses == 40
    priced = replace(SETTINGS, usd_per_hour={ZONE_B: 1, ZONE_C: 2})

    assert decide([], state, both_offers(), after=61, settings=priced).state.zone == ZONE_C
    later_plan = decide([], state, both_offers(), after=10 * 86_400, settings=priced)
    assert later_plan.state.zone == ZONE_B, "old losses decay"


def test_observed_lifetimes_survive_a_move() -> None:
    state = decide([], decide().state, lost=[worker(0)], after=60).state

    moved_state = decide([], state, both_offers(), after=61).state

    assert moved_state.move is not None
    assert moved_state.lifetimes == state.lifetimes


def test_an_offer_of_too_few_machines_is_released_and_requested_again_later() -> None:
    workers = [worker(0), worker(1)]
    offer = [bound_placeholder(ZONE_B, number) for number in range(3)]

    plan = decide(workers, searching_state(workers), offer, after=SHORT_SECONDS, wanted=5)

    assert plan.state.state is PlacementPhase.SEARCHING
    assert plan.placeholders == {ZONE_C: 5}, "idle machines are billed"
    assert f"{ZONE_B} offered 3, too few" in plan.state.reason
    retry_plan = decide(workers, plan.state, after=SHORT_SECONDS + SETTINGS.retry_seconds, wanted=5)
    assert retry_plan.placeholders == {ZONE_B: 5, ZONE_C: 5}


def test_a_zone_that_offered_too_few_is_tried_again_as_soon_as_its_offer_would_suffice() -> None:
    workers = [worker(0), worker(1)]
    offer = [bound_placeholder(ZONE_B, number) for number in range(3)]
    plan = decide(workers, searching_state(workers), offer, after=SHORT_SECONDS, wanted=5)

    assert decide([], plan.state, after=SHORT_SECONDS + 1, wanted=5).placeholders == {
        ZONE_B: 5,
        ZONE_C: 5,
    }


def test_workers_of_the_old_zone_train_until_the_workers_of_the_new_zone_have_joined() -> None:
    old = [worker(0), pending_worker(1)]
    state = moving_state(old)
    new = new_workers(4)

    assert decide(
        [*old, *new[:3]], state, after=SHORT_SECONDS + 100, joined=new[:3]
    ).leaving_pods == (old[1],), "a worker that waits for a machine leaves immediately"
    early_plan = decide([*old, *new], state, after=SHORT_SECONDS + 100, joined=new[:3])
    assert early_plan.leaving_pods == (old[1],), "a pod that runs need not have joined"
    assert NOW + timedelta(seconds=SHORT_SECONDS + 100 + JOIN_POLL_SECONDS) in early_plan.wake_times
    later_plan = decide([*old, *new], early_plan.state, after=SHORT_SECONDS + 101, joined=new)
    assert later_plan.leaving_pods == tuple(old)
    assert later_plan.state.moves[-1].unjoined == 0


def new_workers(number: int) -> list[Pod]:
    """Return workers of the new zone that have run since NOW + SHORT_SECONDS."""
    return [
        worker(2 + n, ZONE_B, started=NOW + timedelta(seconds=SHORT_SECONDS)) for n in range(number)
    ]


def test_a_worker_that_runs_and_does_not_join_is_awaited_for_a_bounded_time() -> None:
    old, new = [worker(0)], new_workers(4)
    bound = SHORT_SECONDS + SETTINGS.join_seconds

    early_plan = decide([*old, *new], moving_state(old), after=bound - 1, joined=new[:2])
    assert early_plan.leaving_pods == ()
    assert NOW + timedelta(seconds=bound) in early_plan.wake_times
    later_plan = decide([*old, *new], early_plan.state, after=bound, joined=new[:2])
    assert (later_plan.leaving_pods, later_plan.state.moves[-1].unjoined) == (tuple(old), 2)


def test_workers_that_restart_repeatedly_delay_a_move_for_a_bounded_time() -> None:
    old = [worker(0)]
    bound = SHORT_SECONDS + SETTINGS.move_seconds + SETTINGS.join_seconds
    for after in (bound - 1, bound):
        start = NOW + timedelta(seconds=after - 1)
        new = [worker(index, ZONE_B, started=start) for index in (2, 3, 4, 5)]

        plan = decide([*old, *new], moving_state(old), after=after)

        assert plan.leaving_pods == (tuple(old) if after == bound else ())


def test_no_more_workers_are_awaited_than_can_join_the_group() -> None:
    old, new = [worker(0), worker(1)], new_workers(4)

    early_plan = decide(
        [*old, *new], moving_state(old), after=SHORT_SECONDS + 5, max_workers=5, joined=new[:2]
    )
    assert early_plan.leaving_pods == ()
    plan = decide(
        [*old, *new], moving_state(old), after=SHORT_SECONDS + 5, max_workers=5, joined=new[:3]
    )
    assert plan.leaving_pods == tuple(old), "in one pass, so that the group changes once"
    assert plan.state.moves[-1].unjoined == 0


def test_one_worker_leaves_first_if_on_demand_workers_fill_the_group() -> None:
    old = [worker(index, on_demand=True) for index in (6, 7, 8, 9)]
    state, new = moving_state(old), new_workers(4)

    assert decide([*old, *new[:3]], state, after=SHORT_SECONDS, max_workers=4).leaving_pods == ()
    assert decide([*old, *new], state, after=SHORT_SECONDS, max_workers=4).leaving_pods == (old[3],)
    old[3] = replace(old[3], terminating=True)
    assert decide([*old, *new], state, after=SHORT_SECONDS + 1, max_workers=4).leaving_pods == ()
    plan = decide([*old, *new], state, after=SHORT_SECONDS + 2, max_workers=4, joined=new[:1])
    assert plan.leaving_pods == tuple(old[:3])


def test_on_demand_workers_do_not_end_the_search_for_spot_machines() -> None:
    group = [worker(index, on_demand=True) for index in range(4)]

    assert decide(group, searching_state()).state.state is PlacementPhase.SEARCHING


def test_a_group_that_is_to_run_on_demand_neither_searches_nor_leaves_its_zone() -> None:
    group = [worker(index, on_demand=True) for index in range(4)]
    offer = [bound_placeholder(ZONE_B, number) for number in range(4)]

    plan = decide(group, searching_state(group), offer, after=SHORT_SECONDS, uses_spot=False)

    assert (plan.state.zone, plan.state.state) == (ZONE_A, PlacementPhase.SETTLED)
    assert plan.state.reason == "all workers are to run on demand"
    assert plan.placeholders == {}


def test_a_move_ends_when_no_worker_is_left_in_the_old_zone() -> None:
    new = [worker(index, ZONE_B) for index in range(4)]
    leaving_worker = worker(4, terminating=True)
    state = decide(
        [*new, leaving_worker], moving_state([worker(4)]), after=SHORT_SECONDS + 70
    ).state
    assert state.move is not None

    state = decide(new, state, after=SHORT_SECONDS + 80).state

    assert state.move is None
    assert state.moves[-1].ended == NOW + timedelta(seconds=SHORT_SECONDS + 80)
    assert (state.zone, state.state) == (ZONE_B, PlacementPhase.SETTLED)


def test_a_move_whose_workers_do_not_start_is_abandoned_while_more_train_in_the_old_zone() -> None:
    old, new = [worker(0), worker(1)], [worker(2, ZONE_B), pending_worker(3, ZONE_B)]
    state = moving_state(old)

    plan = decide([*old, *new], state, after=SHORT_SECONDS + SETTINGS.move_seconds)

    assert (plan.state.zone, plan.leaving_pods) == (ZONE_A, tuple(new))
    assert plan.state.moves[-1].abandoned
    last_state = decide(old, plan.state, after=SHORT_SECONDS + SETTINGS.move_seconds + 5).state
    assert (last_state.zone, last_state.move, last_state.state) == (
        ZONE_A,
        None,
        PlacementPhase.SHORT,
    )
    assert "the next move is possible at 2026-01-01T13:10:00Z" in last_state.reason


def test_a_move_with_fewer_workers_than_offered_ends_in_the_new_zone_if_as_many_train_there() -> (
    None
):
    old, new = [worker(0)], [worker(2, ZONE_B), pending_worker(3, ZONE_B)]

    assert decide(
        [*old, *new], moving_state(old), after=SHORT_SECONDS + SETTINGS.move_seconds
    ).leaving_pods == (old[0],)


def test_the_minimum_interval_between_moves_holds_after_a_restart() -> None:
    state = decide([], moving_state(), after=SHORT_SECONDS + 1).state
    offer = [bound_placeholder(ZONE_C, number) for number in range(4)]

    early_plan = decide([], state, offer, after=SHORT_SECONDS + SETTINGS.move_interval_seconds - 1)
    assert (early_plan.state.zone, early_plan.placeholders) == (ZONE_B, {})
    assert "the next move is possible at 2026-01-01T13:10:00Z" in early_plan.state.reason

    later_plan = decide(
        [], early_plan.state, offer, after=SHORT_SECONDS + SETTINGS.move_interval_seconds
    )
    assert (later_plan.state.zone, later_plan.state.move_count) == (ZONE_C, 2)


def test_workers_with_an_interruption_notice_count_as_lost() -> None:
    leaving_workers = [worker(index, interrupted=True) for index in range(4)]

    assert decide(leaving_workers).placeholders == {ZONE_B: 4, ZONE_C: 4}


def test_too_few_machines_to_train_count_as_none() -> None:
    plan = decide([worker(0)], min_workers=2)
    assert plan.placeholders == {ZONE_B: 4, ZONE_C: 4}, (
        "a group that does not train has no reason to wait"
    )

    offers = [bound_placeholder(ZONE_B, number) for number in range(2)]
    assert decide([worker(0)], plan.state, offers, after=200, min_workers=3).state.zone == ZONE_A
    assert decide([worker(0)], plan.state, offers, after=200, min_workers=2).state.zone == ZONE_B


def test_a_lack_of_capacity_is_reported_with_its_start_and_its_fixes() -> None:
    reason = decide([], decide().state, after=86_400).state.reason

    assert reason == (
        f"0 of 4 machines; no other zone has clearly more yet; requested in {ZONE_B}, {ZONE_C}; too few to train "
        "since 2026-01-01T12:00:00Z; to get machines, add a zone or instance types to cluster.gpuPools, "
        "allow on-demand machines there (fallbackNodes), raise the quota, or lower job.minReplicas"
    )


def test_a_reason_does_not_change_with_the_clock_alone() -> None:
    for pods in ([], [worker(0)], [worker(0), pending_worker(1)]):
        state = decide(pods, decide(pods).state, after=SHORT_SECONDS + 300).state
        assert decide(pods, state, after=SHORT_SECONDS + 301).state == state, (
            "each change is written, and a written status causes a pass"
        )


def test_a_zone_that_was_removed_from_the_job_keeps_its_workers_until_it_is_short() -> None:
    settings = PlacementSettings(zones=(ZONE_B, ZONE_C))
    workers = [worker(index) for index in range(4)]
    plan = decide(workers, decide(workers).state, settings=settings)

    assert (plan.state.zone, plan.leaving_pods, plan.state.state) == (
        ZONE_A,
        (),
        PlacementPhase.SETTLED,
    )
    assert decide([], plan.state, settings=settings).placeholders == {ZONE_B: 4, ZONE_C: 4}


def test_the_annotation_lists_zones_with_prices_and_may_override_the_default_times() -> None:
    prices = {ZONE_B: 0.5}
    text = json.dumps(
        {
            "zones": [ZONE_A, ZONE_B],
            "usdPerHour": prices,
            "maxUsdPerHour": {ZONE_A: 2},
            "shortSeconds": 20,
            "moveIntervalSeconds": 0,
        }
    )
    expected = PlacementSettings(
        zones=(ZONE_A, ZONE_B),
        usd_per_hour=prices,
        max_usd_per_hour={ZONE_A: 2},
        short_seconds=20,
        move_interval_seconds=0,
    )

    assert read_settings(text) == (expected, ())
    assert read_settings(None) == (None, ())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("us-east-1a", "is 'us-east-1a'; set it to a JSON object"),
        ("[]", "set it to a JSON object"),
        ("{}", ".zones is None; set it to a list of at least one"),
        ('{"zones": []}', ".zones is []; set it to a list of at least one"),
        ('{"zones": [1]}', ".zones is [1]; set it to a list"),
        ('{"zones": ["a", "a"]}', ".zones is ['a', 'a']; name each zone once"),
        ('{"zones": ["a", "us east"]}', ".zones has 'us east'; a zone is a value of the label"),
        (
            '{"zones": ["a"], "usdPerHour": 1}',
            """.usdPerHour is 1; set it to an object such as {"us-east-1a": 0.5}""",
        ),
        (
            '{"zones": ["a"], "usdPerHour": {"b": 1}}',
            ".usdPerHour has a price for 'b', which is not",
        ),
        (
            '{"zones": ["a"], "usdPerHour": {"a": 0}}',
            ".usdPerHour['a'] is 0; set it to a price in USD per hour, greater than 0 and less than 1e9",
        ),
        (
            '{"zones": ["a"], "usdPerHour": {"a": "1"}}',
            ".usdPerHour['a'] is '1'; set it to a price in USD",
        ),
        (
            '{"zones": ["a"], "usdPerHour": {"a": NaN}}',
            ".usdPerHour['a'] is nan; set it to a price in USD",
        ),
        (
            '{"zones": ["a"], "maxUsdPerHour": {"a": -1}}',
            ".maxUsdPerHour['a'] is -1; set it to a price in USD per hour, greater than 0 and less than 1e9",
        ),
        ('{"zones": 1, "usdPerHour": {"a": 1}}', ".zones is 1; set it to a list"),
        (
            '{"zones": ["a"], "shortSeconds": -1}',
            ".shortSeconds is -1; set it to a number of seconds, at least 0 and less than 1e9",
        ),
        (
            '{"zones": ["a"], "shortSeconds": NaN}',
            ".shortSeconds is nan; set it to a number of seconds",
        ),
        (
            '{"zones": ["a"], "shortSecs": 1}',
            ".shortSecs is unknown; use zones, usdPerHour, maxUsdPerHour, startSeconds",
        ),
    ],
)
def test_an_invalid_annotation_is_refused_with_its_fix(text: str, error: str) -> None:
    settings, errors = read_settings(text)

    assert settings is None
    assert error in "; ".join(errors)


def test_the_zone_and_the_notice_of_a_worker_are_read_from_its_pod() -> None:
    source: dict[str, Any] = {
        "metadata": {
            "name": "job-worker-0",
            "uid": "u",
            "labels": {"replica-index": "0"},
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "annotations": {"everstep.dev/deadline": "2026-01-01T12:02:00Z"},
        },
        "spec": {"nodeSelector": {"topology.kubernetes.io/zone": ZONE_A}},
    }
    assert (read_pod(source).zone, read_pod(source).interrupted) == (ZONE_A, True)
    del source["metadata"]["annotations"], source["spec"]["nodeSelector"]
    assert (read_pod(source).zone, read_pod(source).interrupted) == ("", False)


def test_a_placeholder_has_had_a_machine_since_it_was_scheduled() -> None:
    scheduled = {"type": "PodScheduled", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    source: dict[str, Any] = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"nodeSelector": {"topology.kubernetes.io/zone": ZONE_B}},
        "status": {"phase": "Pending", "conditions": [scheduled]},
    }
    assert read_placeholder(source).bound_since is None
    source["spec"]["nodeName"] = "n0"
    assert read_placeholder(source).bound_since == NOW
    assert not read_placeholder(source).ended
    source["status"]["phase"] = "Failed"
    assert read_placeholder(source).ended


def test_placeholders_of_a_job_that_no_longer_has_zones_are_deleted_until_they_are_gone() -> None:
    """A controller may stop after it has written the status; the placeholders would then occupy machines forever."""
    state = searching_state([worker(0)])
    job_without_zones = job(status={"placement": state.to_json()})
    placeholders = [bound_placeholder(ZONE_B, 0)]

    def run_pass(status: dict[str, Any], remaining: Sequence[Placeholder]) -> Plan:
        elastic_job = replace(job_without_zones, status=Status.from_json(status))
        services = frozenset({"job-worker-0"})
        return plan(observe(elastic_job, [worker(0)], services, {}, NOW, placeholders=remaining))

    first_plan = run_pass(job_without_zones.status.to_json(), placeholders)
    assert list(first_plan.delete_placeholders) == placeholders
    assert first_plan.status.placement == state, "a further pass reads the placeholders again"

    last_plan = run_pass(first_plan.status.to_json(), [])
    assert last_plan.status.placement is None
