"""At any capacity of the zones and any crash of the controller, moves are rare, and no worker leaves too early."""

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controller.client import ApiError
from controller.joining import JoinReader
from controller.metrics import Metrics
from controller.objects import Placeholder
from controller.placement_state import GroupMove, PlacementState
from controller.reconcile import Reconciler, RetryError
from everstep.capacity.placement import PlacementPhase
from tests.controller.simulator.model import KEY, Crash
from tests.controller.simulator.zones import ZONES, Fault, ZonedCluster, zone_of
from tests.effort import SEARCHES, examples

WORKERS = 4
INTERVAL, MOVE, JOIN = 600, 200, 50
TIMES = {
    "startSeconds": 30,
    "shortSeconds": 60,
    "furtherNodeSeconds": 20,
    "retrySeconds": 120,
    "moveIntervalSeconds": INTERVAL,
    "joinSeconds": JOIN,
    "moveSeconds": MOVE,
}


class StaleCluster(ZonedCluster):
    """A cluster that may return the placeholders of an earlier time."""

    stale_placeholders: list[Placeholder] | None = None

    def placeholders(self, job: object = None) -> list[Placeholder]:
        stale, self.stale_placeholders = self.stale_placeholders, None
        return super().placeholders(job) if stale is None else stale


class Moves(RuleBasedStateMachine):
    """One job, three zones with random capacity, a controller that may crash at any write."""

    @initialize()
    def begin(self) -> None:
        self.cluster = StaleCluster(WORKERS, TIMES)
        self.metrics = Metrics()
        self.restart()
        self.moves: list[float] = []

    def restart(self) -> None:
        self.reconciler = controller(self.cluster, self.metrics)

    def placement(self) -> PlacementState | None:
        return PlacementState.from_json(self.cluster.source.get("status", {}).get("placement"))

    def reconcile(self) -> float | None:
        before, running = self.placement(), self.cluster.workers()
        awaited_workers = {zone: self.cluster.awaited_workers(zone, JOIN) for zone in ZONES}
        try:
            wake = self.reconciler.reconcile(KEY)
        except (RetryError, ApiError):
            wake = 0.2
        except Crash:
            self.restart()
            wake = 0.0
        self.check_pass(before, self.placement(), running, awaited_workers)
        return wake

    def check_pass(
        self,
        before: PlacementState | None,
        after: PlacementState | None,
        running: Counter[str],
        awaited_workers: Mapping[str, int],
    ) -> None:
        if after is None:
            return
        if before and after.move_count > before.move_count:
            assert before.move is None, "no move begins while another is under way"
            self.moves.append(self.cluster.now.timestamp())
        stopped_workers = running - self.cluster.workers()
        if stopped_workers:
            assert stopped_workers.keys() == running.keys() - {after.zone}, (
                "only a zone that the group leaves loses workers"
            )
            self.check_takeover(after.moves[-1], running, awaited_workers, stopped_workers.total())

    def check_takeover(
        self,
        move: GroupMove,
        running: Counter[str],
        awaited_workers: Mapping[str, int],
        stopped: int,
    ) -> None:
        """Check that the workers that stop are no longer needed."""
        if move.abandoned:
            return
        old, new = running[move.leaving_zone], running[move.destination]
        seconds = self.cluster.now - move.began
        is_overdue = seconds >= timedelta(seconds=MOVE)
        assert new >= min(move.target, WORKERS) or (is_overdue and new >= old), (
            "workers of the old zone leave only when the new workers run"
        )
        if old >= WORKERS and stopped == 1:
            return  # it makes room for a new worker in a full group
        free_places = max(WORKERS - old, 1)
        assert new - awaited_workers[move.destination] >= min(
            move.target, new, free_places
        ) or seconds >= timedelta(seconds=MOVE + JOIN), (
            "workers of the old zone leave only when the new workers have joined, or did not join in time"
        )

    @rule()
    def one_pass(self) -> None:
        self.reconcile()

    @rule(writes=st.integers(0, 8))
    def crash_in_the_next_pass(self, writes: int) -> None:
        self.cluster.crash_in = writes
        self.reconcile()
        self.cluster.crash_in = None

    @rule(seconds=st.sampled_from([1, 10, 35, 70, 130, 300]))
    def advance_time(self, seconds: int) -> None:
        self.cluster.now += timedelta(seconds=seconds)

    @rule(zone=st.sampled_from(ZONES), machines=st.integers(0, WORKERS + 1))
    def change_capacity(self, zone: str, machines: int) -> None:
        self.cluster.set_machines(zone, machines)

    @rule(number=st.integers(0, WORKERS - 1))
    def interrupt(self, number: int) -> None:
        for name in list(self.cluster.pods)[number : number + 1]:
            self.cluster.interrupt(name)

    @rule()
    def end_interrupted_machines(self) -> None:
        self.cluster.end_interrupted()

    @rule()
    def schedule(self) -> None:
        self.cluster.schedule_placeholders()
        for name in list(self.cluster.pods):
            self.cluster.schedule(name)

    @rule()
    def join(self) -> None:
        self.cluster.join()

    @rule(fault=st.sampled_from(Fault))
    def change_fault(self, fault: Fault) -> None:
        self.cluster.fault = fault

    @rule()
    def observe_stale_placeholders(self) -> None:
        stale = self.cluster.placeholders()
        self.reconcile_repeatedly()
        self.cluster.stale_placeholders = stale
        self.reconcile()

    @rule(joins=st.booleans())
    def reconcile_repeatedly(self, joins: bool = True) -> None:
        for _ in range(4):
            wake = self.reconcile()
            self.cluster.finish_deletions()
            self.schedule()
            if joins:
                self.cluster.join()
            self.cluster.now += timedelta(seconds=min(wake or 1, 30))

    @invariant()
    def moves_are_rare(self) -> None:
        gaps = [later - earlier for earlier, later in pairwise(self.moves)]
        assert all(gap >= INTERVAL for gap in gaps), "the bound holds across restarts"

    @invariant()
    def every_state_has_a_reason(self) -> None:
        if placement := self.placement():
            assert placement.reason

    @invariant()
    def workers_are_in_the_zone_of_the_group_or_in_the_zone_that_it_leaves(self) -> None:
        if placement := self.placement():
            zones = {placement.zone}
            if placement.move:
                zones.add(placement.move.leaving_zone)
            assert {zone_of(pod) for pod in self.cluster.pods.values()} <= zones

    @invariant()
    def no_loss_is_counted_twice(self) -> None:
        if (placement := self.placement()) and placement.lifetimes:
            losses = sum(record.losses for record in placement.lifetimes.zones.values())
            assert losses <= len(self.cluster.lost_uids)

    def teardown(self) -> None:
        """Check that all workers end up in the only zone that has machines, and that no placeholder is left."""
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.crash_in, cluster.stale_placeholders = None, None
        cluster.end_interrupted()
        for zone in ZONES:
            cluster.set_machines(zone, WORKERS if zone == "c" else 0)
        for _ in range(70):
            self.reconcile()
            cluster.finish_deletions()
            self.schedule()
            cluster.join()
            cluster.now += timedelta(seconds=30)
        self.reconcile()
        writes_before = cluster.writes
        for _ in range(3):
            self.reconcile()
        assert cluster.writes == writes_before, "a pass over a stable job writes nothing"
        placement = self.placement()
        assert placement is not None
        assert (placement.zone, placement.state) == ("c", PlacementPhase.SETTLED), placement.reason
        assert cluster.workers() == {"c": WORKERS}
        assert cluster.placeholder_pods == {}
        assert placement.move is None


TestMoves = Moves.TestCase
TestMoves.settings = settings(
    max_examples=examples(25),
    stateful_step_count=30,
    deadline=None,
    derandomize=not SEARCHES,  # the same schedules every time
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def controller(cluster: ZonedCluster, metrics: Metrics | None = None) -> Reconciler:
    return Reconciler(
        cluster,
        metrics or Metrics(),
        now=lambda: cluster.now,
        joining=JoinReader(cluster.scrape),
    )


def simulate(
    cluster: ZonedCluster, seconds: int, metrics: Metrics | None = None, *, joins: bool = True
) -> None:
    """Run a controller, the scheduler and the workers for some time."""
    reconciler = controller(cluster, metrics)
    for _ in range(seconds // 5):
        reconciler.reconcile(KEY)
        cluster.finish_deletions()
        cluster.schedule_placeholders()
        for name in list(cluster.pods):
            cluster.schedule(name)
        if joins:
            cluster.join()
        cluster.now += timedelta(seconds=5)


def test_a_move_is_reported_in_events_metrics_and_the_condition_placed() -> None:
    cluster, metrics = ZonedCluster(WORKERS, TIMES), Metrics()
    cluster.set_machines("a", WORKERS)
    simulate(cluster, 60, metrics)
    cluster.set_machines("a", 1)
    cluster.set_machines("b", WORKERS)
    simulate(cluster, 400, metrics)

    reasons = [event.reason for event in cluster.events]
    placement_reasons = [reason for reason in reasons if reason.startswith(("Zone", "Move"))]
    assert placement_reasons[:2] == ["ZoneSettled", "ZoneShort"]
    assert placement_reasons[-4:] == ["ZonesSearched", "MoveBegan", "Moved", "ZoneSettled"]
    (message,) = (event.message for event in cluster.events if event.reason == "Moved")
    assert message.startswith("moved from a to b in ")
    labels = {"namespace": "ns", "elasticjob": "job"}
    assert metrics.registry.get_sample_value("everstep_moves_total", labels) == 1
    assert metrics.registry.get_sample_value("elasticjob_zone", {**labels, "zone": "b"}) == 1
    assert metrics.registry.get_sample_value("elasticjob_zone", {**labels, "zone": "a"}) is None
    condition = cluster.conditions["Placed"]
    assert (condition["status"], condition["message"]) == ("True", "b: all 4 machines run here")
    assert next(iter(cluster.conditions)) == "Placed", (
        "readers take the last condition as the phase"
    )


def test_running_workers_that_do_not_join_delay_a_move_up_to_a_limit_and_are_reported() -> None:
    cluster = ZonedCluster(WORKERS, TIMES)
    cluster.set_machines("a", WORKERS)
    simulate(cluster, 60)
    cluster.set_machines("a", 1)
    cluster.set_machines("b", WORKERS)
    while cluster.workers()["b"] < WORKERS:
        simulate(cluster, 5, joins=False)

    simulate(cluster, JOIN - 5, joins=False)
    assert cluster.workers()["a"] == 1, "the last worker that trains must stay"
    simulate(cluster, 20, joins=False)

    assert cluster.workers() == {"b": WORKERS}
    (event,) = (event for event in cluster.events if event.reason == "WorkersNotJoined")
    assert event.warning
    assert event.message.startswith("3 workers in b did not complete a step in time")
    assert cluster.source["status"]["placement"]["moves"][0]["unjoined"] == 3


LOSS_WRITES = 2
"""Writes of a pass that observes a loss: the status and the deletion of the worker."""


@pytest.mark.parametrize("writes", range(LOSS_WRITES + 1))
def test_a_lost_worker_is_counted_once_if_the_controller_crashes_at_any_write(writes: int) -> None:
    cluster = ZonedCluster(WORKERS, TIMES)
    cluster.set_machines("a", WORKERS)
    simulate(cluster, 60)
    cluster.interrupt("job-worker-0")
    cluster.set_machines("a", WORKERS - 1)

    cluster.crash_in = writes
    with pytest.raises(Crash) if writes < LOSS_WRITES else nullcontext():
        controller(cluster).reconcile(KEY)
    cluster.crash_in = None
    simulate(cluster, 30)

    (zone,) = cluster.source["status"]["placement"]["lifetimes"]["zones"]
    assert zone["losses"] == pytest.approx(len(cluster.lost_uids), rel=1e-2)
    assert zone["seconds"] == pytest.approx(WORKERS * 60, rel=0.1)


def test_a_job_moves_to_the_zone_in_which_it_has_lost_fewer_machines() -> None:
    cluster = ZonedCluster(WORKERS, TIMES)
    for _ in range(12):
        cluster.set_machines("b", WORKERS)
        simulate(cluster, 100)
        cluster.set_machines("b", 0)
        simulate(cluster, 50)
    cluster.set_machines("a", WORKERS)
    simulate(cluster, INTERVAL + 300)
    assert set(cluster.workers()) == {"a"}

    cluster.set_machines("b", WORKERS)
    cluster.set_machines("c", WORKERS)
    cluster.set_machines("a", 0)
    simulate(cluster, INTERVAL + 100)

    assert set(cluster.workers()) == {"c"}
    reason = cluster.source["status"]["placement"]["moves"][-1]["reason"]
    assert reason.endswith("of 2 such zones it has the most productive machines")


def test_a_suspended_or_finished_job_requests_no_machines() -> None:
    cluster = ZonedCluster(WORKERS, TIMES)
    simulate(cluster, 100)
    assert {zone_of(pod) for pod in cluster.placeholder_pods.values()} == {"b", "c"}

    cluster.source["spec"]["RunPolicy"]["suspend"] = True
    simulate(cluster, 10)
    assert cluster.placeholder_pods == {}
    cluster.source["spec"]["RunPolicy"]["suspend"] = False
    cluster.set_machines("a", 1)
    simulate(cluster, 200)
    assert cluster.placeholder_pods
    cluster.end(next(iter(cluster.pods)), 0)
    simulate(cluster, 60)
    assert cluster.placeholder_pods == {}
    assert cluster.source["status"]["placement"]["zone"] == "a"


def test_a_job_that_follows_capacity_moves_with_as_many_workers_as_the_zone_has_machines() -> None:
    cluster = ZonedCluster(WORKERS, TIMES)
    cluster.follow_capacity()
    cluster.set_machines("a", WORKERS)
    simulate(cluster, 60)
    cluster.set_machines("a", 0)
    simulate(cluster, 300)
    assert cluster.conditions["Suspended"]["status"] == "True", "no zone has a machine"
    assert {zone_of(pod) for pod in cluster.placeholder_pods.values()} == {"b", "c"}

    cluster.set_machines("c", 2)
    simulate(cluster, 100)

    assert cluster.workers() == {"c": 2}
    assert cluster.source["status"]["scaling"]["desired"] == 2
    assert cluster.placeholder_pods == {}


def test_workers_that_find_no_node_in_the_new_zone_do_not_suspend_the_job() -> None:
    cluster = ZonedCluster(WORKERS, {**TIMES, "moveSeconds": 400})
    cluster.follow_capacity()
    cluster.set_machines("a", WORKERS)
    simulate(cluster, 60)
    cluster.set_machines("a", 1)
    simulate(cluster, 200)
    cluster.set_machines("b", WORKERS)
    cluster.schedule_placeholders()
    cluster.machines["b"] = 0
    simulate(cluster, 10)
    assert cluster.source["status"]["placement"]["zone"] == "b"
    cluster.set_machines("b", 0)

    for _ in range(30):
        simulate(cluster, 20)
        assert cluster.workers() == {"a": 1}, "the last worker trains"

    placement = cluster.source["status"]["placement"]
    assert (placement["zone"], placement["moves"][0]["abandoned"]) == ("a", True)


def test_a_failed_job_requests_no_machines() -> None:
    cluster = ZonedCluster(WORKERS, TIMES)
    cluster.source["spec"]["RunPolicy"]["activeDeadlineSeconds"] = 60
    simulate(cluster, 50)
    assert cluster.placeholder_pods

    simulate(cluster, 60)

    assert cluster.conditions["Failed"]["status"] == "True"
    assert cluster.placeholder_pods == {}


@pytest.mark.parametrize("follows_capacity", [False, True])
def test_with_the_default_times_a_job_leaves_a_zone_that_never_has_a_machine(
    follows_capacity: bool,
) -> None:
    cluster = ZonedCluster(WORKERS)
    if follows_capacity:
        cluster.follow_capacity()
    cluster.set_machines("b", WORKERS)

    simulate(cluster, 600)

    assert cluster.workers() == {"b": WORKERS}


def test_with_the_default_times_a_job_that_soon_loses_its_zone_moves_immediately() -> None:
    cluster = ZonedCluster(WORKERS)
    cluster.follow_capacity()
    cluster.set_machines("a", WORKERS)
    simulate(cluster, 60)

    cluster.set_machines("a", 0)
    cluster.set_machines("b", WORKERS)
    simulate(cluster, 60)

    assert cluster.workers() == {"b": WORKERS}
