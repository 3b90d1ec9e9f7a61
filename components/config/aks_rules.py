"""What must hold between the keys of a cluster on AKS, its network, its pools and its upgrades."""

import ipaddress
from collections.abc import Mapping, Sequence
from decimal import Decimal

from components.config import catalog
from components.config.aks import FALLBACK_POOL, SYSTEM_POOL
from components.config.network_rules import disjoint, is_private, narrow_enough, not_reserved
from components.config.pool_rules import counts, same_gpus, workers_have_nodes
from components.faults import Fault
from components.rules import Flag, Rule

MOST_DECIMALS = 5  # AKS, spotMaxPrice
POD_PREFIX = 24  # overlay: every node takes a /24 of podCidr
NODE_PREFIXES = range(8, 26)  # of the virtual network: a /25 has room for 120 nodes
SERVICE_PREFIXES = range(12, 29)  # AKS: at most a /12; the DNS server is the tenth address
SURGE_NODES = 2  # what an upgrade may add for a while


def _blocks(cidr: str, pods: str, services: str) -> list[Fault]:
    """Check the sizes of the three blocks, that they are private and that none overlap."""
    network = "cluster.network"
    blocks = {
        f"{network}.podCidr": pods,
        f"{network}.serviceCidr": services,
        f"{network}.cidr": cidr,
    }
    faults = disjoint(blocks)
    for path, block in blocks.items():
        faults += is_private(path, block)
    prefix = ipaddress.IPv4Network(cidr).prefixlen
    if prefix not in NODE_PREFIXES:
        cure = "use one such as 10.0.0.0/16"
        faults.append(Fault(f"{network}.cidr", cidr, "must be /8 to /25", cure))
    if ipaddress.IPv4Network(services).prefixlen not in SERVICE_PREFIXES:
        cure = "use one such as 10.2.0.0/16"
        faults.append(Fault(f"{network}.serviceCidr", services, "must be /12 to /28", cure))
    return faults


def _pods_have_room(
    pods: str, system: int, pools: Mapping[str, str], most: int, fallback: int
) -> list[Fault]:
    """Check that the pods' block has a /24 for every node that there may be."""
    nodes = system + len(pools) * most + fallback + SURGE_NODES
    room = 2 ** max(0, POD_PREFIX - ipaddress.IPv4Network(pods).prefixlen)
    if nodes <= room:
        return []
    rule = f"has room for {room} nodes, a /{POD_PREFIX} each, and there may be {nodes}"
    fits = POD_PREFIX - (nodes - 1).bit_length()
    return [Fault("cluster.network.podCidr", pods, rule, f"use a /{fits} or larger")]


def _api_has_a_door(ranges: Sequence[str], private: Flag) -> list[Fault]:
    """Check that the API is reached from named addresses or from inside, not both, not neither."""
    path = "cluster.authorizedRanges"
    if private:
        if not ranges:
            return []
        cure = "remove them, or set privateApi to false"
        rule = "have no effect on an API that is private"
        return [Fault(path, ", ".join(ranges), rule, cure)]
    if not ranges:
        cure = "name your addresses, such as 203.0.113.7/32, or set cluster.privateApi to true"
        return [Fault(path, None, "is empty, which opens the API to the whole internet", cure)]
    return [
        fault
        for place, cidr in enumerate(ranges)
        for here in [f"{path}[{place}]"]
        for fault in narrow_enough(here, cidr) or not_reserved(here, cidr)
    ]


def _pool_names_free(pools: Mapping[str, str]) -> list[Fault]:
    """Check that no GPU pool has the name of a pool that is there already."""
    taken = {SYSTEM_POOL: "the system pool", FALLBACK_POOL: "the pool of fallbackNodes"}
    return [
        Fault(
            f"cluster.gpuPool.vmSizes.{name}", size, f"has the name of {taken[name]}", "rename it"
        )
        for name, size in pools.items()
        if name in taken
    ]


def _sizes_differ(pools: Mapping[str, str]) -> list[Fault]:
    """Check that each pool is worth having: two of one size share one quota and one market."""
    faults, first = [], dict[str, str]()
    for name, size in pools.items():
        if size in first:
            rule, cure = f"is also that of {first[size]}", "remove one, or choose another size"
            faults.append(Fault(f"cluster.gpuPool.vmSizes.{name}", size, rule, cure))
        first.setdefault(size, name)
    return faults


def _gpu_sizes_alike(pools: Mapping[str, str], per_worker: int) -> list[Fault]:
    """Check that any of the VM sizes may replace any other, and holds a worker."""
    gpus = {size: catalog.AZURE_GPUS[size].count for size in pools.values()}
    return same_gpus("cluster.gpuPool.vmSizes", gpus, per_worker)


def _system_size_fits(size: str) -> list[Fault]:
    """Check that system nodes have no GPUs and are no burstable machines."""
    path, cure = "cluster.systemPool.vmSize", "use one such as Standard_D4s_v5"
    if size.startswith("Standard_N"):
        return [Fault(path, size, "has GPUs, which nothing on the system pool uses", cure)]
    if size.startswith("Standard_B"):
        return [Fault(path, size, "is burstable, which AKS does not advise for system pools", cure)]
    return []


def _price_fits(price: float, capacity: str) -> list[Fault]:
    """Check the most to pay: -1, or above zero with at most five decimals; only for spot."""
    path = "cluster.gpuPool.maxPrice"
    if price == -1:
        return []
    if capacity == "onDemand":
        return [Fault(path, price, "is for spot nodes, and capacity is onDemand", "remove it")]
    if price <= 0:
        return [Fault(path, price, "must be above 0, or -1 for no limit", "use -1")]
    exponent = Decimal(str(price)).normalize().as_tuple().exponent
    if isinstance(exponent, int) and -exponent > MOST_DECIMALS:
        cure = f"round it to {round(price, MOST_DECIMALS)}"
        return [Fault(path, price, f"has more than {MOST_DECIMALS} decimals", cure)]
    return []


def _system_counts(nodes: int, most: int) -> list[Fault]:
    """Check the numbers of the system pool."""
    return counts("cluster.systemPool", least=1, nodes=nodes, most=most)


def _gpu_counts(least: int, nodes: int, most: int) -> list[Fault]:
    """Check the numbers of the GPU pools."""
    return counts("cluster.gpuPool", least=least, nodes=nodes, most=most)


def _workers_have_nodes(
    replicas: int, nodes: int, pools: Mapping[str, str], most: int, fallback: int, scaled: Flag
) -> list[Fault]:
    """Check that there can be a node for every worker."""
    return workers_have_nodes(replicas, nodes, len(pools) * most + fallback, scaled)


def _zones_there(location: str, system: Sequence[str], gpu: Sequence[str]) -> list[Fault]:
    """Check that zones are asked for only where there are some."""
    if catalog.AZURE_LOCATIONS[location]:
        return []
    asked = {"cluster.systemPool.zones": system, "cluster.gpuPool.zones": gpu}
    cure = "set it to [], or choose another location"
    return [
        Fault(path, ", ".join(zones), f"is asked for, and {location} has no zones", cure)
        for path, zones in asked.items()
        if zones
    ]


def _channels_agree(channel: str, node_image: str) -> list[Fault]:
    """Check the two channels of upgrades: AKS lets node-image stand only beside NodeImage."""
    if channel != "node-image" or node_image == "NodeImage":
        return []
    rule, cure = f"goes only with nodeImage: NodeImage, not {node_image}", "use channel: patch"
    return [Fault("cluster.upgrades.channel", channel, rule, cure)]


_AKS = {"cluster": ("aks",)}
_NETWORK, _SYSTEM, _GPU = "cluster.network", "cluster.systemPool", "cluster.gpuPool"

RULES = (
    Rule((f"{_NETWORK}.cidr", f"{_NETWORK}.podCidr", f"{_NETWORK}.serviceCidr"), _blocks, _AKS),
    Rule(
        (
            f"{_NETWORK}.podCidr",
            f"{_SYSTEM}.maxNodes",
            f"{_GPU}.vmSizes",
            f"{_GPU}.maxNodes",
            f"{_GPU}.fallbackNodes",
        ),
        _pods_have_room,
        _AKS,
    ),
    Rule(("cluster.authorizedRanges", "cluster.privateApi"), _api_has_a_door, _AKS),
    Rule((f"{_GPU}.vmSizes",), _pool_names_free, _AKS),
    Rule((f"{_GPU}.vmSizes",), _sizes_differ, _AKS),
    Rule((f"{_GPU}.vmSizes", "job.gpusPerWorker"), _gpu_sizes_alike, _AKS),
    Rule((f"{_SYSTEM}.vmSize",), _system_size_fits, _AKS),
    Rule((f"{_GPU}.maxPrice", f"{_GPU}.capacity"), _price_fits, _AKS),
    Rule((f"{_SYSTEM}.nodes", f"{_SYSTEM}.maxNodes"), _system_counts, _AKS),
    Rule((f"{_GPU}.minNodes", f"{_GPU}.nodes", f"{_GPU}.maxNodes"), _gpu_counts, _AKS),
    Rule(
        (
            "job.replicas",
            f"{_GPU}.nodes",
            f"{_GPU}.vmSizes",
            f"{_GPU}.maxNodes",
            f"{_GPU}.fallbackNodes",
            "cluster.autoscaling.enabled",
        ),
        _workers_have_nodes,
        _AKS,
    ),
    Rule(("cluster.location", f"{_SYSTEM}.zones", f"{_GPU}.zones"), _zones_there, _AKS),
    Rule(("cluster.upgrades.channel", "cluster.upgrades.nodeImage"), _channels_agree, _AKS),
)
