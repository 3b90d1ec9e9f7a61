"""In any spot market, a feasible deadline is met, and a budget is exceeded by the price of one interval at most."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import cycle, islice
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.metrics import Metrics
from controller.progress import ProgressReader
from controller.reconcile import Reconciler
from controller.spending import PASS_SECONDS
from tests.controller.simulator.limits import (
    ON_DEMAND_USD,
    SPOT_USD,
    LimitedCluster,
)
from tests.controller.simulator.model import KEY
from tests.effort import SEARCHES, examples

WORKERS = 3
HOUR, BLOCK_SECONDS = 3600, 900
LABELS = {"namespace": "ns", "elasticjob": "job"}
MARKETS = st.lists(st.integers(0, WORKERS), min_size=1, max_size=8)
FEW_EXAMPLES = settings(
    max_examples=examples(8),
    deadline=None,
    derandomize=not SEARCHES,  # the same markets every time
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def controller(cluster: LimitedCluster, metrics: Metrics | None = None) -> Reconciler:
    return Reconciler(
        cluster,
        metrics or Metrics(),
        now=lambda: cluster.now,
        progress=ProgressReader(cluster.scrape),
    )


def simulate(
    cluster: LimitedCluster, market: Sequence[int], hours: float, *, metrics: Metrics | None = None
) -> None:
    """Run a controller and its machines until the work is done, or for some hours.

    The market has the number of spot machines for each block of `BLOCK_SECONDS`, and repeats. A new controller takes
    over in each block.
    """
    blocks = islice(cycle(market), round(hours * HOUR / BLOCK_SECONDS))
    for machines in blocks:
        cluster.set_spot_machines(machines)
        reconciler = controller(cluster, metrics)
        for _ in range(round(BLOCK_SECONDS / PASS_SECONDS)):
            reconciler.reconcile(KEY)
            cluster.advance(PASS_SECONDS)
            if cluster.completed_work >= cluster.work:
                return


def spending(cluster: LimitedCluster) -> dict[str, Any]:
    status: dict[str, Any] = cluster.source["status"]["spending"]
    return status


def reasons(cluster: LimitedCluster) -> list[str]:
    return [event.reason for event in cluster.events]


@FEW_EXAMPLES
@given(market=MARKETS)
def test_a_deadline_that_on_demand_machines_can_meet_is_met(market: list[int]) -> None:
    work = WORKERS * 2 * HOUR
    cluster = LimitedCluster(WORKERS, work, deadlineSeconds=4 * HOUR, onDemand="fallback")

    simulate(cluster, market, 4)

    assert cluster.completed_work >= work, (
        f"{cluster.completed_work / work:.2f} of the work is done at the deadline"
    )


@FEW_EXAMPLES
@given(
    market=MARKETS,
    budget=st.floats(0.5, 12),
    policy=st.sampled_from(["never", "fallback", "always"]),
)
def test_a_budget_is_exceeded_by_at_most_the_price_of_one_interval(
    market: list[int], budget: float, policy: str
) -> None:
    cluster = LimitedCluster(
        WORKERS, 100 * HOUR, budgetUsd=budget, deadlineSeconds=4 * HOUR, onDemand=policy
    )

    simulate(cluster, market, 3)

    interval = PASS_SECONDS / HOUR * WORKERS * (SPOT_USD + ON_DEMAND_USD)
    assert cluster.usd <= budget + interval
    counted_usd = spending(cluster)["usd"]
    assert abs(counted_usd - cluster.usd) <= 2 * interval, (
        "the controller counts the price of the machines"
    )


def test_a_job_with_enough_spot_machines_buys_no_on_demand_machine() -> None:
    cluster = LimitedCluster(WORKERS, WORKERS * HOUR, deadlineSeconds=3 * HOUR, onDemand="fallback")

    simulate(cluster, [WORKERS], 3)

    assert cluster.completed_work >= cluster.work
    assert "onDemandSeconds" not in spending(cluster)


def test_bought_machines_are_released_when_spot_machines_return() -> None:
    metrics = Metrics()
    cluster = LimitedCluster(
        WORKERS, WORKERS * 3 * HOUR, deadlineSeconds=4 * HOUR, onDemand="fallback"
    )
    simulate(cluster, [WORKERS], 0.5, metrics=metrics)
    simulate(cluster, [0], 1.5, metrics=metrics)
    assert len(cluster.on_demand_pods()) == WORKERS
    gauge = metrics.registry.get_sample_value("elasticjob_on_demand_workers", LABELS)
    assert gauge == WORKERS

    simulate(cluster, [WORKERS], 0.5, metrics=metrics)

    assert cluster.on_demand_pods() == []
    assert len(cluster.training()) == WORKERS
    purchase_index = reasons(cluster).index("OnDemandBought")
    assert "OnDemandReleased" in reasons(cluster)[purchase_index:]


def test_a_budget_that_is_used_up_suspends_the_job_and_a_higher_one_resumes_it() -> None:
    cluster, metrics = LimitedCluster(WORKERS, 100 * HOUR, budgetUsd=1.0), Metrics()
    simulate(cluster, [WORKERS], 1, metrics=metrics)

    condition = cluster.conditions["Suspended"]
    assert (condition["status"], condition["reason"]) == ("True", "BudgetUsedUp")
    assert "raise job.budgetUsd" in condition["message"]
    assert cluster.pods == {}
    (event,) = (event for event in cluster.events if event.reason == "BudgetUsedUp")
    assert event.warning
    spent_usd = metrics.registry.get_sample_value("elasticjob_spent_usd", LABELS)
    assert spent_usd == spending(cluster)["usd"] <= 1.0
    assert metrics.registry.get_sample_value("elasticjob_budget_usd", LABELS) == 1.0
    for name in ("elasticjob_min_replicas", "elasticjob_replicas", "elasticjob_desired_workers"):
        assert metrics.registry.get_sample_value(name, LABELS) == 0, (
            "an alert would report that the job waits for nodes"
        )
    writes_before = cluster.writes
    simulate(cluster, [WORKERS], 0.25)
    assert cluster.writes - writes_before <= BLOCK_SECONDS / PASS_SECONDS, (
        "the status of a suspended job is written at most once per pass"
    )

    cluster.source["spec"]["spending"]["budgetUsd"] = 10.0
    simulate(cluster, [WORKERS], 0.5, metrics=metrics)

    assert len(cluster.training()) == WORKERS
    assert metrics.registry.get_sample_value("elasticjob_replicas", LABELS) == WORKERS


def test_a_pass_without_a_change_writes_nothing() -> None:
    cluster = LimitedCluster(WORKERS, 100 * HOUR, budgetUsd=100.0, onDemand="never")
    simulate(cluster, [WORKERS], 0.5)
    reconciler = controller(cluster)
    reconciler.reconcile(KEY)
    writes_before = cluster.writes

    for _ in range(3):
        cluster.now += timedelta(seconds=PASS_SECONDS / 4)
        reconciler.reconcile(KEY)

    assert cluster.writes == writes_before


def test_a_missed_deadline_is_an_event() -> None:
    cluster = LimitedCluster(WORKERS, 100 * HOUR, deadlineSeconds=HOUR // 2, onDemand="never")

    simulate(cluster, [1], 1)

    assert reasons(cluster).count("DeadlineMissed") == 1


def test_all_workers_are_on_demand_if_the_job_always_uses_on_demand_machines() -> None:
    cluster = LimitedCluster(WORKERS, 100 * HOUR, onDemand="always")

    simulate(cluster, [WORKERS], 0.5)

    assert len(cluster.training()) == WORKERS
    assert len(cluster.on_demand_pods()) == len(cluster.pods) == WORKERS
