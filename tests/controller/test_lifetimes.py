"""Observed lifetimes of machines: when the end of a machine counts as a loss, and when the status is written."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.lifetimes import COUNT_SECONDS, LifetimeState, ObservedMachines, count, to_store
from controller.objects import Node, Pod
from controller.observed_state import observe
from everstep.capacity.lifetimes import HALF_LIFE_SECONDS, LifetimeRecord, weighted_seconds
from tests.controller.builders import NOW, job, pod

ZONE, OTHER_ZONE = "us-east-1a", "us-east-1b"
STARTED = NOW - timedelta(hours=1)


def machine(index: int = 0, zone: str = ZONE, phase: str = "Running", **fields: Any) -> Pod:
    return pod(index, phase, **{"zone": zone, "started": STARTED, **fields})


def observation(
    pods: Sequence[Pod], *, after: float = 0, lost: Sequence[Pod] = ()
) -> ObservedMachines:
    return ObservedMachines(
        pods=[*pods, *lost],
        lost_uids=frozenset(pod.uid for pod in lost),
        now=NOW + timedelta(seconds=after),
    )


def restarted(state: LifetimeState | None) -> LifetimeState | None:
    """Return a state as a restarted controller reads it from JSON."""
    return state and LifetimeState.from_json(json.loads(json.dumps(state.to_json())))


def totals(state: LifetimeState, zone: str = ZONE) -> list[float]:
    """Return the machine-seconds and the losses of a zone."""
    record = state.record(zone)
    return [record.seconds, record.losses]


def about(seconds: float, losses: float) -> object:
    """Return the expected totals, with tolerance for their decay: 3 % in an hour."""
    return pytest.approx([seconds, losses], rel=0.03)


def test_machine_time_is_counted_by_zone_from_the_start_of_each_pod() -> None:
    state = count(observation([machine(0), machine(1), machine(2, OTHER_ZONE)]), None)

    assert totals(state) == about(7200, 0)
    assert totals(state, OTHER_ZONE) == about(3600, 0)


def test_a_pod_with_a_notice_or_on_a_lost_node_is_a_loss() -> None:
    observed = observation([machine(0, interrupted=True), machine(1)], lost=[machine(2)])

    assert totals(count(observed, None)) == about(3 * 3600, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"phase": "Failed", "exit_code": 1, "finished": NOW},
        {"phase": "Succeeded", "exit_code": 0, "finished": NOW},
        {"terminating": True},
    ],
)
def test_a_pod_that_ends_or_is_deleted_does_not_count_as_a_loss(fields: dict[str, Any]) -> None:
    assert totals(count(observation([machine(**fields)]), None)) == about(3600, 0)


def test_a_node_that_is_removed_after_its_pod_was_deleted_does_not_count_as_a_loss() -> None:
    deleted, evicted = machine(0, terminating=True), machine(1, terminating=True, disrupted=True)

    assert count(observation([], lost=[deleted]), None).record(ZONE).losses == 0
    assert count(observation([], lost=[evicted]), None).record(ZONE).losses == 1


def test_a_pod_that_waits_or_has_no_zone_has_no_machine_time() -> None:
    waiting_pod = machine(phase="Pending", started=None, node=None)

    assert count(observation([waiting_pod, machine(1, zone="")]), None).zones == {}


def test_a_loss_is_counted_once_and_its_machine_time_ends_with_it() -> None:
    pods = [machine(0, interrupted=True)]
    state = count(observation(pods), None)

    later_state = count(observation(pods, after=300), restarted(state))

    assert totals(later_state) == about(3600, 1)
    assert later_state.lost == {pods[0].uid}
    assert count(observation([], after=600), later_state).lost == frozenset(), (
        "the status stays small"
    )


def test_time_without_a_controller_is_counted_from_the_pods() -> None:
    ended = machine(1, phase="Failed", finished=NOW + timedelta(seconds=600))
    first_state = count(observation([machine(0), machine(1)]), None)

    state = count(observation([machine(0), ended], after=1800), restarted(first_state))

    assert totals(state) == about(7200 + 1800 + 600, 0)


def test_old_observations_decay() -> None:
    state = count(observation([machine(0, interrupted=True)]), None)
    half = count(observation([], after=HALF_LIFE_SECONDS), state)

    assert half.record(ZONE).losses == 0.5
    assert half.record(ZONE).seconds == pytest.approx(state.record(ZONE).seconds / 2)


def test_a_status_is_written_for_a_loss_immediately_and_for_machine_time_rarely() -> None:
    running = machine(0, started=NOW)

    def stored(
        pods: Sequence[Pod], after: float, previous: LifetimeState | None
    ) -> LifetimeState | None:
        observed = observation(pods, after=after)
        return to_store(observed, previous, count(observed, previous))

    assert stored([running], COUNT_SECONDS - 1, None) is None
    state = stored([running], COUNT_SECONDS, None)
    assert state is not None
    assert state.counted_at == NOW + timedelta(seconds=COUNT_SECONDS)
    assert stored([running], COUNT_SECONDS + 1, state) is state
    assert stored([], 9 * COUNT_SECONDS, state) is state, "without machines only time passes"
    interrupted = machine(0, started=NOW, interrupted=True)
    state_with_loss = stored([interrupted], COUNT_SECONDS + 1, state)
    assert state_with_loss is not None
    assert state_with_loss.record(ZONE).losses == 1


@given(
    passes=st.lists(st.integers(1, 5000), min_size=1, max_size=8),
    lost_in=st.integers(0, 7),
    crashes=st.sets(st.integers(0, 7)),
)
def test_the_observations_do_not_depend_on_the_passes_and_crashes_in_between(
    passes: list[int], lost_in: int, crashes: set[int]
) -> None:
    """A crash loses the state of its pass. A loss is counted at the first pass whose state is stored."""
    lost_in = min(lost_in, len(passes) - 1)
    state, after = None, 0
    for number, seconds in enumerate(passes):
        after += seconds
        is_lost = number >= lost_in
        observed = observation([machine(0), machine(1, interrupted=is_lost)], after=after)
        counted = count(observed, restarted(state))
        if number not in crashes:
            state = to_store(observed, restarted(state), counted)

    stored_in = [number for number in range(lost_in, len(passes)) if number not in crashes]
    seconds_since_stored = sum(passes[stored_in[0] + 1 :]) if stored_in else 0
    record = counted.record(ZONE)
    assert record.losses == pytest.approx(
        LifetimeRecord(0, 1).decayed(seconds_since_stored).losses, abs=0.01
    )
    assert record.seconds == pytest.approx(
        weighted_seconds(3600 + after) + weighted_seconds(3600 + after, seconds_since_stored), abs=1
    )


def test_only_spot_pods_are_observed() -> None:
    nodes: dict[str, Node | None] = {
        "spot": Node(name="spot"),
        "fallback": Node(name="fallback", labels={"everstep.dev/capacity": "on-demand"}),
        "lost": None,
    }
    pods = [
        machine(0, node="spot", interrupted=True),
        machine(1, node="fallback", interrupted=True),
        machine(2, node="spot", interrupted=True, on_demand=True),
        machine(3, node="lost"),
    ]

    state = observe(job(zones=(ZONE,)), pods, frozenset(), nodes, NOW).status.placement

    assert state is not None
    assert state.lifetimes is not None
    assert state.lifetimes.lost == {pods[0].uid, pods[3].uid}


def test_the_lifetimes_survive_serialization_and_empty_values_are_left_out() -> None:
    state = LifetimeState(
        counted_at=NOW, zones={ZONE: LifetimeRecord(1.5, 2)}, lost=frozenset({"u"})
    )

    assert restarted(state) == state
    assert LifetimeState(counted_at=NOW).to_json() == {"countedAt": "2026-01-01T12:00:00Z"}
    assert LifetimeState.from_json(None) is None
