"""The number of workers follows the machines: delays, requests for machines, and invariants."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scaling import (
    ReplicaRange,
    ScaleUpBasis,
    ScalingState,
    Timeouts,
    WorkerCapacity,
    desired_replicas,
)
from tests.controller.builders import NOW
from tests.effort import examples

TIMEOUTS = Timeouts(down_seconds=120, up_seconds=10, request_seconds=300)
RANGE = ReplicaRange(replicas=3, min_replicas=1, max_replicas=4)


def time_after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def capacity(scheduled: int, *pending: float, schedulable: int = 0) -> WorkerCapacity:
    """Return a capacity; `pending` are the creation times of pods without a machine, in seconds."""
    return WorkerCapacity(
        scheduled=scheduled,
        pending_since=tuple(time_after(moment) for moment in pending),
        schedulable=schedulable,
    )


def state(desired: int, **fields: Any) -> ScalingState:
    values: dict[str, Any] = {"desired": desired, "since": NOW, "replicas": RANGE.replicas}
    return ScalingState(**(values | fields))


def decide(
    capacity: WorkerCapacity,
    scaling: ScalingState | None,
    seconds: float,
    replica_range: ReplicaRange = RANGE,
) -> tuple[ScalingState, datetime | None]:
    return desired_replicas(replica_range, capacity, scaling, time_after(seconds), TIMEOUTS)


def test_a_new_job_starts_with_the_replicas_of_its_spec() -> None:
    scaling, wake = decide(capacity(0), None, 0)

    assert (scaling.desired, scaling.reason) == (3, "the spec requests 3")
    assert wake == time_after(300), "below its maximum it later requests more"


def test_a_pending_worker_is_given_up_only_after_the_timeout() -> None:
    early_state, wake = decide(capacity(2, 0), state(3), 119)
    later_state, _ = decide(capacity(2, 0), early_state, 120)

    assert (early_state.desired, wake) == (3, time_after(120))
    assert (later_state.desired, later_state.reason) == (2, "1 of 3 found no node")


def test_with_fewer_machines_than_the_minimum_no_worker_is_desired() -> None:
    replica_range = replace(RANGE, min_replicas=2)

    scaling, _ = decide(capacity(1, 0, 0), state(3), 120, replica_range)

    assert scaling.desired == 0
    assert "2 are needed to train" in scaling.reason


def test_capacity_must_be_stable_before_the_job_grows() -> None:
    first_state, wake = decide(capacity(2, schedulable=1), state(2), 50)
    empty_state, _ = decide(capacity(2), first_state, 55)
    returned_state, _ = decide(capacity(2, schedulable=1), empty_state, 58)
    stable_state, _ = decide(capacity(2, schedulable=1), returned_state, 68)

    assert wake == time_after(60)
    states = (first_state, empty_state, returned_state, stable_state)
    assert [scaling.desired for scaling in states] == [2, 2, 2, 3]
    assert stable_state.basis is ScaleUpBasis.SCHEDULABLE


def test_a_suspended_job_resumes_when_its_minimum_fits() -> None:
    replica_range = replace(RANGE, min_replicas=2)

    state_for_one, _ = decide(capacity(0, schedulable=1), state(0), 100, replica_range)
    state_for_two, wake = decide(capacity(0, schedulable=2), state_for_one, 110, replica_range)
    resumed_state, _ = decide(capacity(0, schedulable=2), state_for_two, 120, replica_range)

    assert (state_for_one.capacity_since, wake) == (None, time_after(120))
    assert resumed_state.desired == 2


def test_without_capacity_a_job_periodically_adds_a_pending_worker_for_the_autoscaler() -> None:
    quiet_state, _ = decide(capacity(2), state(2), 299)
    requesting_state, _ = decide(capacity(2), quiet_state, 300)
    failed_state, _ = decide(capacity(2, 300), requesting_state, 420)

    states = (quiet_state, requesting_state, failed_state)
    assert [scaling.desired for scaling in states] == [2, 3, 2]
    assert failed_state.failed_scale_ups == 0, (
        "a request without a response is not a failed scale-up"
    )


def test_a_request_that_was_met_is_followed_by_a_request_for_twice_as_many_workers() -> None:
    replica_range = replace(RANGE, max_replicas=12)
    scaling, now, sizes = state(1), 300.0, []
    for _ in range(4):
        scaling, _ = decide(capacity(scaling.desired), scaling, now, replica_range)
        sizes.append(scaling.desired)
        now += TIMEOUTS.up_seconds

    assert sizes == [2, 4, 8, 12], "one, two, four, and as many as the range allows"


def test_after_a_request_that_was_not_met_one_worker_is_requested_at_the_usual_interval() -> None:
    scaling = state(2, basis=ScaleUpBasis.REQUEST, met_requests=3)

    unmet_state, _ = decide(capacity(1, 0), scaling, 120)
    waiting_state, wake = decide(capacity(1), unmet_state, 419)
    requesting_state, _ = decide(capacity(1), waiting_state, 420)

    assert (unmet_state.desired, waiting_state.desired, requesting_state.desired) == (1, 1, 2)
    assert wake == time_after(420)


def test_workers_on_free_machines_do_not_count_as_a_met_request() -> None:
    scaling, _ = decide(capacity(2), state(2, basis=ScaleUpBasis.SCHEDULABLE), 100)

    assert (scaling.basis, scaling.met_requests) == (ScaleUpBasis.NONE, 0)


def test_a_suspended_job_requests_its_minimum() -> None:
    scaling, _ = decide(capacity(0), state(0), 300, replace(RANGE, min_replicas=2))

    assert scaling.desired == 2


def test_capacity_that_proved_unusable_is_tried_with_growing_delays() -> None:
    scaling, now = state(2), 0.0
    waits = []
    for _ in range(4):
        started_at = now
        while scaling.desired == 2:
            scaling, wake = decide(capacity(2, schedulable=1), scaling, now)
            if scaling.desired == 2:
                assert wake is not None
                now = (wake - NOW).total_seconds()
        waits.append(now - started_at)
        scaling, _ = decide(capacity(2, now, schedulable=1), scaling, now + 120)
        now += 120

    assert waits == [10, 20, 40, 80]


def test_a_successful_scale_up_resets_the_delay() -> None:
    failed_state = state(3, basis=ScaleUpBasis.SCHEDULABLE, failed_scale_ups=3)

    scaling, _ = decide(capacity(3), failed_state, 5)

    assert (scaling.basis, scaling.failed_scale_ups) == (ScaleUpBasis.NONE, 0)


@pytest.mark.parametrize(
    ("edit", "desired"),
    [
        (replace(RANGE, replicas=1), 1),
        (replace(RANGE, replicas=4), 4),
        (replace(RANGE, max_replicas=2, replicas=2), 2),
        (replace(RANGE, max_replicas=2), 2),
        (replace(RANGE, min_replicas=4), 4),
    ],
)
def test_an_edit_takes_effect_immediately(edit: ReplicaRange, desired: int) -> None:
    assert decide(capacity(3), state(3), 1, edit)[0].desired == desired


def test_a_changed_bound_does_not_resume_a_suspended_job() -> None:
    assert decide(capacity(0), state(0), 1, replace(RANGE, min_replicas=2))[0].desired == 0


def test_scheduled_workers_stay_desired_while_an_edit_removes_pending_ones() -> None:
    scaling, _ = decide(capacity(3, 0, 0), state(5, replicas=5), 200)

    assert scaling.desired == 3


def test_a_worker_whose_deletion_is_refused_is_given_up_once() -> None:
    lowered, _ = decide(capacity(1, 0, 100), state(3), 120)
    still_there, _ = decide(capacity(1, 0, 100), lowered, 121)

    assert (lowered.desired, still_there.desired) == (2, 2)


def test_the_scaling_state_survives_serialization() -> None:
    scaling = state(
        2, capacity_since=time_after(5), basis=ScaleUpBasis.REQUEST, failed_scale_ups=2, reason="why",
        met_requests=1,
    )  # fmt: skip

    assert ScalingState.from_json(scaling.to_json()) == scaling
    assert ScalingState.from_json(state(0).to_json()) == state(0)
    assert ScalingState.from_json(None) is None
    older_json = {"wanted": 2, "since": "2026-01-01T00:00:00Z", "replicas": 3}
    assert ScalingState.from_json(older_json) is None, "an upgraded controller starts from the spec"


# --- simulation of machines

STEP_SECONDS = 10.0
"""Longest time between two passes of the simulated controller."""


@dataclass
class SimulatedJob:
    """Machines for one worker each, a scheduler, and a job that follows capacity.

    Attributes:
        unusable: machines that appear free but accept no worker.
        changes: (time in seconds, new number of desired workers).
    """

    replica_range: ReplicaRange
    machines: int
    unusable: int = 0
    now: float = 0.0
    scheduled: int = 0
    pending: list[float] = field(default_factory=list)
    scaling: ScalingState | None = None
    changes: list[tuple[float, int]] = field(default_factory=list)
    lost_workers: int = 0

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        self.schedule()  # before the controller observes another machine
        while self.now < end:
            self.one_pass()
            self.schedule()
            self.one_pass()
            self.now = min(self.now + STEP_SECONDS, end)

    def one_pass(self) -> None:
        previous = self.scaling
        capacity = WorkerCapacity(
            scheduled=self.scheduled,
            pending_since=tuple(time_after(moment) for moment in self.pending),
            schedulable=max(self.machines + self.unusable - self.scheduled, 0),
        )
        self.scaling, wake = desired_replicas(
            self.replica_range, capacity, previous, time_after(self.now), TIMEOUTS
        )
        desired = self.scaling.desired
        assert (
            desired == 0
            or self.replica_range.min_replicas <= desired <= self.replica_range.max_replicas
        )
        assert wake is None or wake > time_after(self.now)
        if previous is None or desired != previous.desired:
            self.changes.append((self.now, desired))
            if previous is not None and previous.desired < desired:
                assert self.scheduled <= desired, "growing never removes a running worker"
        self.create_and_delete(desired)

    def create_and_delete(self, desired: int) -> None:
        """Create and delete workers as the controller does: pending ones are deleted first."""
        while self.scheduled + len(self.pending) > desired:
            if self.pending:
                self.pending.pop()
            else:
                self.scheduled -= 1
                self.lost_workers += 1
        while self.scheduled + len(self.pending) < desired:
            self.pending.append(self.now)

    def schedule(self) -> None:
        lost_machines = max(self.scheduled - self.machines, 0)
        self.scheduled -= lost_machines
        self.pending += [self.now] * lost_machines
        while self.pending and self.scheduled < self.machines:
            self.pending.pop(0)
            self.scheduled += 1


BOUNDS = st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 5)).map(
    lambda numbers: ReplicaRange(
        min_replicas=numbers[0],
        max_replicas=numbers[0] + numbers[1],
        replicas=numbers[0] + min(numbers[2], numbers[1]),
    )
)


@settings(deadline=None, max_examples=examples(25))
@given(
    replica_range=BOUNDS,
    schedule=st.lists(st.tuples(st.integers(0, 8), st.integers(10, 600)), min_size=1, max_size=8),
)
def test_a_job_stays_within_its_bounds_and_removes_no_worker_that_can_train(
    replica_range: ReplicaRange, schedule: list[tuple[int, int]]
) -> None:
    simulation = SimulatedJob(replica_range, machines=replica_range.max_replicas)
    for machines, seconds in schedule:
        simulation.machines = machines
        could_train = machines >= replica_range.min_replicas
        lost_before = simulation.lost_workers
        simulation.run(seconds)
        assert simulation.lost_workers == lost_before or not could_train


@settings(deadline=None, max_examples=examples(25))
@given(
    replica_range=BOUNDS,
    schedule=st.lists(st.tuples(st.integers(0, 8), st.integers(10, 600)), max_size=6),
)
def test_with_stable_machines_the_job_uses_as_many_as_it_can(
    replica_range: ReplicaRange, schedule: list[tuple[int, int]]
) -> None:
    simulation = SimulatedJob(replica_range, machines=0)
    for machines, seconds in schedule:
        simulation.machines = machines
        simulation.run(seconds)

    simulation.run(2 * (TIMEOUTS.request_seconds + TIMEOUTS.down_seconds))

    usable_machines = min(simulation.machines, replica_range.max_replicas)
    if usable_machines >= replica_range.min_replicas:
        assert simulation.scheduled == usable_machines
    else:
        assert simulation.scheduled < replica_range.min_replicas, "it may have requested more"


@settings(deadline=None, max_examples=examples(25))
@given(
    replica_range=BOUNDS,
    flips=st.lists(st.tuples(st.booleans(), st.sampled_from([5, 10])), max_size=60),
)
def test_a_machine_that_returns_before_the_timeout_changes_nothing(
    replica_range: ReplicaRange, flips: list[tuple[bool, int]]
) -> None:
    simulation = SimulatedJob(replica_range, machines=replica_range.max_replicas)
    simulation.run(400)
    change_count = len(simulation.changes)
    for present, seconds in flips:
        simulation.machines = (
            replica_range.max_replicas if present else replica_range.max_replicas - 1
        )
        simulation.run(seconds)
        # The next flip may last for another step.
        due = TIMEOUTS.down_seconds - STEP_SECONDS
        if simulation.pending and simulation.now - simulation.pending[0] >= due:
            simulation.machines = replica_range.max_replicas
            simulation.run(5)

    assert len(simulation.changes) == change_count


@settings(deadline=None, max_examples=examples(25))
@given(offered_machines=st.integers(1, 16), start_seconds=st.sampled_from([0, 30, 90]))
def test_machines_that_an_autoscaler_starts_on_request_are_all_used_soon(
    offered_machines: int, start_seconds: int
) -> None:
    # The number of requests grows with the logarithm of the machines, not with their number.
    simulation = SimulatedJob(ReplicaRange(replicas=1, min_replicas=1, max_replicas=16), machines=1)
    requests = offered_machines.bit_length()  # 1, 2, 4, ... more workers
    end = TIMEOUTS.request_seconds + (requests + 1) * (TIMEOUTS.down_seconds + 20)
    while simulation.now < end:
        simulation.run(10)
        if any(simulation.now - moment >= start_seconds for moment in simulation.pending):
            workers = simulation.scheduled + len(simulation.pending)
            simulation.machines = min(workers, offered_machines)

    assert simulation.scheduled == offered_machines
    assert simulation.lost_workers == 0


@settings(deadline=None, max_examples=examples(25))
@given(unusable=st.integers(1, 4), machines=st.integers(1, 4))
def test_unusable_capacity_is_tried_rarely(unusable: int, machines: int) -> None:
    simulation = SimulatedJob(
        ReplicaRange(replicas=8, min_replicas=1, max_replicas=8),
        machines=machines,
        unusable=unusable,
    )

    simulation.run(7200)

    later_sizes = [desired for moment, desired in simulation.changes if moment > 3600]
    cycle_seconds = TIMEOUTS.request_seconds + TIMEOUTS.down_seconds
    assert len(later_sizes) <= 2 * (3600 / cycle_seconds + 1)
    assert simulation.scheduled == machines
    assert simulation.lost_workers == 0
