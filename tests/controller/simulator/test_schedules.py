"""Whatever happens to a job's pods, machines and controller, what must hold holds, and in the end all is well."""

from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controller.cluster import Refused
from controller.metrics import Metrics
from controller.observed import BOUNDS_ANNOTATION
from controller.reconcile import Reconciler, TryAgain
from controller.status import ConditionType, Status
from tests.controller.simulator.model import KEY, Crash, ModelCluster

INDICES = st.integers(0, 3)
NODES = st.sampled_from(["n0", "n1", "n2"])
CODES = st.sampled_from([1, 2, 130, 137, 138, 143])


class Schedule(RuleBasedStateMachine):
    """One job, one controller that may die at any write, and a world that does as it likes."""

    @initialize(replicas=st.integers(1, 4), limit=st.integers(0, 4))
    def begin(self, replicas: int, limit: int) -> None:
        self.cluster = ModelCluster(replicas, backoffLimit=limit)
        self.limit = limit
        self.metrics = Metrics()
        self.restart()
        self.ended: str | None = None
        for _ in range(2):
            self.reconcile()
            self.pods_start()

    def restart(self) -> None:
        self.reconciler = Reconciler(self.cluster, self.metrics, now=lambda: self.cluster.now)

    def reconcile(self) -> float | None:
        try:
            return self.reconciler.reconcile(KEY)
        except (TryAgain, Refused):
            return 0.2
        except Crash:
            self.restart()
            return 0.0

    @rule()
    def one_pass(self) -> None:
        self.reconcile()

    @rule(writes=st.integers(0, 4))
    def die_in_the_next_pass(self, writes: int) -> None:
        self.cluster.crash_in = writes
        self.reconcile()
        self.cluster.crash_in = None

    @rule(seconds=st.sampled_from([1, 5, 60, 400]))
    def time_passes(self, seconds: int) -> None:
        self.cluster.now += timedelta(seconds=seconds)

    @rule()
    def pods_start(self) -> None:
        for name in list(self.cluster.pods):
            self.cluster.place(name)

    @rule()
    def some_time_of_peace(self) -> None:
        for _ in range(3):
            wake = self.reconcile()
            self.cluster.let_go()
            self.pods_start()
            self.cluster.now += timedelta(seconds=min(wake or 1, 10))

    @rule(index=INDICES, code=CODES)
    def a_worker_ends(self, index: int, code: int) -> None:
        self._pod(index, lambda name: self.cluster.end(name, code))

    @rule(index=INDICES)
    def a_worker_finishes(self, index: int) -> None:
        self._pod(index, lambda name: self.cluster.end(name, 0))

    @rule(index=INDICES, force=st.booleans())
    def somebody_deletes_a_pod(self, index: int, force: bool) -> None:
        if force:
            self.cluster.pods.pop(f"job-worker-{index}", None)
        else:
            self._pod(index, self.cluster.ask_to_go)

    @rule()
    def kubelets_let_go(self) -> None:
        self.cluster.let_go()

    @rule(node=NODES, fate=st.sampled_from(["hang", "vanish", "bring"]))
    def a_machine_changes(self, node: str, fate: str) -> None:
        getattr(self.cluster, fate)(node)

    @rule(replicas=st.integers(0, 6), most=st.sampled_from([6, 7, 0]), least=st.integers(1, 3))
    def somebody_edits_the_spec(self, replicas: int, most: int, least: int) -> None:
        self.cluster.source["spec"]["minReplicas"] = min(least, max(replicas, 1))
        self.cluster.source["spec"]["maxReplicas"] = most  # 0 is no valid bound
        self.cluster.scale(replicas)

    def _pod(self, index: int, act) -> None:
        name = f"job-worker-{index}"
        if name in self.cluster.pods:
            act(name)

    @invariant()
    def an_end_is_final(self) -> None:
        if not hasattr(self, "cluster"):
            return
        status = self.status()
        over = [
            kind for kind in (ConditionType.SUCCEEDED, ConditionType.FAILED) if status.holds(kind)
        ]
        assert len(over) <= 1, "a job succeeds or fails"
        if self.ended:
            assert over == [self.ended], f"it was {self.ended} already"
        elif over and status.completion:
            self.ended, self.completion = over[0], status.completion
            self.made_at_end = len(self.cluster.created)
        if self.ended:
            assert len(self.cluster.created) == self.made_at_end, "no worker after the end"
            assert not status.holds(ConditionType.RUNNING)
            assert status.completion == self.completion, "it ended when it ended"

    @invariant()
    def what_is_counted_has_happened(self) -> None:
        if not hasattr(self, "cluster"):
            return
        failed = self.status().condition(ConditionType.FAILED)
        if failed and failed.holds and failed.reason == "BackoffLimitExceeded":
            assert self.cluster.failures > self.limit, "only that many real failures fail a job"
        restarts = sum(record.restarts for record in self.status().workers.values())
        well = [pod for pod in self.cluster.pods.values() if self._well(pod)]
        assert restarts <= len(self.cluster.created) - len(well), "no end is counted twice"

    def _well(self, pod) -> bool:
        lost = "nodeName" in pod["spec"] and not self.cluster.served(pod)
        return pod["status"]["phase"] in ("Pending", "Running") and not lost

    def status(self) -> Status:
        return Status.read(self.cluster.source.get("status") or {})

    def teardown(self) -> None:
        """From now on all goes well: the job must come to rest, with all its workers or at its end."""
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.source["spec"]["maxReplicas"] = 6
        for node in ("n0", "n1", "n2"):
            cluster.bring(node)
        for _ in range(30):
            wake = self.reconcile()
            cluster.let_go()
            for name in list(cluster.pods):
                cluster.place(name)
            cluster.now += timedelta(seconds=max(wake or 0, 1))
            self.an_end_is_final()
            self.what_is_counted_has_happened()
        before = cluster.writes
        for _ in range(5):
            self.reconcile()
        assert cluster.writes == before, "a job at rest is left alone"
        status = self.status()
        if self.ended or status.completion:
            return
        running = [pod for pod in cluster.pods.values() if pod["status"]["phase"] == "Running"]
        if status.training_ended:
            assert running, "with nobody left to wait for it would have succeeded"
            return
        assert len(running) == len(cluster.pods) == cluster.replicas, (
            "every worker runs, and no other"
        )
        assert set(cluster.services) == set(cluster.pods), "each has its name"
        bounds = f"{cluster.source['spec']['minReplicas']}:6"
        told = {pod["metadata"]["annotations"][BOUNDS_ANNOTATION] for pod in cluster.pods.values()}
        assert told <= {bounds}, "each knows the bounds as they are now"
        assert status.holds(ConditionType.RUNNING) == (cluster.replicas > 0)
        assert status.holds(ConditionType.SUSPENDED) == (cluster.replicas == 0)
        assert not status.holds(ConditionType.RESTARTING)


TestSchedules = Schedule.TestCase
TestSchedules.settings = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,  # the same schedules every time; raise max_examples to look for new ones
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_workers_that_die_at_once_again_and_again_are_replaced_ever_more_slowly():
    cluster = ModelCluster(1, backoffLimit=0)
    reconciler = Reconciler(cluster, Metrics(), now=lambda: cluster.now)
    hour = cluster.now + timedelta(hours=1)
    passes = 0
    while cluster.now < hour:
        wake = reconciler.reconcile(KEY)
        passes += 1
        cluster.let_go()
        for name in list(cluster.pods):
            cluster.place(name)
            cluster.end(name, 137)
        cluster.now += timedelta(seconds=max(wake or 0, 1))

    assert len(cluster.created) < 25, (
        "a machine that kills every worker must not cost an API server its peace"
    )
    assert passes < 120
    assert not Status.read(cluster.source["status"]).holds(ConditionType.FAILED)
