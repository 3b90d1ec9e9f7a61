"""Rules across the keys of a cluster on EKS: network, node pools and Kubernetes version."""

import ipaddress
from collections.abc import Mapping, Sequence

from cloudfacts import aws

from components.cidr import MAX_VPC_PREFIX_LENGTH, MIN_VPC_PREFIX_LENGTH, overlap
from components.config import catalog
from components.config.eks import EksNamedPoolConfig, EksReservationConfig
from components.config.faults import ConfigFault, nearest_hint
from components.config.network_rules import (
    overlap_faults,
    public_address_faults,
    unroutable_faults,
    wide_range_faults,
)
from components.config.newer_names import is_newer_type, zones_in
from components.config.pool_rules import (
    SEVERAL_POOLS,
    count_faults,
    duplicate_faults,
    gpu_count_faults,
    worker_node_faults,
)
from components.config.rules import ConfigRule, Flag

SERVICE_PREFIXES = range(12, 25)  # EKS: /12 to /24
SHARED_BLOCK = "100.64.0.0/10"  # private, but EKS allows only RFC 1918 for Services


def _zones_of_region(region: str, zones: Sequence[str]) -> list[ConfigFault]:
    """Check that the zones belong to the region and are listed once."""
    region_zones = zones_in(region)
    faults = [
        ConfigFault(
            f"cluster.zones[{index}]",
            zone,
            f"is not a zone of {region}",
            nearest_hint(zone, region_zones),
        )
        for index, zone in enumerate(zones)
        if zone not in region_zones
    ]
    if len(set(zones)) < len(zones):
        fix = "list different zones: nodes of one zone fail together"
        faults.append(ConfigFault("cluster.zones", ", ".join(zones), "lists a zone twice", fix))
    return faults


def _gpu_zone_known(region: str, zone: str | None) -> list[ConfigFault]:
    """Check that the zone of the GPU nodes belongs to the region."""
    region_zones = zones_in(region)
    if zone is None or zone in region_zones:
        return []
    fix = nearest_hint(zone, region_zones)
    return [ConfigFault("cluster.gpuPool.zone", zone, f"is not a zone of {region}", fix)]


def _vpc_size(cidr: str) -> list[ConfigFault]:
    """Check that the VPC is private, within the limit of AWS and large enough for all pods."""
    path, prefix = "cluster.network.cidr", ipaddress.IPv4Network(cidr).prefixlen
    if prefix < MIN_VPC_PREFIX_LENGTH:
        fix = f"use /{MIN_VPC_PREFIX_LENGTH}, such as 10.0.0.0/16"
        return [
            ConfigFault(
                path, cidr, f"is larger than AWS allows for a VPC (/{MIN_VPC_PREFIX_LENGTH})", fix
            )
        ]
    if prefix > MAX_VPC_PREFIX_LENGTH:
        fix = f"use /{MAX_VPC_PREFIX_LENGTH} or larger, such as 10.0.0.0/16"
        return [ConfigFault(path, cidr, "is too small: every pod uses an address of the VPC", fix)]
    return public_address_faults(path, cidr)


def _service_block(cidr: str, vpc_cidr: str) -> list[ConfigFault]:
    """Check that serviceCidr is private, within the limits of EKS and outside the VPC."""
    path, prefix = "cluster.network.serviceCidr", ipaddress.IPv4Network(cidr).prefixlen
    if prefix not in SERVICE_PREFIXES:
        return [ConfigFault(path, cidr, "must be /12 to /24", "use one such as 172.20.0.0/16")]
    if overlap(cidr, SHARED_BLOCK):
        rule, fix = f"is in {SHARED_BLOCK}, which EKS refuses", "use one such as 172.20.0.0/16"
        return [ConfigFault(path, cidr, rule, fix)]
    return public_address_faults(path, cidr) + overlap_faults(
        {path: cidr, "cluster.network.cidr": vpc_cidr}
    )


def _existing_vpc_complete(
    vpc: str | None,
    subnets: Mapping[str, str],
    zones: Sequence[str],
    gpu_zone: str | None,
    pools: Sequence[EksNamedPoolConfig],
) -> list[ConfigFault]:
    """Check that an existing VPC has a private subnet for every zone of the cluster and of the GPU pools."""
    path = "cluster.network.privateSubnetIds"
    if vpc is None:
        if not subnets:
            return []
        fix = "add cluster.network.vpcId, or remove the subnets so that new ones are created"
        return [ConfigFault(path, ", ".join(subnets), "is set without a VPC", fix)]
    gpu_zones = {pool.zone for pool in pools} or ({gpu_zone} if gpu_zone else set())
    used_zones = gpu_zones.union(zones)
    missing, unknown = used_zones - set(subnets), set(subnets) - used_zones
    faults = []
    if missing:
        rule = f"has no subnet for {', '.join(sorted(missing))}, in which the cluster has nodes"
        faults.append(ConfigFault(path, ", ".join(subnets) or None, rule, "add ZONE: SUBNET_ID"))
    if unknown:
        rule = f"lists {', '.join(sorted(unknown))}, in which the cluster has no nodes"
        faults.append(
            ConfigFault(
                path, ", ".join(subnets), rule, "remove it, or add the zone to cluster.zones"
            )
        )
    if len(set(subnets.values())) < len(subnets):
        rule, fix = (
            "has one subnet for two zones",
            "use one subnet for each zone: a subnet belongs to one zone",
        )
        faults.append(ConfigFault(path, ", ".join(subnets.values()), rule, fix))
    return faults


def _public_access_narrow(ranges: Sequence[str]) -> list[ConfigFault]:
    """Check that the ranges allowed to reach the API are narrow, publicly routable and listed once."""
    return [
        fault
        for index, cidr in enumerate(ranges)
        for path in [f"cluster.publicAccess[{index}]"]
        for fault in wide_range_faults(path, cidr) or unroutable_faults(path, cidr)
    ] + duplicate_faults("cluster.publicAccess", ranges)


def _administrators_unique(arns: Sequence[str]) -> list[ConfigFault]:
    """Check that no administrator is listed twice: a principal has one access entry."""
    return duplicate_faults("cluster.administrators", arns)


def _boundary_in_account(boundary: str | None, account: str | None) -> list[ConfigFault]:
    """Check that the permissions boundary is a policy of the stack's account or of AWS."""
    if boundary is None or account is None or boundary.split(":")[4] in (account, "aws"):
        return []
    rule = f"is not a policy of cluster.account ({account})"
    fix = "name a policy of that account, or correct the account"
    return [ConfigFault("cluster.iam.permissionsBoundary", boundary, rule, fix)]


def _key_in_region(key: str | None, region: str) -> list[ConfigFault]:
    """Check that the KMS key is in the stack's region: the services accept no key of another region."""
    if key is None or key.split(":")[3] == region:
        return []
    rule = f"is not a key in cluster.region ({region})"
    fix = "name a key of that region; a multi-Region key has an ARN in each"
    return [ConfigFault("cluster.kmsKeyArn", key, rule, fix)]


def _system_counts(nodes: int, maximum: int) -> list[ConfigFault]:
    """Check the node counts of the system pool."""
    return count_faults("cluster.systemPool", minimum=1, nodes=nodes, maximum=maximum)


def _system_types_fit(types: Sequence[str]) -> list[ConfigFault]:
    """Check that the instance types of system nodes exist, are x86 without GPUs, and are listed once."""
    faults = []
    for index, machine in enumerate(types):
        path = f"cluster.systemPool.instanceTypes[{index}]"
        if aws.family(machine) in aws.gpu_families():
            rule = "has GPUs, which no pod on the system pool uses"
            faults.append(ConfigFault(path, machine, rule, "use one such as m6i.xlarge"))
        elif _has_other_cpu(machine):
            rule = "has a CPU or operating system for which there are no images: they are for Linux on x86"
            faults.append(ConfigFault(path, machine, rule, "use one such as m6i.xlarge"))
        elif machine not in aws.INSTANCE_TYPE_NAMES and not is_newer_type(machine):
            fix = nearest_hint(machine, sorted(aws.INSTANCE_TYPE_NAMES))
            faults.append(ConfigFault(path, machine, "is not a known instance type", fix))
    return faults + duplicate_faults("cluster.systemPool.instanceTypes", types)


def _has_other_cpu(machine: str) -> bool:
    """Return True for an Arm CPU or a Mac; a type that is newer than the table is judged by its name."""
    if machine in aws.INSTANCE_TYPES:
        return aws.INSTANCE_TYPES[machine].architecture != "x86_64"
    family = aws.family(machine)
    is_graviton = "g" in family.lstrip("abcdefghijklmnopqrstuvwxyz")  # m7g, c8gn
    return is_graviton or family.startswith("mac")


def _gpu_counts(minimum: int, nodes: int, maximum: int) -> list[ConfigFault]:
    """Check the node counts of the GPU pool."""
    return count_faults("cluster.gpuPool", minimum=minimum, nodes=nodes, maximum=maximum)


def _gpu_types_interchangeable(types: Sequence[str], per_worker: int) -> list[ConfigFault]:
    """Check that the instance types are interchangeable and listed once, and that a worker fits on each."""
    path = "cluster.gpuPool.instanceTypes"
    faults = gpu_count_faults(
        path, {name: aws.INSTANCE_TYPES[name].gpus for name in types}, per_worker
    )
    if len(set(types)) < len(types):
        faults.append(ConfigFault(path, ", ".join(types), "lists a type twice", "remove one"))
    return faults


def _efa_one_type(efa: Flag, types: Sequence[str]) -> list[ConfigFault]:
    """Check that EFA is enabled for a single type that supports it, as a launch template requires."""
    path, efa_types = "cluster.gpuPool.efa", catalog.AWS_EFA_TYPES
    if not efa:
        return []
    if len(types) > 1:
        rule = f"needs one instance type, but instanceTypes lists {len(types)}"
        return [
            ConfigFault(
                path, "true", rule, f"keep one with EFA, such as {_efa_example(types, efa_types)}"
            )
        ]
    if types[0] not in efa_types:
        fix = f"use one with EFA, such as {_efa_example((), efa_types)}, or efa: false"
        return [ConfigFault(path, "true", f"is enabled, but {types[0]} does not support EFA", fix)]
    return []


def reservation_faults(
    pool: str, reservation: EksReservationConfig | None, capacity: str, types: Sequence[str]
) -> list[ConfigFault]:
    """Check that reserved machines are neither spot machines nor of several types.

    Args:
        pool: key of the pool.
        reservation: its reservation, if any.
        capacity: its capacity type.
        types: its instance types.
    """
    if reservation is None:
        return []
    path = f"{pool}.reservation.id"
    if capacity == "spot":
        rule = "applies only to on-demand pools, but capacity is spot"
        return [ConfigFault(path, reservation.id, rule, "set capacity to onDemand, or remove it")]
    if len(types) == 1:
        return []
    rule = f"has machines of one type, but instanceTypes lists {len(types)}"
    return [ConfigFault(path, reservation.id, rule, "keep the reserved type")]


def _reservation_valid(
    reservation: EksReservationConfig | None, capacity: str, types: Sequence[str]
) -> list[ConfigFault]:
    """Check the reservation of `cluster.gpuPool`."""
    return reservation_faults("cluster.gpuPool", reservation, capacity, types)


def _efa_example(preferred: Sequence[str], efa_types: Sequence[str]) -> str:
    """Return the first preferred instance type with EFA; without such a type, two examples."""
    return next((name for name in preferred if name in efa_types), "g5.8xlarge or p4d.24xlarge")


def _release_fits(kubernetes: str, release: str | None) -> list[ConfigFault]:
    """Check that the AMIs are of the cluster's minor version."""
    if release is None or release.startswith(f"{kubernetes}."):
        return []
    rule = f"is not for Kubernetes {kubernetes}, the version of the cluster"
    fix = f"use a release {kubernetes}.x-DATE, or remove it"
    return [ConfigFault("cluster.nodeRelease", release, rule, fix)]


def _kube_proxy_fits(kubernetes: str, versions: Mapping[str, str]) -> list[ConfigFault]:
    """Check that kube-proxy is not newer than the cluster and at most three minor versions older."""
    version = versions.get("kube-proxy")
    if version is None:
        return []
    proxy_minor, cluster_minor = (int(text.split(".")[1]) for text in (version, kubernetes))
    if cluster_minor - 3 <= proxy_minor <= cluster_minor:
        return []
    fix = f"use v{kubernetes}.x, or remove it: AWS resolves the version"
    rule = f"is not compatible with Kubernetes {kubernetes}"
    return [ConfigFault("cluster.addonVersions.kube-proxy", version, rule, fix)]


def _addon_is_installed(insights: Flag, versions: Mapping[str, str]) -> list[ConfigFault]:
    """Check that a version of CloudWatch's add-on is set only if the cluster has the add-on."""
    version = versions.get(catalog.CLOUDWATCH_ADDON)
    if insights or version is None:
        return []
    path = f"cluster.addonVersions.{catalog.CLOUDWATCH_ADDON}"
    rule = "requires cluster.monitoring.containerInsights: true"
    return [ConfigFault(path, version, rule, "set it, or remove the version")]


def _workers_have_nodes(
    replicas: int, nodes: int, maximum: int, fallback: int, autoscaling: Flag
) -> list[ConfigFault]:
    """Check that the pools allow a node for every worker."""
    return worker_node_faults(replicas, nodes, maximum + fallback, autoscaling)


_EKS = {"cluster": ("eks",)}

RULES = (
    ConfigRule(("cluster.region", "cluster.zones"), _zones_of_region, _EKS),
    ConfigRule(
        ("cluster.region", "cluster.gpuPool.zone"), _gpu_zone_known, _EKS, unless=SEVERAL_POOLS
    ),
    ConfigRule(("cluster.network.cidr",), _vpc_size, _EKS),
    ConfigRule(("cluster.network.serviceCidr", "cluster.network.cidr"), _service_block, _EKS),
    ConfigRule(
        (
            "cluster.network.vpcId",
            "cluster.network.privateSubnetIds",
            "cluster.zones",
            "cluster.gpuPool.zone",
            SEVERAL_POOLS,
        ),
        _existing_vpc_complete,
        _EKS,
    ),
    ConfigRule(("cluster.publicAccess",), _public_access_narrow, _EKS),
    ConfigRule(("cluster.administrators",), _administrators_unique, _EKS),
    ConfigRule(("cluster.iam.permissionsBoundary", "cluster.account"), _boundary_in_account, _EKS),
    ConfigRule(("cluster.kmsKeyArn", "cluster.region"), _key_in_region, _EKS),
    ConfigRule(("cluster.systemPool.nodes", "cluster.systemPool.maxNodes"), _system_counts, _EKS),
    ConfigRule(("cluster.systemPool.instanceTypes",), _system_types_fit, _EKS),
    ConfigRule(
        ("cluster.gpuPool.minNodes", "cluster.gpuPool.nodes", "cluster.gpuPool.maxNodes"),
        _gpu_counts,
        _EKS,
        unless=SEVERAL_POOLS,
    ),
    ConfigRule(
        ("cluster.gpuPool.instanceTypes", "job.gpusPerWorker"),
        _gpu_types_interchangeable,
        _EKS,
        unless=SEVERAL_POOLS,
    ),
    ConfigRule(
        ("cluster.gpuPool.efa", "cluster.gpuPool.instanceTypes"),
        _efa_one_type,
        _EKS,
        unless=SEVERAL_POOLS,
    ),
    ConfigRule(
        (
            "cluster.gpuPool.reservation",
            "cluster.gpuPool.capacity",
            "cluster.gpuPool.instanceTypes",
        ),
        _reservation_valid,
        _EKS,
        unless=SEVERAL_POOLS,
    ),
    ConfigRule(
        (
            "job.replicas",
            "cluster.gpuPool.nodes",
            "cluster.gpuPool.maxNodes",
            "cluster.gpuPool.fallbackNodes",
            "cluster.autoscaling.enabled",
        ),
        _workers_have_nodes,
        _EKS,
        unless=SEVERAL_POOLS,
    ),
    ConfigRule(("cluster.kubernetesVersion", "cluster.nodeRelease"), _release_fits, _EKS),
    ConfigRule(("cluster.kubernetesVersion", "cluster.addonVersions"), _kube_proxy_fits, _EKS),
    ConfigRule(
        ("cluster.monitoring.containerInsights", "cluster.addonVersions"), _addon_is_installed, _EKS
    ),
)
