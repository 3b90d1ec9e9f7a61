"""Rules about pools of nodes that hold on any cloud, and about what a job needs of them."""

from collections.abc import Mapping

from components.config.defaults import NOTICE_SECONDS
from components.faults import Fault
from components.rules import Flag, Rule


def counts(pool: str, *, least: int, nodes: int, most: int) -> list[Fault]:
    """Check that a pool's numbers are in order and that it may hold a node."""
    faults = []
    if most < 1:
        faults.append(Fault(f"{pool}.maxNodes", most, "allows no node", "use 1 or more"))
    if least > most:
        cure = f"lower it to {most} or raise maxNodes to {least}"
        faults.append(Fault(f"{pool}.minNodes", least, f"is more than maxNodes ({most})", cure))
    if nodes > most:
        cure = f"lower it to {most} or raise maxNodes to {nodes}"
        faults.append(Fault(f"{pool}.nodes", nodes, f"is more than maxNodes ({most})", cure))
    if nodes < least <= most:
        cure = f"raise it to {least} or lower minNodes to {nodes}"
        if pool.endswith("systemPool"):
            cure = f"use {least} or more: etcd and the controller run there"
        faults.append(Fault(f"{pool}.nodes", nodes, f"is less than {least}", cure))
    return faults


def same_gpus(path: str, gpus: Mapping[str, int], per_worker: int) -> list[Fault]:
    """Check that machine types are interchangeable and that a worker fits on one.

    Args:
        path: the key that lists them.
        gpus: machine type -> its GPUs.
        per_worker: GPUs that one worker asks for.
    """
    said = ", ".join(f"{name} has {count}" for name, count in gpus.items())
    if len(set(gpus.values())) > 1:
        rule = f"mixes numbers of GPUs ({said})"
        return [Fault(path, ", ".join(gpus), rule, "keep those with one number: one is scaled")]
    count = next(iter(gpus.values()))
    if per_worker > count:
        rule = f"is more than a node has ({said})"
        cure = f"lower it to {count} or choose larger machines"
        return [Fault("job.gpusPerWorker", per_worker, rule, cure)]
    return []


def _fallback_of_spot(capacity: str, fallback: int, scaled: Flag) -> list[Fault]:
    """Check that on-demand nodes stand in for spot nodes and that somebody can buy them."""
    path = "cluster.gpuPool.fallbackNodes"
    if fallback and capacity == "onDemand":
        rule, cure = (
            "is for spot pools, and capacity is onDemand",
            "set it to 0 or capacity to spot",
        )
        return [Fault(path, fallback, rule, cure)]
    if fallback and not scaled:
        rule = "are never bought: cluster.autoscaling.enabled is false"
        return [Fault(path, fallback, rule, "enable autoscaling or set it to 0")]
    return []


def workers_have_nodes(replicas: int, nodes: int, most: int, scaled: Flag) -> list[Fault]:
    """Check that there can be a node for every worker: no two share one.

    Args:
        replicas: workers.
        nodes: GPU nodes where none come and go.
        most: GPU nodes of all pools together, the fallback's too, where they do.
        scaled: whether nodes come and go with the pods.
    """
    room = most if scaled else nodes
    if replicas <= room:
        return []
    limit = "gpuPool.maxNodes and fallbackNodes allow" if scaled else "gpuPool.nodes gives"
    cure = f"lower replicas to {room} or allow more nodes"
    return [Fault("job.replicas", replicas, f"is more than the {room} nodes that {limit}", cure)]


def _grace_within_notice(kind: str, capacity: str, grace: int) -> list[Fault]:
    """Check that a worker is not promised more time than the cloud gives its machine."""
    notice = NOTICE_SECONDS[kind]
    if capacity == "onDemand" or grace <= notice:
        return []
    rule = f"is more than the {notice} seconds between notice and end of a spot machine"
    return [Fault("job.graceSeconds", grace, rule, f"use {notice} or less")]


_CLOUDS = {"cluster": ("eks", "aks")}

RULES = (
    Rule(
        (
            "cluster.gpuPool.capacity",
            "cluster.gpuPool.fallbackNodes",
            "cluster.autoscaling.enabled",
        ),
        _fallback_of_spot,
        _CLOUDS,
    ),
    Rule(
        ("cluster.kind", "cluster.gpuPool.capacity", "job.graceSeconds"),
        _grace_within_notice,
        _CLOUDS,
    ),
)
