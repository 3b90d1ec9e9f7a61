"""A job with any combination of zones, capacity and limits survives any schedule of faults and edits."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from urllib3.exceptions import HTTPError

from controller.client import ApiError
from controller.joining import JoinReader
from controller.metrics import Metrics
from controller.progress import ProgressReader
from controller.reconcile import Reconciler, RetryError
from controller.status import ConditionType, Status
from everstep.catalog.names import (
    PLACEMENT_ANNOTATION,
    SCALING_ANNOTATION,
    SCALING_CAPACITY,
    SCALING_FIXED,
)
from tests.controller.simulator.combined import POOLS, CombinedCluster
from tests.controller.simulator.model import KEY, Crash, WriteFault
from tests.controller.simulator.test_moves import TIMES
from tests.controller.simulator.zones import ZONES, Fault
from tests.effort import SEARCHES, examples

SETTLE_SECONDS = 2400  # a request for more workers every 300 s, and two moves
PLANNED_STEPS = 1000
ALL_ZONES = list(ZONES)
ZONE_LISTS = [[], ALL_ZONES, ["b", "c"], ["c"]]  # an empty list means no placement
CHANGES = st.sampled_from(
    [
        "delete",
        "evict",
        "schedule",
        "fail",
        "capacity",
        "interrupt",
        "scale",
        "suspend",
        "resume",
        "second leader",
        "hang",
        "recover",
        "bounds",
        "zones",
        "scaling",
        "spending",
        "metrics",
    ]
)
LIMITS: list[dict[str, Any] | None] = [
    None,
    {"onDemand": "fallback", "deadlineSeconds": 3600},
    {"onDemand": "fallback"},
    {"onDemand": "always"},
    {"onDemand": "never", "budgetUsd": 1.0},
    {"onDemand": "fallback", "budgetUsd": 2.0, "deadlineSeconds": 1800},
    {"budgetUsd": 50.0},
]


class Combined(RuleBasedStateMachine):
    """One job that trains, and random changes of everything around it."""

    @initialize(
        replicas=st.integers(1, 4),
        extra=st.integers(0, 3),
        zones=st.booleans(),
        follows_capacity=st.booleans(),
        spending=st.sampled_from(LIMITS),
        seconds_per_step=st.sampled_from([1, 3, 10]),
        min_replicas=st.integers(1, 2),
    )
    def begin(
        self,
        replicas: int,
        extra: int,
        zones: bool,
        follows_capacity: bool,
        spending: dict[str, Any] | None,
        seconds_per_step: int,
        min_replicas: int,
    ) -> None:
        self.seconds_per_step = seconds_per_step
        self.follows_capacity = follows_capacity
        self.cluster = CombinedCluster(
            replicas,
            TIMES if zones else None,
            max_replicas=replicas + extra,
            follows_capacity=follows_capacity,
            spending=spending,
        )
        self.cluster.source["spec"]["minReplicas"] = min(replicas, min_replicas)
        self.cluster.source["spec"]["RunPolicy"] = {"backoffLimit": 1000}
        self.cluster.machines["a"] = replicas + extra
        self.began = self.cluster.now
        self.metrics = Metrics()
        self.restart()
        self.run(120)

    def restart(self) -> None:
        self.reconciler = self.controller(self.metrics)

    def controller(self, metrics: Metrics) -> Reconciler:
        cluster = self.cluster
        return Reconciler(
            cluster,
            metrics,
            now=lambda: cluster.now,
            joining=JoinReader(cluster.scrape),
            progress=ProgressReader(self.scrape_worker),
        )

    def scrape_worker(self, _address: str) -> str:
        steps = (self.cluster.now - self.began).total_seconds() // self.seconds_per_step
        step = min(steps, PLANNED_STEPS - 1)
        return f"everstep_step {step}\neverstep_planned_steps {PLANNED_STEPS}\n"

    def reconcile(self) -> float | None:
        try:
            return self.reconciler.reconcile(KEY)
        except (RetryError, ApiError, HTTPError):
            return 0.2
        except Crash:
            self.restart()
            return 0.0

    def run(self, seconds: float) -> None:
        """Run the controller, the scheduler and the workers for some time."""
        end = self.cluster.now + timedelta(seconds=seconds)
        while self.cluster.now < end:
            wake = self.reconcile()
            self.cluster.finish_deletions()
            self.schedule()
            self.cluster.join()
            self.cluster.now += timedelta(seconds=max(min(wake or 60, 60), 5))

    @rule()
    def schedule(self) -> None:
        self.cluster.schedule_placeholders()
        for name in list(self.cluster.pods):
            self.cluster.schedule(name)

    @rule()
    def one_pass(self) -> None:
        self.reconcile()

    @rule(seconds=st.sampled_from([10, 60, 150, 400]))
    def run_without_faults(self, seconds: int) -> None:
        self.run(seconds)

    @rule(seconds=st.sampled_from([1, 10, 60, 130, 300]))
    def stop_the_controller_for_a_while(self, seconds: int) -> None:
        self.cluster.now += timedelta(seconds=seconds)

    @rule(writes=st.integers(0, 8))
    def crash_in_the_next_pass(self, writes: int) -> None:
        self.cluster.crash_in = writes
        self.reconcile()
        self.cluster.crash_in = None

    @rule(faults=st.lists(st.sampled_from(WriteFault), min_size=1, max_size=8))
    def fail_writes_of_the_next_pass(self, faults: list[WriteFault]) -> None:
        self.cluster.write_faults = list(faults)
        self.reconcile()
        self.cluster.write_faults = []

    @rule(
        change=CHANGES,
        number=st.integers(0, 6),
        zone=st.sampled_from(ZONES),
        requests=st.integers(1, 10),
        during=st.booleans(),
    )
    def change(self, change: str, number: int, zone: str, requests: int, during: bool) -> None:
        changes: dict[str, Callable[[], object]] = {
            "delete": lambda: self.cluster.pods.pop(f"job-worker-{number}", None),
            "evict": lambda: self._change_pod(number, self.cluster.request_deletion),
            "schedule": self.schedule,
            "fail": lambda: self._change_pod(number, lambda name: self.cluster.end(name, 1)),
            "capacity": lambda: self.cluster.set_machines(zone, number),
            "interrupt": lambda: self._change_pod(number, self.cluster.interrupt),
            "scale": lambda: self.scale(number),
            "suspend": lambda: self.suspend(True),
            "resume": lambda: self.suspend(False),
            "second leader": self.reconcile_as_second_leader,
            "hang": lambda: self._change_pod(number, self.hang),
            "recover": self.recover,
            "bounds": lambda: self.set_bounds(number),
            "zones": lambda: self.set_zones(ZONE_LISTS[number % len(ZONE_LISTS)]),
            "scaling": lambda: self.set_scaling(number % 2 == 0),
            "spending": lambda: self.set_spending(LIMITS[number]),
            "metrics": lambda: setattr(self.cluster, "fault", list(Fault)[number % len(Fault)]),
        }
        if not during:
            changes[change]()
            return
        self.cluster.changes = {requests: changes[change]}
        self.reconcile()
        self.cluster.changes = {}

    def scale(self, number: int) -> None:
        spec = self.cluster.source["spec"]
        number = min(number, 6)
        spec["minReplicas"] = min(spec["minReplicas"], max(number, 1))
        spec["maxReplicas"] = max(number, spec["maxReplicas"])
        self.cluster.scale(number)

    def suspend(self, value: bool) -> None:
        self.cluster.source["spec"]["RunPolicy"]["suspend"] = value
        self.cluster.scale(self.cluster.replicas)  # a new version of the job

    def hang(self, name: str) -> None:
        self.cluster.hang(self.cluster.pods[name]["spec"].get("nodeName", ""))

    def recover(self) -> None:
        for node in list(self.cluster.unready):
            self.cluster.boot(node)

    def set_bounds(self, number: int) -> None:
        """Raise or lower both bounds around the current number of replicas."""
        spec, replicas = self.cluster.source["spec"], max(self.cluster.replicas, 1)
        spec["minReplicas"] = max(min(number, replicas), 1)
        spec["maxReplicas"] = max(number, replicas)
        self.cluster.scale(self.cluster.replicas)

    def set_zones(self, zones: list[str]) -> None:
        annotations = self.cluster.source["metadata"].setdefault("annotations", {})
        annotations.pop(PLACEMENT_ANNOTATION, None)
        if zones:
            annotations[PLACEMENT_ANNOTATION] = json.dumps({"zones": zones, **TIMES})
        self.cluster.scale(self.cluster.replicas)

    def set_scaling(self, follows_capacity: bool) -> None:
        self.follows_capacity = follows_capacity
        annotations = self.cluster.source["metadata"].setdefault("annotations", {})
        annotations[SCALING_ANNOTATION] = SCALING_CAPACITY if follows_capacity else SCALING_FIXED
        self.cluster.scale(self.cluster.replicas)

    def set_spending(self, limits: dict[str, Any] | None) -> None:
        spec = self.cluster.source["spec"]
        spec.pop("spending", None)
        if limits is not None:
            spec["spending"] = {"pools": POOLS, **limits}
        self.cluster.scale(self.cluster.replicas)

    def reconcile_as_second_leader(self) -> None:
        with suppress(RetryError, ApiError, HTTPError):
            self.controller(Metrics()).reconcile(KEY)

    def _change_pod(self, index: int, change: Callable[[str], None]) -> None:
        name = f"job-worker-{index}"
        if name in self.cluster.pods:
            change(name)

    def status(self) -> Status:
        return Status.from_json(self.cluster.source.get("status") or {})

    def teardown(self) -> None:
        """Check that all workers run in the only zone that has spot machines, once nothing else changes."""
        if not hasattr(self, "cluster"):
            return
        cluster, spec = self.cluster, self.cluster.source["spec"]
        self.suspend(False)
        for limit in ("budgetUsd", "deadlineSeconds"):  # workers would be bought or removed later
            spec.get("spending", {}).pop(limit, None)
        cluster.scale(max(cluster.replicas, 1))
        cluster.end_interrupted()
        cluster.fault = Fault.NONE
        self.recover()
        if PLACEMENT_ANNOTATION in cluster.source["metadata"].get("annotations", {}):
            self.set_zones(ALL_ZONES)
        for zone in ZONES:
            cluster.set_machines(zone, spec["maxReplicas"] if zone == "c" else 0)
        self.run(SETTLE_SECONDS)
        self.reconcile()
        writes_before = cluster.writes
        for _ in range(3):
            self.reconcile()
        assert cluster.writes == writes_before, "a pass over a stable job writes nothing"
        status = Status.from_json(cluster.source["status"])
        workers = spec["maxReplicas"] if self.follows_capacity else cluster.replicas
        assert len(cluster.running_workers()) == len(cluster.pods) == workers
        assert set(cluster.services) == set(cluster.pods)
        assert status.is_true(ConditionType.RUNNING)
        assert not status.is_true(ConditionType.SUSPENDED)
        assert cluster.placeholder_pods == {}, "a complete job requests no machine elsewhere"


TestCombined = Combined.TestCase
TestCombined.settings = settings(
    max_examples=examples(20),
    stateful_step_count=15,
    deadline=None,
    derandomize=not SEARCHES,  # the same schedules every time
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
