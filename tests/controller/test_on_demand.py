"""On-demand workers: the nodes that pods select, and the order in which workers of both kinds replace each other."""

from datetime import timedelta
from typing import Any

import pytest

from controller.api import DEFAULT_GRACE_SECONDS, ElasticJob
from controller.capacity import count_schedulable
from controller.objects import Node, Pod
from controller.placeholders import render_placeholder
from controller.pods import PREFERRED, REQUIRED, render_pod
from controller.status import ConditionType
from controller.timestamps import format_time
from everstep.capacity.on_demand import FALLBACK_AFTER_SECONDS
from everstep.catalog.names import CAPACITY_LABEL, ON_DEMAND
from tests.controller.builders import NOW, TEMPLATE, decide, deleted_indices, job, pod, spec

PRICES = [{"capacity": "spot", "usdPerHour": 1}, {"capacity": "onDemand", "usdPerHour": 3}]
NOT_ON_DEMAND = {"key": CAPACITY_LABEL, "operator": "NotIn", "values": [ON_DEMAND]}


def job_with_policy(
    policy: str | None, status: dict[str, Any] | None = None, **fields: Any
) -> ElasticJob:
    spending = {"pools": PRICES, **({"onDemand": policy} if policy else {})}
    return job({**spec(), "spending": spending}, status, **fields)


def pod_spec_of(elastic_job: ElasticJob, *, on_demand: bool = False) -> dict[str, Any]:
    assert elastic_job.spec is not None
    pod_spec: dict[str, Any] = render_pod(elastic_job, elastic_job.spec, 0, on_demand=on_demand)[
        "spec"
    ]
    return pod_spec


def spot_worker(index: int) -> Pod:
    return pod(index, started=NOW - timedelta(hours=1))


def on_demand_worker(index: int, phase: str = "Running") -> Pod:
    return pod(index, phase, on_demand=True, node=f"{ON_DEMAND}-{index}")


def test_spot_workers_exclude_on_demand_nodes_and_on_demand_workers_select_them() -> None:
    elastic_job = job_with_policy("fallback")
    assert elastic_job.spec is not None
    affinity = pod_spec_of(elastic_job)["affinity"]["nodeAffinity"][REQUIRED]
    placeholder = render_placeholder(elastic_job, elastic_job.spec, "us-east-1b", 0)["spec"][
        "affinity"
    ]

    assert affinity == {"nodeSelectorTerms": [{"matchExpressions": [NOT_ON_DEMAND]}]}
    assert placeholder["nodeAffinity"][REQUIRED] == affinity
    assert pod_spec_of(elastic_job, on_demand=True)["nodeSelector"] == {CAPACITY_LABEL: ON_DEMAND}
    assert "affinity" not in pod_spec_of(job_with_policy(None)), (
        "without a policy, the autoscaler chooses the kind of node"
    )


@pytest.mark.parametrize(
    "affinity",
    [None, {"nodeAffinity": None}, {"nodeAffinity": {REQUIRED: None, PREFERRED: None}}],
)
def test_null_fields_of_the_template_count_as_missing(affinity: dict[str, Any] | None) -> None:
    """The API server keeps them, since the schema of ElasticJobs does not describe pods."""
    pod_spec = {**TEMPLATE["spec"], "affinity": affinity, "terminationGracePeriodSeconds": None}
    job_spec = {**spec(), "spending": {"pools": PRICES, "onDemand": "fallback"}}
    job_spec["replicaSpecs"]["Worker"]["template"] = {"spec": pod_spec}
    failed = {"index": 0, "pod": "uid-0", "ended": True, "failures": 7, "failedOn": "n0"}

    elastic_job = job(job_spec, {"workers": [failed]})

    node_affinity = pod_spec_of(elastic_job)["affinity"]["nodeAffinity"]
    assert node_affinity[REQUIRED] == {"nodeSelectorTerms": [{"matchExpressions": [NOT_ON_DEMAND]}]}
    (term,) = node_affinity[PREFERRED]
    assert term["preference"]["matchFields"][0]["values"] == ["n0"]
    assert elastic_job.spec is not None
    assert elastic_job.spec.grace_seconds == DEFAULT_GRACE_SECONDS


def test_an_on_demand_node_has_no_capacity_for_a_spot_worker() -> None:
    spot_pod = {"spec": pod_spec_of(job_with_policy("fallback"))}
    allocatable = {"pods": "10"}
    nodes = [
        Node(name="spot", allocatable=allocatable),
        Node(name="on-demand", labels={CAPACITY_LABEL: ON_DEMAND}, allocatable=allocatable),
    ]

    assert count_schedulable(spot_pod, nodes, []) == 10
    assert count_schedulable({"spec": pod_spec_of(job_with_policy(None))}, nodes, []) == 20


def test_spot_workers_that_train_stay_until_the_on_demand_workers_run() -> None:
    elastic_job = job_with_policy("always")
    running_pods = [spot_worker(0), spot_worker(1), spot_worker(2)]
    waiting_pod = pod(3, "Pending", node=None, started=None)

    first_plan = decide(elastic_job, *running_pods, waiting_pod)
    assert first_plan.create_pods == (4, 5, 6)
    assert first_plan.create_on_demand == {4, 5, 6}
    assert deleted_indices(first_plan) == [3], (
        "only a spot worker that waits for a machine leaves immediately"
    )
    starting_pods = [on_demand_worker(4), on_demand_worker(5), on_demand_worker(6, "Pending")]
    assert deleted_indices(decide(elastic_job, *running_pods, *starting_pods)) == []
    assert deleted_indices(
        decide(
            elastic_job,
            *running_pods,
            on_demand_worker(4),
            on_demand_worker(5),
            on_demand_worker(6),
        )
    ) == [0, 1, 2]


def test_workers_are_created_on_demand_while_the_back_off_of_another_worker_lasts() -> None:
    not_before = format_time(NOW + timedelta(seconds=60))
    record = {"index": 1, "pod": "uid-1", "ended": True, "restarts": 3, "notBefore": not_before}

    plan = decide(job_with_policy("always", {"workers": [record]}))

    assert plan.create_pods == (0, 2), "index 1 waits after its failure"
    assert plan.create_on_demand == {0, 2}


def test_a_job_without_spot_machines_is_not_suspended_while_workers_are_on_demand() -> None:
    starved_since = format_time(NOW - timedelta(seconds=FALLBACK_AFTER_SECONDS))
    status = {
        "scaling": {"desired": 0, "since": format_time(NOW), "replicas": 3},
        "spending": {"countedAt": format_time(NOW), "usd": 0.0, "starvedSince": starved_since},
    }
    plan = decide(job_with_policy("fallback", status, scaling="capacity"))

    assert plan.create_on_demand == {0}
    assert not plan.status.is_true(ConditionType.SUSPENDED)
    plan_without_on_demand = decide(job_with_policy("never", status, scaling="capacity"))
    assert plan_without_on_demand.create_pods == ()
    assert plan_without_on_demand.status.is_true(ConditionType.SUSPENDED)
