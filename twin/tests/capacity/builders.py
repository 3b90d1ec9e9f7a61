"""Pools, machines and pods with defaults for the fields that a test does not specify."""

from typing import Any

from cloudtwin.capacity.autoscaler import PendingPod, PoolNode, Resources, ScalablePool
from cloudtwin.capacity.fleet import PoolMachine
from cloudtwin.capacity.pools import Pool
from cloudtwin.nodes.model import Role

ONE_GPU = Resources(milli_cpu=1000, memory=1 << 30, gpus=1, pods=1)
MACHINE = Resources(milli_cpu=2000, memory=4 << 30, gpus=1, pods=110)


def pool(name: str = "spot", **fields: Any) -> Pool:
    defaults: dict[str, Any] = {
        "cloud": "aws",
        "cluster": "c",
        "role": Role.GPU,
        "instance_types": ("g5.xlarge",),
        "max_size": 8,
        "capacity": "spot",
        "gpus": 1,
    }
    return Pool(name=name, **{**defaults, **fields})


def machines(*names: str, pool_name: str = "c/spot", **fields: Any) -> list[PoolMachine]:
    return [PoolMachine(name=name, pool=pool_name, **fields) for name in names]


def scalable_pool(machine_pool: Pool | None = None, **fields: Any) -> ScalablePool:
    return ScalablePool(pool=machine_pool or pool(), **{"offers": MACHINE, **fields})


def pending_pod(name: str = "default/p", **fields: Any) -> PendingPod:
    return PendingPod(name=name, **{"requests": ONE_GPU, **fields})


def node(name: str, pool_name: str = "c/spot", **fields: Any) -> PoolNode:
    return PoolNode(name=name, pool=pool_name, **{"free_resources": MACHINE, **fields})
