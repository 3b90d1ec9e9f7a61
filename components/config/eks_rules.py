"""What must hold between the keys of a cluster on EKS, its network, its pools and its Kubernetes."""

import ipaddress
from collections.abc import Mapping, Sequence

from components.config import catalog
from components.config.network_rules import (
    disjoint,
    is_private,
    narrow_enough,
    not_reserved,
)
from components.config.pool_rules import counts, same_gpus, workers_have_nodes
from components.faults import Fault, nearest
from components.network.cidr import LARGEST_PREFIX, SMALLEST_PREFIX
from components.rules import Flag, Rule

SERVICE_PREFIXES = range(12, 25)  # EKS: /12 to /24


def _zones_of_region(region: str, zones: Sequence[str]) -> list[Fault]:
    """Check that the zones are the region's, each once."""
    known = catalog.zones_of(region)
    faults = [
        Fault(f"cluster.zones[{place}]", zone, f"is no zone of {region}", nearest(zone, known))
        for place, zone in enumerate(zones)
        if zone not in known
    ]
    if len(set(zones)) < len(zones):
        cure = "name different ones: nodes of one zone are lost together"
        faults.append(Fault("cluster.zones", ", ".join(zones), "names a zone twice", cure))
    return faults


def _gpu_zone_known(zone: str | None, zones: Sequence[str]) -> list[Fault]:
    """Check that the GPU nodes stand in a zone that has subnets."""
    if zone is None or zone in zones:
        return []
    cure = f"use {' or '.join(zones)}, or add it to cluster.zones"
    return [Fault("cluster.gpuPool.zone", zone, "is none of cluster.zones", cure)]


def _vpc_size(cidr: str) -> list[Fault]:
    """Check that the VPC is neither more than AWS gives nor too small for pods of all zones."""
    path, prefix = "cluster.network.cidr", ipaddress.IPv4Network(cidr).prefixlen
    if prefix < LARGEST_PREFIX:
        cure = f"use /{LARGEST_PREFIX}, such as 10.0.0.0/16"
        return [Fault(path, cidr, f"is larger than AWS gives a VPC (/{LARGEST_PREFIX})", cure)]
    if prefix > SMALLEST_PREFIX:
        cure = f"use /{SMALLEST_PREFIX} or larger, such as 10.0.0.0/16"
        return [Fault(path, cidr, "is too small: every pod takes an address of it", cure)]
    return is_private(path, cidr)


def _service_block(cidr: str, vpc: str) -> list[Fault]:
    """Check the block of Services against EKS' limits and against the VPC."""
    path, prefix = "cluster.network.serviceCidr", ipaddress.IPv4Network(cidr).prefixlen
    if prefix not in SERVICE_PREFIXES:
        return [Fault(path, cidr, "must be /12 to /24", "use one such as 172.20.0.0/16")]
    return is_private(path, cidr) + disjoint({path: cidr, "cluster.network.cidr": vpc})


def _own_vpc_whole(
    vpc: str | None, subnets: Mapping[str, str], zones: Sequence[str]
) -> list[Fault]:
    """Check that a VPC of the user's own comes with a private subnet for every zone."""
    path = "cluster.network.privateSubnetIds"
    if vpc is None:
        if not subnets:
            return []
        cure = "add cluster.network.vpcId, or leave the subnets out to have them made"
        return [Fault(path, ", ".join(subnets), "is given without a VPC", cure)]
    missing, strange = set(zones) - set(subnets), set(subnets) - set(zones)
    faults = []
    if missing:
        rule = f"has no subnet for {', '.join(sorted(missing))}, which cluster.zones names"
        faults.append(Fault(path, ", ".join(subnets) or None, rule, "add zone: subnet-id"))
    if strange:
        rule = f"names {', '.join(sorted(strange))}, which is not in cluster.zones"
        faults.append(Fault(path, ", ".join(subnets), rule, "remove it or add the zone"))
    if len(set(subnets.values())) < len(subnets):
        rule, cure = "gives one subnet to two zones", "a subnet lies in one zone: name one for each"
        faults.append(Fault(path, ", ".join(subnets.values()), rule, cure))
    return faults


def _public_access_narrow(ranges: Sequence[str]) -> list[Fault]:
    """Check who may reach the API from the internet."""
    return [
        fault
        for place, cidr in enumerate(ranges)
        for path in [f"cluster.publicAccess[{place}]"]
        for fault in narrow_enough(path, cidr) or not_reserved(path, cidr)
    ]


def _system_counts(nodes: int, most: int) -> list[Fault]:
    """Check the numbers of the system pool."""
    return counts("cluster.systemPool", least=1, nodes=nodes, most=most)


def _system_types_fit(types: Sequence[str]) -> list[Fault]:
    """Check that system nodes are x86 machines without GPUs."""
    faults = []
    for place, machine in enumerate(types):
        path, family = f"cluster.systemPool.instanceTypes[{place}]", machine.partition(".")[0]
        if machine in catalog.AWS_GPUS or family in catalog.AWS_UNFIT:
            rule = "has GPUs, which nothing on the system pool uses"
            faults.append(Fault(path, machine, rule, "use one such as m6i.xlarge"))
        elif "g" in family.lstrip("abcdefghijklmnopqrstuvwxyz"):  # m7g, c8gn: Graviton
            rule = "has ARM processors, and the images are for x86"
            faults.append(Fault(path, machine, rule, "use one such as m6i.xlarge"))
    return faults


def _gpu_counts(least: int, nodes: int, most: int) -> list[Fault]:
    """Check the numbers of the GPU pool."""
    return counts("cluster.gpuPool", least=least, nodes=nodes, most=most)


def _gpu_types_alike(types: Sequence[str], per_worker: int) -> list[Fault]:
    """Check that any of the instance types may replace any other, and holds a worker."""
    path = "cluster.gpuPool.instanceTypes"
    faults = same_gpus(path, {name: catalog.AWS_GPUS[name].count for name in types}, per_worker)
    if len(set(types)) < len(types):
        faults.append(Fault(path, ", ".join(types), "names a type twice", "remove one"))
    return faults


def _efa_one_type(efa: Flag, types: Sequence[str]) -> list[Fault]:
    """Check that EFA is asked for on one type, which has it: a launch template fits one alone."""
    path, capable = "cluster.gpuPool.efa", [n for n, gpus in catalog.AWS_GPUS.items() if gpus.efa]
    if not efa:
        return []
    if len(types) > 1:
        rule = f"needs one instance type, and instanceTypes names {len(types)}"
        return [
            Fault(path, "true", rule, f"keep one that has EFA, such as {_first(types, capable)}")
        ]
    if types[0] not in capable:
        cure = f"use one that has it, such as {_first((), capable)}, or efa: false"
        return [Fault(path, "true", f"is asked for, and {types[0]} has none", cure)]
    return []


def _first(wanted: Sequence[str], capable: Sequence[str]) -> str:
    """Give a type with EFA, one of those that are wanted where possible."""
    return next((name for name in wanted if name in capable), "g5.8xlarge or p4d.24xlarge")


def _kube_proxy_fits(kubernetes: str, versions: Mapping[str, str]) -> list[Fault]:
    """Check that kube-proxy is not newer than the cluster and at most three minors older."""
    version = versions.get("kube-proxy")
    if version is None:
        return []
    theirs, ours = (int(text.split(".")[1]) for text in (version, kubernetes))
    if ours - 3 <= theirs <= ours:
        return []
    cure = f"use v{kubernetes}.x, or leave it out to have the pinned one"
    rule = f"does not go with Kubernetes {kubernetes}"
    return [Fault("cluster.addonVersions.kube-proxy", version, rule, cure)]


def _workers_have_nodes(
    replicas: int, nodes: int, most: int, fallback: int, scaled: Flag
) -> list[Fault]:
    """Check that there can be a node for every worker."""
    return workers_have_nodes(replicas, nodes, most + fallback, scaled)


_EKS = {"cluster": ("eks",)}

RULES = (
    Rule(("cluster.region", "cluster.zones"), _zones_of_region, _EKS),
    Rule(("cluster.gpuPool.zone", "cluster.zones"), _gpu_zone_known, _EKS),
    Rule(("cluster.network.cidr",), _vpc_size, _EKS),
    Rule(("cluster.network.serviceCidr", "cluster.network.cidr"), _service_block, _EKS),
    Rule(
        ("cluster.network.vpcId", "cluster.network.privateSubnetIds", "cluster.zones"),
        _own_vpc_whole,
        _EKS,
    ),
    Rule(("cluster.publicAccess",), _public_access_narrow, _EKS),
    Rule(("cluster.systemPool.nodes", "cluster.systemPool.maxNodes"), _system_counts, _EKS),
    Rule(("cluster.systemPool.instanceTypes",), _system_types_fit, _EKS),
    Rule(
        ("cluster.gpuPool.minNodes", "cluster.gpuPool.nodes", "cluster.gpuPool.maxNodes"),
        _gpu_counts,
        _EKS,
    ),
    Rule(("cluster.gpuPool.instanceTypes", "job.gpusPerWorker"), _gpu_types_alike, _EKS),
    Rule(("cluster.gpuPool.efa", "cluster.gpuPool.instanceTypes"), _efa_one_type, _EKS),
    Rule(
        (
            "job.replicas",
            "cluster.gpuPool.nodes",
            "cluster.gpuPool.maxNodes",
            "cluster.gpuPool.fallbackNodes",
            "cluster.autoscaling.enabled",
        ),
        _workers_have_nodes,
        _EKS,
    ),
    Rule(("cluster.kubernetesVersion", "cluster.addonVersions"), _kube_proxy_fits, _EKS),
)
