"""Whatever the spot market does, a deadline that on-demand machines can meet is met, and a budget is kept."""

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

WANTED = 3
HOUR, BLOCK_SECONDS = 3600, 900
LABELS = {"namespace": "ns", "elasticjob": "job"}
MARKETS = st.lists(st.integers(0, WANTED), min_size=1, max_size=8)
FEW = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,  # the same markets every time; raise max_examples to look for new ones
    database=None,
    suppress_health_check=list(HealthCheck),
)


def controller(cluster: LimitedCluster, metrics: Metrics | None = None) -> Reconciler:
    return Reconciler(
        cluster,
        metrics or Metrics(),
        now=lambda: cluster.now,
        progress=ProgressReader(cluster.scrape),
    )


def follow(
    cluster: LimitedCluster, market: Sequence[int], hours: float, *, metrics: Metrics | None = None
) -> None:
    """Run a controller and its machines until the work is done, or for some hours.

    A new controller takes over in each block of the market.
    """
    blocks = islice(cycle(market), round(hours * HOUR / BLOCK_SECONDS))
    for machines in blocks:
        cluster.set_spot_machines(machines)
        reconciler = controller(cluster, metrics)
        for _ in range(round(BLOCK_SECONDS / PASS_SECONDS)):
            reconciler.reconcile(KEY)
            cluster.advance(PASS_SECONDS)
            if cluster.done >= cluster.work:
                return


def spending(cluster: LimitedCluster) -> dict[str, Any]:
    status: dict[str, Any] = cluster.source["status"]["spending"]
    return status


def reasons(cluster: LimitedCluster) -> list[str]:
    return [event.reason for event in cluster.events]


@FEW
@given(market=MARKETS)
def test_a_deadline_that_on_demand_machines_can_meet_is_met(market: list[int]) -> None:
    work = WANTED * 2 * HOUR
    cluster = LimitedCluster(WANTED, work, deadlineSeconds=4 * HOUR, onDemand="fallback")

    follow(cluster, market, 4)

    assert cluster.done >= work, f"{cluster.done / work:.2f} of the work is done at the deadline"


@FEW
@given(
    market=MARKETS,
    budget=st.floats(0.5, 12),
    policy=st.sampled_from(["never", "fallback", "always"]),
)
def test_a_budget_is_exceeded_by_one_interval_of_the_group_at_most(
    market: list[int], budget: float, policy: str
) -> None:
    cluster = LimitedCluster(
        WANTED, 100 * HOUR, budgetUsd=budget, deadlineSeconds=4 * HOUR, onDemand=policy
    )

    follow(cluster, market, 3)

    interval = PASS_SECONDS / HOUR * WANTED * (SPOT_USD + ON_DEMAND_USD)
    assert cluster.usd <= budget + interval
    counted = spending(cluster)["usd"]
    assert abs(counted - cluster.usd) <= 2 * interval, (
        "the controller counts what the machines cost"
    )


def test_a_job_with_enough_spot_machines_buys_none() -> None:
    cluster = LimitedCluster(WANTED, WANTED * HOUR, deadlineSeconds=3 * HOUR, onDemand="fallback")

    follow(cluster, [WANTED], 3)

    assert cluster.done >= cluster.work
    assert "onDemandSeconds" not in spending(cluster)


def test_bought_machines_are_released_one_by_one_when_spot_machines_return() -> None:
    cluster, metrics = (
        LimitedCluster(WANTED, WANTED * 3 * HOUR, deadlineSeconds=4 * HOUR, onDemand="fallback"),
        Metrics(),
    )
    follow(cluster, [WANTED], 0.5, metrics=metrics)
    follow(cluster, [0], 1.5, metrics=metrics)
    assert len(cluster.on_demand_pods()) == WANTED
    gauge = metrics.registry.get_sample_value("elasticjob_on_demand_workers", LABELS)
    assert gauge == WANTED

    follow(cluster, [WANTED], 0.5, metrics=metrics)

    assert len(cluster.on_demand_pods()) < WANTED
    bought = reasons(cluster).index("OnDemandBought")
    assert "OnDemandReleased" in reasons(cluster)[bought:]


def test_a_budget_that_is_used_up_suspends_the_job_and_a_higher_one_resumes_it() -> None:
    cluster, metrics = LimitedCluster(WANTED, 100 * HOUR, budgetUsd=1.0), Metrics()
    follow(cluster, [WANTED], 1, metrics=metrics)

    conditions = {
        condition["type"]: condition for condition in cluster.source["status"]["conditions"]
    }
    assert conditions["Suspended"]["status"] == "True"
    assert conditions["Suspended"]["reason"] == "BudgetUsedUp"
    assert "raise job.budgetUsd" in conditions["Suspended"]["message"]
    assert cluster.pods == {}
    (event,) = (event for event in cluster.events if event.reason == "BudgetUsedUp")
    assert event.warning
    spent = metrics.registry.get_sample_value("elasticjob_spent_usd", LABELS)
    assert spent == spending(cluster)["usd"] <= 1.0
    assert metrics.registry.get_sample_value("elasticjob_budget_usd", LABELS) == 1.0
    before = cluster.writes
    follow(cluster, [WANTED], 0.25)
    assert cluster.writes - before <= BLOCK_SECONDS / PASS_SECONDS, (
        "a suspended job is hardly written"
    )

    cluster.source["spec"]["spending"]["budgetUsd"] = 10.0
    follow(cluster, [WANTED], 0.5)

    assert len(cluster.training()) == WANTED


def test_a_pass_without_a_change_writes_nothing() -> None:
    cluster = LimitedCluster(WANTED, 100 * HOUR, budgetUsd=100.0, onDemand="never")
    follow(cluster, [WANTED], 0.5)
    reconciler = controller(cluster)
    reconciler.reconcile(KEY)
    before = cluster.writes

    for _ in range(3):
        cluster.now += timedelta(seconds=PASS_SECONDS / 4)
        reconciler.reconcile(KEY)

    assert cluster.writes == before


def test_a_missed_deadline_is_an_event() -> None:
    cluster = LimitedCluster(WANTED, 100 * HOUR, deadlineSeconds=HOUR // 2, onDemand="never")

    follow(cluster, [1], 1)

    assert reasons(cluster).count("DeadlineMissed") == 1


def test_all_workers_are_on_demand_if_the_owner_wants_so() -> None:
    cluster = LimitedCluster(WANTED, 100 * HOUR, onDemand="always")

    follow(cluster, [WANTED], 0.5)

    assert len(cluster.training()) == WANTED
    assert len(cluster.on_demand_pods()) == len(cluster.pods) == WANTED
