"""Rules across the keys of a cluster on AKS: network, node pools and upgrades."""

import ipaddress
import re
from collections.abc import Callable, Sequence
from decimal import Decimal

from cloudfacts import azure

from components.cidr import overlap
from components.config.aks import (
    FALLBACK_POOL,
    MAX_RANGES,
    NO_MAX_PRICE,
    AksNamedPoolConfig,
    AksSizeConfig,
)
from components.config.faults import ConfigFault
from components.config.network_rules import (
    overlap_faults,
    public_address_faults,
    unroutable_faults,
    wide_range_faults,
)
from components.config.newer_names import lacks_zones
from components.config.pool_rules import (
    SEVERAL_POOLS,
    count_faults,
    duplicate_faults,
    gpu_count_faults,
    worker_node_faults,
)
from components.config.rules import ConfigRule, Flag
from everstep.catalog.names import SYSTEM_POOL
from everstep.catalog.plurals import amount

MAX_DECIMALS = 5  # limit of AKS for spotMaxPrice
POD_PREFIX = 24  # prefix length of the part of podCidr that each node of an overlay uses
NODE_PREFIXES = range(8, 26)  # valid prefix lengths of the virtual network: a /25 fits 123 nodes
SERVICE_PREFIXES = range(12, 29)  # AKS allows at most a /12; the DNS server is the tenth address
# Source: AKS documentation, "Azure CNI Overlay networking", requirements of the service address range, 2026-11. AKS
# reserves two other blocks, which are not private, so the rule for public addresses refuses them.
RESERVED_BLOCKS = ("172.30.0.0/16", "172.31.0.0/16")
# Source: Azure documentation, "VM sizes: naming conventions", 2026-11: family, vCPUs, features, of which p is Arm.
_ARM_SIZE = re.compile(r"Standard_[A-Z]+\d+(-\d+)?[a-z]*p[a-z]*(_|$)")
_ONE_VCPU = re.compile(r"Standard_[A-Z]+([01]|\d+-1)(\D|$)")
SURGE_NODES = 1  # temporary nodes of an upgrade: only the system pool has any


def _blocks(cidr: str, pods: str, services: str) -> list[ConfigFault]:
    """Check that the three blocks are private, disjoint, not reserved by AKS and of a valid size."""
    network = "cluster.network"
    blocks = {
        f"{network}.podCidr": pods,
        f"{network}.serviceCidr": services,
        f"{network}.cidr": cidr,
    }
    faults = overlap_faults(blocks)
    for path, block in blocks.items():
        faults += public_address_faults(path, block)
        reserved = [other for other in RESERVED_BLOCKS if overlap(block, other)]
        if reserved:
            rule = f"overlaps {' and '.join(reserved)}, which AKS reserves"
            faults.append(ConfigFault(path, block, rule, "choose another block"))
    prefix = ipaddress.IPv4Network(cidr).prefixlen
    if prefix not in NODE_PREFIXES:
        fix = "use one such as 10.0.0.0/16"
        faults.append(ConfigFault(f"{network}.cidr", cidr, "must be /8 to /25", fix))
    if ipaddress.IPv4Network(services).prefixlen not in SERVICE_PREFIXES:
        fix = "use one such as 10.2.0.0/16"
        faults.append(ConfigFault(f"{network}.serviceCidr", services, "must be /12 to /28", fix))
    return faults


def _firewall_reachable(
    egress: str, firewall: str | None, subnet: str | None, cidr: str, pods: str, services: str
) -> list[ConfigFault]:
    """Check that firewallIp is set if and only if the stack declares routes, and is outside the blocks of the stack."""
    path, network = "cluster.network.firewallIp", "cluster.network"
    routes_declared = egress == "userDefinedRouting" and subnet is None
    if firewall is None:
        if not routes_declared:
            return []
        fix = "set it to the firewall's private address, or set subnetId to a subnet with a route table"
        return [ConfigFault(path, None, "is missing, so there is no egress route", fix)]
    if not routes_declared:
        reason = f"egress is {egress}" if subnet is None else "the route table of subnetId applies"
        fix = "remove it, or use egress: userDefinedRouting without subnetId"
        return [ConfigFault(path, firewall, f"has no effect: {reason}", fix)]
    blocks = {"cidr": cidr, "podCidr": pods, "serviceCidr": services}
    return [
        ConfigFault(
            path, firewall, f"is in {network}.{name} ({block})", "use a firewall in another network"
        )
        for name, block in blocks.items()
        if ipaddress.IPv4Address(firewall) in ipaddress.IPv4Network(block)
    ]


def _pod_cidr_fits_nodes(
    pod_cidr: str,
    system_nodes: int,
    sizes: Sequence[AksSizeConfig],
    max_nodes: int,
    fallback_nodes: int,
) -> list[ConfigFault]:
    """Check that podCidr has a /24 for every node of all pools at their maximum."""
    return pod_cidr_faults(pod_cidr, system_nodes + len(sizes) * max_nodes + fallback_nodes)


def pod_cidr_faults(pod_cidr: str, max_nodes: int) -> list[ConfigFault]:
    """Check that podCidr has a /24 for every node, including surge nodes of an upgrade.

    Args:
        pod_cidr: addresses of pods.
        max_nodes: maximum number of nodes of all pools.
    """
    nodes = max_nodes + SURGE_NODES
    limit = 2 ** max(0, POD_PREFIX - ipaddress.IPv4Network(pod_cidr).prefixlen)
    if nodes <= limit:
        return []
    rule = f"fits {amount(limit, 'node')}, a /{POD_PREFIX} each, but the pools allow {nodes}"
    prefix = POD_PREFIX - (nodes - 1).bit_length()
    return [ConfigFault("cluster.network.podCidr", pod_cidr, rule, f"use a /{prefix} or larger")]


def _api_access_restricted(ranges: Sequence[str], private: Flag) -> list[ConfigFault]:
    """Check that the API is either private or restricted to authorizedRanges."""
    path = "cluster.authorizedRanges"
    if private:
        if not ranges:
            return []
        fix = "remove them, or set privateApi to false"
        rule = "have no effect on a private API"
        return [ConfigFault(path, ", ".join(ranges), rule, fix)]
    if not ranges:
        fix = "list your addresses, such as 203.0.113.7/32, or set cluster.privateApi to true"
        return [ConfigFault(path, None, "is empty, which opens the API to the whole internet", fix)]
    return [
        fault
        for index, cidr in enumerate(ranges)
        for entry in [f"{path}[{index}]"]
        for fault in wide_range_faults(entry, cidr) or unroutable_faults(entry, cidr)
    ]


def _ranges_leave_room(ranges: Sequence[str], egress: str, subnet: str | None) -> list[ConfigFault]:
    """Check that the address of the stack's NAT gateway, from which nodes reach a public API, is within the limit."""
    if egress != "nat" or subnet is not None or len(ranges) < MAX_RANGES:
        return []
    rule = f"has {len(ranges)} ranges, and the stack adds its NAT gateway: AKS allows {MAX_RANGES}"
    fix = f"combine some to at most {MAX_RANGES - 1}"
    return [ConfigFault("cluster.authorizedRanges", "...", rule, fix)]


def _dns_zone_usable(zone: str, private: Flag, location: str) -> list[ConfigFault]:
    """Check that a DNS zone is set only for a private API, and that AKS accepts its name.

    Source: AKS documentation, "Create a private AKS cluster"; not tried on Azure.
    """
    path = "cluster.privateDnsZone"
    if not private and zone != "system":
        fix = "set cluster.privateApi to true, or remove it"
        return [ConfigFault(path, zone, "has no effect: cluster.privateApi is false", fix)]
    parent = f"privatelink.{location}.azmk8s.io"
    name = zone.rpartition("/")[2]
    if "/" not in zone or re.fullmatch(rf"([A-Za-z0-9-]{{1,32}}\.)?{re.escape(parent)}", name):
        return []
    fix = f"use a zone {parent} or NAME.{parent}, with up to 32 letters, digits and dashes as NAME"
    return [ConfigFault(path, zone, f"is not a zone for AKS in {location}", fix)]


def _pool_names_unused(sizes: Sequence[AksSizeConfig]) -> list[ConfigFault]:
    """Check that no GPU pool has the name of another pool of the stack."""
    existing = {SYSTEM_POOL: "the system pool", FALLBACK_POOL: "the pool of fallbackNodes"}
    faults = []
    for index, size in enumerate(sizes):
        if size.name in existing:
            rule = f"has the name of {existing[size.name]}"
            faults.append(ConfigFault(_size_key(index, "name"), size.name, rule, "rename it"))
        existing.setdefault(size.name, _size_key(index))
    return faults


def _size_key(index: int, name: str = "") -> str:
    """Return the key of a VM size of `gpuPool`, or of one of its values."""
    return f"cluster.gpuPool.vmSizes[{index}]" + (f".{name}" if name else "")


def _vm_sizes_unique(sizes: Sequence[AksSizeConfig]) -> list[ConfigFault]:
    """Check that no two pools have the same VM size: they would share its quota and spot market."""
    faults, pool_names = [], dict[str, str]()
    for index, size in enumerate(sizes):
        if size.vm_size in pool_names:
            rule = f"is also used by {pool_names[size.vm_size]}"
            fix = "remove one, or choose another size"
            faults.append(ConfigFault(_size_key(index, "vmSize"), size.vm_size, rule, fix))
        pool_names.setdefault(size.vm_size, size.name)
    return faults


def _vm_sizes_interchangeable(
    configured: Sequence[AksSizeConfig], per_worker: int
) -> list[ConfigFault]:
    """Check that all VM sizes have the same number or fraction of GPUs, and that a worker fits on each."""
    path, sizes = "cluster.gpuPool.vmSizes", [azure.VM_SIZES[size.vm_size] for size in configured]
    shares = {size.name: round(1 / size.gpu_share) for size in sizes}
    if len(set(shares.values())) > 1:
        descriptions = ", ".join(
            f"{name} has {'a whole GPU' if parts == 1 else f'1/{parts} of a GPU'}"
            for name, parts in shares.items()
        )
        rule, fix = (
            f"mixes whole GPUs and fractions ({descriptions})",
            "keep sizes with equal fractions",
        )
        return [ConfigFault(path, ", ".join(shares), rule, fix)]
    return gpu_count_faults(path, {size.name: size.gpus for size in sizes}, per_worker)


def _system_size_fits(size: str) -> list[ConfigFault]:
    """Check that the system VM size has no GPUs, FPGAs or Arm CPU, is not burstable and has at least two vCPUs."""
    path, fix = "cluster.systemPool.vmSize", "use one such as Standard_D4s_v5"
    if size.startswith("Standard_N"):
        return [
            ConfigFault(path, size, "has GPUs or FPGAs, which no pod on the system pool uses", fix)
        ]
    if size.startswith("Standard_B"):
        return [
            ConfigFault(
                path, size, "is burstable, which AKS does not recommend for system pools", fix
            )
        ]
    if _ARM_SIZE.match(size):
        rule = "has an Arm CPU, for which there are no images: they are for Linux on x86"
        return [ConfigFault(path, size, rule, fix)]
    if _ONE_VCPU.match(size):
        return [ConfigFault(path, size, "has fewer than 2 vCPUs, which AKS requires", fix)]
    return []


def _max_price_valid(price: float, capacity: str) -> list[ConfigFault]:
    """Check the price ceiling of the pools of `gpuPool`."""
    return max_price_faults("cluster.gpuPool.maxPrice", price, capacity)


def max_price_faults(path: str, price: float, capacity: str) -> list[ConfigFault]:
    """Check that a price ceiling is -1 or a positive price with at most five decimals, and set only for spot."""
    if price == NO_MAX_PRICE:
        return []
    if capacity == "onDemand":
        return [
            ConfigFault(
                path, price, "applies only to spot nodes, but capacity is onDemand", "remove it"
            )
        ]
    if price <= 0:
        return [ConfigFault(path, price, "must be above 0, or -1 for no limit", "use -1")]
    exponent = Decimal(str(price)).normalize().as_tuple().exponent
    if isinstance(exponent, int) and -exponent > MAX_DECIMALS:
        fix = f"round it to {round(price, MAX_DECIMALS)}"
        return [ConfigFault(path, price, f"has more than {MAX_DECIMALS} decimals", fix)]
    return []


def _system_counts(nodes: int, maximum: int) -> list[ConfigFault]:
    """Check the node counts of the system pool."""
    return count_faults("cluster.systemPool", minimum=1, nodes=nodes, maximum=maximum)


def _gpu_counts(minimum: int, nodes: int, maximum: int) -> list[ConfigFault]:
    """Check the node counts of the GPU pools."""
    return count_faults("cluster.gpuPool", minimum=minimum, nodes=nodes, maximum=maximum)


def _workers_have_nodes(
    replicas: int,
    nodes: int,
    sizes: Sequence[AksSizeConfig],
    maximum: int,
    fallback: int,
    autoscaling: Flag,
) -> list[ConfigFault]:
    """Check that the pools allow a node for every worker."""
    return worker_node_faults(replicas, nodes, len(sizes) * maximum + fallback, autoscaling)


def _zones_available(
    location: str, system_zones: Sequence[str], gpu_zones: Sequence[str]
) -> list[ConfigFault]:
    """Check that zones are set only for a location with availability zones."""
    if not lacks_zones(location):
        return []
    configured_zones = {
        "cluster.systemPool.zones": system_zones,
        "cluster.gpuPool.zones": gpu_zones,
    }
    fix = "set it to [], or choose another location"
    return [
        ConfigFault(
            path, ", ".join(zones), f"is set, but {location} has no availability zones", fix
        )
        for path, zones in configured_zones.items()
        if zones
    ]


def _no_duplicates(
    system_zones: Sequence[str],
    gpu_zones: Sequence[str],
    groups: Sequence[str],
    ranges: Sequence[str],
) -> list[ConfigFault]:
    """Check that zones, administrators and ranges are listed once."""
    lists = {
        f"{_SYSTEM}.zones": system_zones,
        f"{_GPU}.zones": gpu_zones,
        "cluster.administrators": groups,
        "cluster.authorizedRanges": ranges,
    }
    return [fault for path, values in lists.items() for fault in duplicate_faults(path, values)]


def _channels_agree(channel: str, node_image: str) -> list[ConfigFault]:
    """Check that channel node-image is combined with nodeImage NodeImage, as AKS requires."""
    if channel != "node-image" or node_image == "NodeImage":
        return []
    rule, fix = f"requires nodeImage: NodeImage, not {node_image}", "use channel: patch"
    return [ConfigFault("cluster.upgrades.channel", channel, rule, fix)]


def _snapshots_kept(
    system: str | None,
    gpu: str | None,
    gpu_pools: Sequence[AksNamedPoolConfig],
    channel: str,
    node_image: str,
) -> list[ConfigFault]:
    """Check that no automatic upgrade replaces the node image of a snapshot.

    An upgrade of Kubernetes installs the newest node image too. Source: AKS documentation, "Auto-upgrade
    node OS images" and "Node pool snapshot"; not tried on Azure.
    """
    if channel == "none" and node_image in {"None", "Unmanaged"}:
        return []
    snapshots = {f"{_SYSTEM}.snapshotId": system, f"{_GPU}.snapshotId": gpu} | {
        f"{SEVERAL_POOLS}[{index}].snapshotId": pool.snapshot_id
        for index, pool in enumerate(gpu_pools)
    }
    rule = f"is replaced by automatic upgrades (channel: {channel}, nodeImage: {node_image})"
    fix = "set cluster.upgrades.channel to none and cluster.upgrades.nodeImage to None"
    return [ConfigFault(path, id_, rule, fix) for path, id_ in snapshots.items() if id_]


def _metrics_have_a_workspace(job_metrics: Flag, managed_prometheus: Flag) -> list[ConfigFault]:
    """Check that metrics of the job are sent only if the cluster sends metrics."""
    if managed_prometheus or not job_metrics:
        return []
    rule, fix = "requires managedPrometheus: true", "set it, or remove jobMetrics"
    return [ConfigFault("cluster.monitoring.jobMetrics", job_metrics, rule, fix)]


_AKS = {"cluster": ("aks",)}
_NETWORK, _SYSTEM, _GPU = "cluster.network", "cluster.systemPool", "cluster.gpuPool"


def _gpu_pool_rule(paths: tuple[str, ...], check: Callable[..., list[ConfigFault]]) -> ConfigRule:
    """Return a rule about `gpuPool`, which does not apply to `gpuPools`."""
    return ConfigRule(paths, check, _AKS, unless=SEVERAL_POOLS)


RULES = (
    ConfigRule(
        (f"{_NETWORK}.cidr", f"{_NETWORK}.podCidr", f"{_NETWORK}.serviceCidr"), _blocks, _AKS
    ),
    ConfigRule(
        tuple(
            f"{_NETWORK}.{key}"
            for key in ("egress", "firewallIp", "subnetId", "cidr", "podCidr", "serviceCidr")
        ),
        _firewall_reachable,
        _AKS,
    ),
    _gpu_pool_rule(
        (
            f"{_NETWORK}.podCidr",
            f"{_SYSTEM}.maxNodes",
            f"{_GPU}.vmSizes",
            f"{_GPU}.maxNodes",
            f"{_GPU}.fallbackNodes",
        ),
        _pod_cidr_fits_nodes,
    ),
    ConfigRule(("cluster.authorizedRanges", "cluster.privateApi"), _api_access_restricted, _AKS),
    ConfigRule(
        ("cluster.authorizedRanges", f"{_NETWORK}.egress", f"{_NETWORK}.subnetId"),
        _ranges_leave_room,
        _AKS,
    ),
    ConfigRule(
        ("cluster.privateDnsZone", "cluster.privateApi", "cluster.location"), _dns_zone_usable, _AKS
    ),
    _gpu_pool_rule((f"{_GPU}.vmSizes",), _pool_names_unused),
    _gpu_pool_rule((f"{_GPU}.vmSizes",), _vm_sizes_unique),
    _gpu_pool_rule((f"{_GPU}.vmSizes", "job.gpusPerWorker"), _vm_sizes_interchangeable),
    ConfigRule((f"{_SYSTEM}.vmSize",), _system_size_fits, _AKS),
    _gpu_pool_rule((f"{_GPU}.maxPrice", f"{_GPU}.capacity"), _max_price_valid),
    ConfigRule((f"{_SYSTEM}.nodes", f"{_SYSTEM}.maxNodes"), _system_counts, _AKS),
    _gpu_pool_rule((f"{_GPU}.minNodes", f"{_GPU}.nodes", f"{_GPU}.maxNodes"), _gpu_counts),
    _gpu_pool_rule(
        (
            "job.replicas",
            f"{_GPU}.nodes",
            f"{_GPU}.vmSizes",
            f"{_GPU}.maxNodes",
            f"{_GPU}.fallbackNodes",
            "cluster.autoscaling.enabled",
        ),
        _workers_have_nodes,
    ),
    ConfigRule(
        (
            f"{_SYSTEM}.zones",
            f"{_GPU}.zones",
            "cluster.administrators",
            "cluster.authorizedRanges",
        ),
        _no_duplicates,
        _AKS,
    ),
    ConfigRule(("cluster.location", f"{_SYSTEM}.zones", f"{_GPU}.zones"), _zones_available, _AKS),
    ConfigRule(("cluster.upgrades.channel", "cluster.upgrades.nodeImage"), _channels_agree, _AKS),
    ConfigRule(
        (
            f"{_SYSTEM}.snapshotId",
            f"{_GPU}.snapshotId",
            SEVERAL_POOLS,
            "cluster.upgrades.channel",
            "cluster.upgrades.nodeImage",
        ),
        _snapshots_kept,
        _AKS,
    ),
    ConfigRule(
        ("cluster.monitoring.jobMetrics", "cluster.monitoring.managedPrometheus"),
        _metrics_have_a_workspace,
        _AKS,
    ),
)
