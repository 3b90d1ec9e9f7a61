"""Pools, machines and pods with all that a test does not care about filled in."""

from twin.clouds.capacity.autoscaler import Node, Pod, Room, Template
from twin.clouds.capacity.fleet import Seen
from twin.clouds.capacity.pools import Pool
from twin.nodes.model import Role

ONE = Room(milli_cpu=1000, memory=1 << 30, gpus=1, pods=1)
MACHINE = Room(milli_cpu=2000, memory=4 << 30, gpus=1, pods=110)


def pool(name="spot", **fields):
    known = {
        "cloud": "aws",
        "cluster": "c",
        "role": Role.GPU,
        "instance_types": ("g5.xlarge",),
        "maximum": 8,
        "capacity": "spot",
        "gpus": 1,
    }
    return Pool(name=name, **{**known, **fields})


def seen(*names, of="spot", **fields):
    return [Seen(name=name, pool=of, **fields) for name in names]


def template(of=None, **fields):
    return Template(pool=of or pool(), **{"offers": MACHINE, **fields})


def waiting(name="default/p", **fields):
    return Pod(name=name, **{"wants": ONE, **fields})


def node(name, of="spot", **fields):
    return Node(name=name, pool=of, **{"free": MACHINE, **fields})
