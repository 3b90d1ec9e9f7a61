"""Rules about node pools for all clouds, and about the nodes that a job needs."""

from collections.abc import Mapping, Sequence

from components.config.faults import ConfigFault
from components.config.rules import ConfigRule, Flag
from everstep.catalog.plurals import amount
from everstep.catalog.timing import NOTICE_SECONDS

SEVERAL_POOLS = "cluster.gpuPools"
"""The key that disables the rules about `cluster.gpuPool` if it is set."""


def count_faults(pool: str, *, minimum: int, nodes: int, maximum: int) -> list[ConfigFault]:
    """Check that a pool's node counts are consistent and allow at least one node."""
    faults = []
    if maximum < 1:
        faults.append(ConfigFault(f"{pool}.maxNodes", maximum, "allows no nodes", "use 1 or more"))
    if minimum > maximum:
        fix = f"lower it to {maximum} or raise maxNodes to {minimum}"
        faults.append(
            ConfigFault(f"{pool}.minNodes", minimum, f"is more than maxNodes ({maximum})", fix)
        )
    if nodes > maximum:
        fix = f"lower it to {maximum} or raise maxNodes to {nodes}"
        faults.append(
            ConfigFault(f"{pool}.nodes", nodes, f"is more than maxNodes ({maximum})", fix)
        )
    if nodes < minimum <= maximum:
        fix = f"raise it to {minimum} or lower minNodes to {nodes}"
        if pool.endswith("systemPool"):
            fix = f"use {minimum} or more: etcd and the controller run there"
        faults.append(ConfigFault(f"{pool}.nodes", nodes, f"is less than {minimum}", fix))
    return faults


def duplicate_faults(path: str, values: Sequence[str]) -> list[ConfigFault]:
    """Check that a list contains no value twice."""
    return [
        ConfigFault(f"{path}[{index}]", value, "is listed twice", "remove one")
        for index, value in enumerate(values)
        if value in values[:index]
    ]


def gpu_count_faults(path: str, gpus: Mapping[str, int], per_worker: int) -> list[ConfigFault]:
    """Check that machine types are interchangeable and that a worker fits on one.

    Args:
        path: the key that lists the machine types.
        gpus: machine type -> number of its GPUs.
        per_worker: GPUs that one worker requests.
    """
    descriptions = ", ".join(f"{name} has {count}" for name, count in gpus.items())
    if len(set(gpus.values())) > 1:
        rule = f"lists types with different numbers of GPUs ({descriptions})"
        return [ConfigFault(path, ", ".join(gpus), rule, "keep types with the same number of GPUs")]
    count = next(iter(gpus.values()))
    if per_worker > count:
        rule = f"is more than a node has ({descriptions})"
        fix = f"lower it to {count} or choose larger machine types"
        return [ConfigFault("job.gpusPerWorker", per_worker, rule, fix)]
    return []


def fallback_faults(
    path: str, capacity: str, fallback: int, *, autoscaling: bool
) -> list[ConfigFault]:
    """Check that fallback nodes belong to a spot pool and that the autoscaler can add them.

    Args:
        path: the key of the fallback.
        capacity: capacity type of the pool.
        fallback: maximum number of fallback nodes.
        autoscaling: whether autoscaling is enabled.
    """
    if fallback and capacity == "onDemand":
        rule, fix = (
            "applies only to spot pools, but capacity is onDemand",
            "set it to 0 or capacity to spot",
        )
        return [ConfigFault(path, fallback, rule, fix)]
    if fallback and not autoscaling:
        rule = "are never created: cluster.autoscaling.enabled is false"
        return [ConfigFault(path, fallback, rule, "enable autoscaling or set it to 0")]
    return []


def _fallback_requires_spot(capacity: str, fallback: int, autoscaling: Flag) -> list[ConfigFault]:
    """Check the fallback of `cluster.gpuPool`."""
    return fallback_faults(
        "cluster.gpuPool.fallbackNodes", capacity, fallback, autoscaling=autoscaling
    )


def worker_node_faults(
    replicas: int, nodes: int, maximum: int, autoscaling: Flag
) -> list[ConfigFault]:
    """Check that the pools allow a node for every worker; workers do not share nodes.

    Args:
        replicas: number of workers.
        nodes: number of GPU nodes without autoscaling.
        maximum: maximum number of GPU nodes of all pools with autoscaling, including the fallback.
        autoscaling: whether autoscaling is enabled.
    """
    available = maximum if autoscaling else nodes
    if autoscaling and not maximum:
        return []  # the fault of the empty pool suffices
    if replicas <= available:
        return []
    limit = "gpuPool.maxNodes and fallbackNodes allow" if autoscaling else "gpuPool.nodes gives"
    fix = f"lower replicas to {available} or allow more nodes"
    if not available:
        fix = f"set gpuPool.nodes to {replicas}, or enable autoscaling"
    return [
        ConfigFault(
            "job.replicas",
            replicas,
            f"is more than the {amount(available, 'node')} that {limit}",
            fix,
        )
    ]


def grace_faults(kind: str, capacity: str, grace: int) -> list[ConfigFault]:
    """Check that the grace period does not exceed the cloud's interruption notice."""
    notice = NOTICE_SECONDS[kind]
    if capacity == "onDemand" or grace <= notice:
        return []
    rule = f"is more than the {notice} seconds between the notice and the end of a spot machine"
    return [ConfigFault("job.graceSeconds", grace, rule, f"use {notice} or less")]


_CLOUDS = {"cluster": ("eks", "aks")}

RULES = (
    ConfigRule(
        (
            "cluster.gpuPool.capacity",
            "cluster.gpuPool.fallbackNodes",
            "cluster.autoscaling.enabled",
        ),
        _fallback_requires_spot,
        _CLOUDS,
        unless=SEVERAL_POOLS,
    ),
    ConfigRule(
        ("cluster.kind", "cluster.gpuPool.capacity", "job.graceSeconds"),
        grace_faults,
        _CLOUDS,
        unless=SEVERAL_POOLS,
    ),
)
