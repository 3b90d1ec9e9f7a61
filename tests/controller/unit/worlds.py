"""Short ways to write down what a pass sees."""

from datetime import UTC, datetime, timedelta

from controller.api import ElasticJob, read_job
from controller.observed import Node, Pod
from controller.plan import plan
from controller.scaling import Scaling
from controller.situation import Plan, look

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEMPLATE = {
    "spec": {"containers": [{"name": "elasticjob-worker", "image": "x", "args": ["train.py"]}]}
}


def spec(
    replicas: object = 3,
    *,
    least: object = 1,
    most: object = 5,
    policy: object = "ExitCode",
    **run_policy,
) -> dict:
    worker = {"replicas": replicas, "restartPolicy": policy, "template": TEMPLATE}
    bounds = {
        key: value
        for key, value in (("minReplicas", least), ("maxReplicas", most))
        if value is not None
    }
    return {
        "rdzvEndpoint": "etcd:2379",
        "replicaSpecs": {"Worker": worker},
        "RunPolicy": run_policy,
        **bounds,
    }


def job(
    asked: dict | None = None,
    status: dict | None = None,
    *,
    name: str = "job",
    generation: int = 1,
    scaling: str | None = None,
) -> ElasticJob:
    metadata = {"name": name, "namespace": "ns", "uid": "u", "generation": generation}
    if scaling:
        metadata["annotations"] = {"everstep.dev/scaling": scaling}
    return read_job({"metadata": metadata, "spec": asked or spec(), "status": status or {}})


def pod(index: int, phase: str = "Running", **more) -> Pod:
    known = {
        "name": f"job-worker-{index}",
        "uid": f"uid-{index}",
        "created": NOW,
        "node": "n0",
        "started": NOW,
        "bounds": "1:5",
    }
    return Pod(**{**known, "index": index, "phase": phase, **more})


def failed(index: int, code: int | None = 1, *, ran: float = 1, **more) -> Pod:
    started = NOW - timedelta(seconds=ran)
    return pod(index, "Failed", exit_code=code, started=started, finished=NOW, **more)


def decide(
    asked: ElasticJob,
    *pods: Pod,
    nodes: dict | None = None,
    after: float = 0,
    trouble: str = "",
    room: int = 0,
) -> Plan:
    """Make one pass so many seconds after NOW; all nodes are well where none are named.

    `room`: for how many more workers, where the job follows capacity.
    """
    machines = (
        {known.node: Node(name=known.node) for known in pods if known.node}
        if nodes is None
        else nodes
    )
    services = frozenset(f"job-worker-{known.index}" for known in pods)
    moment = NOW + timedelta(seconds=after)
    more = room if asked.scaling is Scaling.CAPACITY else None
    return plan(look(asked, pods, services, machines, moment, trouble, more))


def then(asked: ElasticJob, before: Plan) -> ElasticJob:
    """Return the job as it is read back after a pass: through the JSON of its status."""
    assert asked.spec is not None
    return job(
        dict(asked.spec.source),
        before.status.write(),
        generation=asked.generation,
        scaling=asked.scaling,
    )
