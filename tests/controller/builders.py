"""Builders of specs, jobs and pods for the tests of the controller."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from controller.actions import Plan
from controller.api import ElasticJob, read_job
from controller.objects import Node, Pod
from controller.observed_state import observe
from controller.plan import plan
from controller.scaling import Scaling

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEMPLATE = {
    "spec": {"containers": [{"name": "elasticjob-worker", "image": "x", "args": ["train.py"]}]}
}


def spec(
    replicas: object = 3,
    *,
    min_replicas: object = 1,
    max_replicas: object = 5,
    policy: object = "ExitCode",
    **run_policy: Any,
) -> dict[str, Any]:
    worker = {"replicas": replicas, "restartPolicy": policy, "template": TEMPLATE}
    bounds = {
        key: value
        for key, value in (("minReplicas", min_replicas), ("maxReplicas", max_replicas))
        if value is not None
    }
    return {
        "rdzvEndpoint": "etcd:2379",
        "replicaSpecs": {"Worker": worker},
        "RunPolicy": run_policy,
        **bounds,
    }


def job(
    body: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    *,
    name: str = "job",
    generation: int = 1,
    scaling: str | None = None,
    zones: Sequence[str] = (),
) -> ElasticJob:
    annotations = {"everstep.dev/scaling": scaling} if scaling else {}
    if zones:
        annotations["everstep.dev/placement"] = json.dumps({"zones": list(zones)})
    metadata = {
        "name": name, "namespace": "ns", "uid": "u", "generation": generation,
        "annotations": annotations,
    }  # fmt: skip
    return read_job({"metadata": metadata, "spec": body or spec(), "status": status or {}})


def pod(index: int, phase: str = "Running", **fields: Any) -> Pod:
    defaults = {
        "name": f"job-worker-{index}",
        "uid": f"uid-{index}",
        "created": NOW,
        "node": "n0",
        "started": NOW,
        "bounds": "1:5",
    }
    return Pod(**{**defaults, "index": index, "phase": phase, **fields})


def failed_pod(index: int, code: int | None = 1, *, run_seconds: float = 1, **fields: Any) -> Pod:
    started = NOW - timedelta(seconds=run_seconds)
    return pod(index, "Failed", exit_code=code, started=started, finished=NOW, **fields)


def decide(
    elastic_job: ElasticJob,
    *pods: Pod,
    nodes: dict[str, Any] | None = None,
    after: float = 0,
    error: str = "",
    schedulable: int = 0,
) -> Plan:
    """Return the plan of one pass, with healthy nodes by default.

    Args:
        elastic_job: the job.
        pods: its existing pods, each of which has its Service.
        nodes: nodes by name; by default the nodes of the pods, all healthy.
        after: seconds from NOW to the pass.
        error: error of the API server in the pass.
        schedulable: number of further workers that the nodes could take; ignored unless the job follows capacity.
    """
    machines = (
        {existing.node: Node(name=existing.node) for existing in pods if existing.node}
        if nodes is None
        else nodes
    )
    services = frozenset(f"job-worker-{existing.index}" for existing in pods)
    moment = NOW + timedelta(seconds=after)
    free = schedulable if elastic_job.scaling is Scaling.CAPACITY else None
    return plan(observe(elastic_job, pods, services, machines, moment, error, free))


def deleted_indices(actions: Plan) -> list[int]:
    """Return the indices of the workers that a pass deletes, in ascending order."""
    return sorted(deletion.pod.index for deletion in actions.delete_pods)


def job_after_pass(elastic_job: ElasticJob, previous: Plan) -> ElasticJob:
    """Return the job as it is read back after a pass: through the JSON of its status."""
    assert elastic_job.spec is not None
    return job(
        dict(elastic_job.spec.source),
        previous.status.to_json(),
        generation=elastic_job.generation,
        scaling=elastic_job.scaling,
        zones=elastic_job.placement.zones if elastic_job.placement else (),
    )
