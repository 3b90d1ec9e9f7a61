"""On-demand workers: where pods run, and in which order spot and on-demand workers replace each other."""

from datetime import timedelta
from typing import Any

from controller.actions import Plan
from controller.api import ElasticJob
from controller.capacity import count_schedulable
from controller.objects import Node, Pod
from controller.placeholders import render_placeholder
from controller.pods import REQUIRED, render_pod
from controller.status import ConditionType
from controller.timestamps import format_time
from everstep.capacity.on_demand import FALLBACK_AFTER_SECONDS
from everstep.capacity.placement import State
from everstep.catalog.names import CAPACITY_LABEL, ON_DEMAND
from tests.controller.builders import NOW, decide, job, pod, spec
from tests.controller.test_placement import decide as place
from tests.controller.test_placement import searching, worker

PRICES = [{"capacity": "spot", "usdPerHour": 1}, {"capacity": "onDemand", "usdPerHour": 3}]
NOT_ON_DEMAND = {"key": CAPACITY_LABEL, "operator": "NotIn", "values": [ON_DEMAND]}


def limited(policy: str | None, status: dict[str, Any] | None = None, **fields: Any) -> ElasticJob:
    spending = {"pools": PRICES, **({"onDemand": policy} if policy else {})}
    return job({**spec(), "spending": spending}, status, **fields)


def manifest(elastic_job: ElasticJob, *, on_demand: bool = False) -> dict[str, Any]:
    assert elastic_job.spec is not None
    body: dict[str, Any] = render_pod(elastic_job, elastic_job.spec, 0, on_demand=on_demand)["spec"]
    return body


def spot(index: int) -> Pod:
    return pod(index, started=NOW - timedelta(hours=1))


def bought(index: int, phase: str = "Running") -> Pod:
    return pod(index, phase, on_demand=True, node=f"{ON_DEMAND}-{index}")


def deleted(plan: Plan) -> list[int]:
    return sorted(deletion.pod.index for deletion in plan.delete_pods)


def test_spot_workers_exclude_on_demand_nodes_and_on_demand_workers_select_them() -> None:
    limits = limited("fallback")
    assert limits.spec is not None
    affinity = manifest(limits)["affinity"]["nodeAffinity"][REQUIRED]
    placeholder = render_placeholder(limits, limits.spec, "us-east-1b", 0)["spec"]["affinity"]

    assert affinity == {"nodeSelectorTerms": [{"matchExpressions": [NOT_ON_DEMAND]}]}
    assert placeholder["nodeAffinity"][REQUIRED] == affinity
    assert manifest(limits, on_demand=True)["nodeSelector"] == {CAPACITY_LABEL: ON_DEMAND}
    assert "affinity" not in manifest(limited(None)), "the autoscaler decides"


def test_an_on_demand_node_has_no_capacity_for_a_spot_worker() -> None:
    body = {"spec": manifest(limited("fallback"))}
    free = {"pods": "10"}
    nodes = [
        Node(name="spot", allocatable=free),
        Node(name="bought", labels={CAPACITY_LABEL: ON_DEMAND}, allocatable=free),
    ]

    assert count_schedulable(body, nodes, []) == 10
    assert count_schedulable({"spec": manifest(limited(None))}, nodes, []) == 20


def test_spot_workers_that_train_stay_until_the_on_demand_workers_run() -> None:
    always, running = limited("always"), [spot(0), spot(1), spot(2)]
    waiting = pod(3, "Pending", node=None, started=None)

    first = decide(always, *running, waiting)
    assert first.create_pods == (4, 5, 6)
    assert first.create_on_demand == {4, 5, 6}
    assert deleted(first) == [3], "only a spot worker that waits for a machine leaves immediately"
    starting = [bought(4), bought(5), bought(6, "Pending")]
    assert deleted(decide(always, *running, *starting)) == []
    assert deleted(decide(always, *running, bought(4), bought(5), bought(6))) == [0, 1, 2]


def test_a_job_without_spot_machines_is_not_suspended_while_workers_are_on_demand() -> None:
    starved = format_time(NOW - timedelta(seconds=FALLBACK_AFTER_SECONDS))
    status = {
        "scaling": {"desired": 0, "since": format_time(NOW), "replicas": 3},
        "spending": {"countedAt": format_time(NOW), "usd": 0.0, "starvedSince": starved},
    }
    plan = decide(limited("fallback", status, scaling="capacity"))

    assert plan.create_on_demand == {0}
    assert not plan.status.is_true(ConditionType.SUSPENDED)
    unlimited = decide(limited("never", status, scaling="capacity"))
    assert unlimited.create_pods == ()
    assert unlimited.status.is_true(ConditionType.SUSPENDED)


def test_on_demand_workers_do_not_end_the_search_for_spot_machines() -> None:
    group = [worker(index, on_demand=True) for index in range(4)]

    assert place(group, searching()).state.state is State.SEARCHING
