"""Under any schedule of faults the invariants hold, and the job eventually recovers or ends."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from urllib3.exceptions import HTTPError

from controller.client import ApiError
from controller.metrics import Metrics
from controller.reconcile import Reconciler, RetryError
from controller.status import ConditionType, Status
from everstep.catalog.names import BOUNDS_ANNOTATION
from tests.controller.simulator.model import KEY, Crash, ModelCluster, WriteFault
from tests.effort import SEARCHES, examples

INDICES = st.integers(0, 3)
NODES = st.sampled_from(["n0", "n1", "n2"])
CODES = st.sampled_from([1, 2, 130, 137, 138, 143])
CHANGES = st.sampled_from(
    ["delete", "evict", "start", "fail", "finish", "vanish", "boot", "scale", "edit", "lead"]
)


class Schedule(RuleBasedStateMachine):
    """One job, a controller that may crash at any write, and random changes of pods, machines and the spec."""

    @initialize(replicas=st.integers(1, 4), limit=st.integers(0, 4))
    def begin(self, replicas: int, limit: int) -> None:
        self.cluster = ModelCluster(replicas, backoffLimit=limit)
        self.limit = limit
        self.metrics = Metrics()
        self.restart()
        self.end_condition: str | None = None
        for _ in range(2):
            self.reconcile()
            self.start_pods()

    def restart(self) -> None:
        self.reconciler = Reconciler(self.cluster, self.metrics, now=lambda: self.cluster.now)

    def reconcile(self) -> float | None:
        try:
            return self.reconciler.reconcile(KEY)
        except (RetryError, ApiError, HTTPError):
            return 0.2
        except Crash:
            self.restart()
            return 0.0

    @rule()
    def one_pass(self) -> None:
        self.reconcile()

    @rule(writes=st.integers(0, 4))
    def crash_in_the_next_pass(self, writes: int) -> None:
        self.cluster.crash_in = writes
        self.reconcile()
        self.cluster.crash_in = None

    @rule(faults=st.lists(st.sampled_from(WriteFault), min_size=1, max_size=6))
    def fail_writes_of_the_next_pass(self, faults: list[WriteFault]) -> None:
        self.cluster.write_faults = list(faults)
        self.reconcile()
        self.cluster.write_faults = []

    @rule(requests=st.integers(1, 8), change=CHANGES, index=INDICES, node=NODES)
    def change_in_the_middle_of_the_next_pass(
        self, requests: int, change: str, index: int, node: str
    ) -> None:
        changes: dict[str, Callable[[], object]] = {
            "delete": lambda: self.delete_a_pod(index, force=True),
            "evict": lambda: self.delete_a_pod(index, force=False),
            "start": self.start_pods,
            "fail": lambda: self.end_a_worker(index, 1),
            "finish": lambda: self.finish_a_worker(index),
            "vanish": lambda: self.change_a_machine(node, "vanish"),
            "boot": lambda: self.change_a_machine(node, "boot"),
            "scale": lambda: self.edit_the_spec(index, 6, 1),
            "edit": self.cluster.edit_template,
            "lead": self.lead_elsewhere,
        }
        self.cluster.changes = {requests: changes[change]}
        self.reconcile()
        self.cluster.changes = {}

    def lead_elsewhere(self) -> None:
        """Let another controller, which became the leader, complete a pass."""
        with suppress(RetryError, ApiError, HTTPError):
            Reconciler(self.cluster, Metrics(), now=lambda: self.cluster.now).reconcile(KEY)

    @rule(seconds=st.sampled_from([1, 5, 60, 400]))
    def advance_time(self, seconds: int) -> None:
        self.cluster.now += timedelta(seconds=seconds)

    @rule()
    def start_pods(self) -> None:
        for name in list(self.cluster.pods):
            self.cluster.schedule(name)

    @rule()
    def reconcile_repeatedly(self) -> None:
        for _ in range(3):
            wake = self.reconcile()
            self.cluster.finish_deletions()
            self.start_pods()
            self.cluster.now += timedelta(seconds=min(wake or 1, 10))

    @rule(index=INDICES, code=CODES)
    def end_a_worker(self, index: int, code: int) -> None:
        self._change_pod(index, lambda name: self.cluster.end(name, code))

    @rule(index=INDICES)
    def finish_a_worker(self, index: int) -> None:
        self._change_pod(index, lambda name: self.cluster.end(name, 0))

    @rule(index=INDICES, force=st.booleans())
    def delete_a_pod(self, index: int, force: bool) -> None:
        if force:
            self.cluster.pods.pop(f"job-worker-{index}", None)
        else:
            self._change_pod(index, self.cluster.request_deletion)

    @rule()
    def finish_deletions(self) -> None:
        self.cluster.finish_deletions()

    @rule(node=NODES, change=st.sampled_from(["hang", "vanish", "boot"]))
    def change_a_machine(self, node: str, change: str) -> None:
        getattr(self.cluster, change)(node)

    @rule(
        replicas=st.integers(0, 6),
        max_replicas=st.sampled_from([6, 7, 0]),
        min_replicas=st.integers(1, 3),
    )
    def edit_the_spec(self, replicas: int, max_replicas: int, min_replicas: int) -> None:
        self.cluster.source["spec"]["minReplicas"] = min(min_replicas, max(replicas, 1))
        self.cluster.source["spec"]["maxReplicas"] = max_replicas  # 0 is an invalid bound
        self.cluster.scale(replicas)

    @rule()
    def edit_the_template(self) -> None:
        self.cluster.edit_template()

    def _change_pod(self, index: int, change: Callable[[str], None]) -> None:
        name = f"job-worker-{index}"
        if name in self.cluster.pods:
            change(name)

    @invariant()
    def conditions_of_a_finished_job_are_final(self) -> None:
        status = self.status()
        ends = [
            kind for kind in (ConditionType.SUCCEEDED, ConditionType.FAILED) if status.is_true(kind)
        ]
        assert len(ends) <= 1, "a job cannot both succeed and fail"
        if self.end_condition:
            assert ends == [self.end_condition], f"the job was already {self.end_condition}"
        elif ends and status.completion:
            self.end_condition, self.completion = ends[0], status.completion
            self.created_at_end = len(self.cluster.created_uids)
        if self.end_condition:
            assert len(self.cluster.created_uids) == self.created_at_end, (
                "no worker is created after the end"
            )
            assert not status.is_true(ConditionType.RUNNING)
            assert status.completion == self.completion, "the completion time must not change"

    @invariant()
    def counters_match_exits(self) -> None:
        condition = self.status().condition(ConditionType.FAILED)
        if condition and condition.is_true and condition.reason == "BackoffLimitExceeded":
            assert self.cluster.failures > self.limit, "a job fails only above its back-off limit"
            failures = [record.failures for record in self.status().workers.values()]
            assert max(failures) > self.limit, "a worker must have exceeded the back-off limit"

    @invariant()
    def no_exit_is_counted_twice(self) -> None:
        """Check that each restart is the exit of a different pod; a pod that lives has no exit unless it is recorded.

        The exit of a pod on a lost node is recorded until a pass finds the node again.
        """
        created = Counter(uid.partition("#")[0] for uid in self.cluster.created_uids)
        for index, record in self.status().workers.items():
            name = f"job-worker-{index}"
            pod = self.cluster.pods.get(name)
            lives = pod is not None and self._is_healthy(pod)
            is_recorded = pod is not None and record.ended and record.pod == pod["metadata"]["uid"]
            assert record.restarts <= created[name] - (lives and not is_recorded)

    def _is_healthy(self, pod: dict[str, Any]) -> bool:
        is_lost = "nodeName" in pod["spec"] and not self.cluster.has_live_node(pod)
        return pod["status"]["phase"] in ("Pending", "Running") and not is_lost

    def status(self) -> Status:
        return Status.from_json(self.cluster.source.get("status") or {})

    def teardown(self) -> None:
        """Check that without further faults all workers run, or the training has ended, or the job has failed."""
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.source["spec"]["maxReplicas"] = 6
        for node in ("n0", "n1", "n2"):
            cluster.boot(node)
        for _ in range(30):
            wake = self.reconcile()
            cluster.finish_deletions()
            for name in list(cluster.pods):
                cluster.schedule(name)
            cluster.now += timedelta(seconds=max(wake or 0, 1))
            self.conditions_of_a_finished_job_are_final()
            self.counters_match_exits()
            self.no_exit_is_counted_twice()
        writes_before = cluster.writes
        for _ in range(5):
            self.reconcile()
        assert cluster.writes == writes_before, "a pass over a stable job writes nothing"
        status = self.status()
        if self.end_condition or status.completion:
            return
        running = [pod for pod in cluster.pods.values() if pod["status"]["phase"] == "Running"]
        if status.training_ended:
            assert running, "without running workers it would have succeeded"
            return
        assert len(running) == len(cluster.pods) == cluster.replicas, (
            "exactly the desired workers run"
        )
        assert set(cluster.services) == set(cluster.pods), "each pod has its Service"
        bounds = f"{cluster.source['spec']['minReplicas']}:6"
        pod_bounds = {
            pod["metadata"]["annotations"][BOUNDS_ANNOTATION] for pod in cluster.pods.values()
        }
        assert pod_bounds <= {bounds}, "each pod has the current bounds"
        assert status.is_true(ConditionType.RUNNING) == (cluster.replicas > 0)
        assert status.is_true(ConditionType.SUSPENDED) == (cluster.replicas == 0)
        assert not status.is_true(ConditionType.RESTARTING)


TestSchedules = Schedule.TestCase
TestSchedules.settings = settings(
    max_examples=examples(50),
    stateful_step_count=40,
    deadline=None,
    derandomize=not SEARCHES,  # the same schedules every time
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_workers_that_are_killed_repeatedly_are_replaced_with_growing_delays() -> None:
    cluster = ModelCluster(1, backoffLimit=0)
    reconciler = Reconciler(cluster, Metrics(), now=lambda: cluster.now)
    end = cluster.now + timedelta(hours=1)
    passes = 0
    while cluster.now < end:
        wake = reconciler.reconcile(KEY)
        passes += 1
        cluster.finish_deletions()
        for name in list(cluster.pods):
            cluster.schedule(name)
            cluster.end(name, 137)
        cluster.now += timedelta(seconds=max(wake or 0, 1))

    assert 15 < len(cluster.created_uids) < 25, (
        "a machine that kills every worker must not overload the API server"
    )
    assert passes < 120
    assert not Status.from_json(cluster.source["status"]).is_true(ConditionType.FAILED)
