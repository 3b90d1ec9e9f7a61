"""Rules of Azure Kubernetes Service about the addresses of a cluster and the virtual network of its nodes. Pure.

AKS checks them at each request for a cluster (azure-cli #20810, AKS #3551), with its defaults for absent blocks.

Sources: AKS documentation ("Azure CNI Overlay", "Plan IP addressing for your cluster"), errors of the AKS REST API in
the issues that the rules name. Read 2026-11.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from cloudtwin.providers.azure.aks_rules import (
    POOL,
    Profile,
    cluster_of,
    inline_profiles,
    profiles_after,
    subnets,
)
from cloudtwin.providers.azure.common import is_child_of, parent_of
from cloudtwin.providers.azure.network import NETWORK, SUBNET, blocks_of
from cloudtwin.providers.conditions import block_of, overlap, section
from cloudtwin.providers.inventory import Inventory, Resource, values_at
from cloudtwin.providers.model import Inputs, ResourceRequest

DEFAULT_SERVICES, DEFAULT_PODS = "10.0.0.0/16", "10.244.0.0/16"
RESERVED_ADDRESSES = 5  # addresses of a subnet that Azure uses; Virtual Network FAQ
DEFAULT_MAX_PODS = 30  # pods of a node with the plugin azure without overlay
POD_ADDRESSES = 256  # addresses of the pods of a node, a /24; AKS documentation, Azure CNI Overlay


def service_overlap(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each subnet in the nodes' network that overlaps with the Services' block."""
    services = _declared_blocks(request.inputs, "serviceCidr") or [DEFAULT_SERVICES]
    for subnet in request.account.all(SUBNET):
        blocks = (
            blocks_of(subnet.inputs) if parent_of(subnet.id).lower() in _networks(request) else ()
        )
        for service, block in product(services, blocks):
            if overlap(service, block):
                yield (
                    f"The specified service CIDR {service} is conflicted with an existing subnet CIDR {block}: use "
                    "another networkProfile.serviceCidr"
                )


def pod_overlap(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each block of the nodes' network that overlaps with the pods' block."""
    for network_id in sorted(_networks(request)):
        network = request.account.find((NETWORK,), network_id)
        space = section(network.inputs, "addressSpace").get("addressPrefixes") if network else ()
        for pods, block in product(_pod_blocks(request.inputs), space or ()):
            if overlap(pods, block):
                yield (
                    f"NetworkProfile CIDR {pods} overlaps with reserved VNET CIDR {block}: use another "
                    "networkProfile.podCidr"
                )


def _networks(request: ResourceRequest) -> set[str]:
    """Return the ids of the virtual networks of a cluster's nodes, in lower case."""
    return {parent_of(subnet).lower() for subnet in subnets(request.inputs)}


def cluster_fits(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each block that is too small for the pools of a cluster."""
    separate_pools = filter(is_child_of(request.id), request.others(POOL))
    pools = [*profiles_after(request), *(pool.inputs for pool in separate_pools)]
    yield from _shortages(request.inputs, pools, request.account)


def pool_fits(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each block that is too small for the pools of a cluster with a new or updated pool."""
    cluster = cluster_of(request)
    if cluster is None:
        return
    other_pools = filter(is_child_of(cluster.id), request.others(POOL))
    pools = [*inline_profiles(cluster), *(pool.inputs for pool in other_pools), request.inputs]
    yield from _shortages(cluster.inputs, pools, request.account)


def _shortages(cluster: Inputs, pools: Sequence[Profile], account: Inventory) -> Iterator[str]:
    nodes = sum(map(_max_nodes, pools))
    pod_blocks = [block for text in _pod_blocks(cluster) if (block := block_of(text))]
    available = sum(block.num_addresses for block in pod_blocks if block.version == 4)
    if available and nodes * POD_ADDRESSES > available:
        yield _shortage(nodes * POD_ADDRESSES, available, pod_blocks, "networkProfile.podCIDR")
    ids = {
        str(subnet_id).lower() for pool in pools for subnet_id in values_at("vnetSubnetID", pool)
    }
    for subnet in (account.find((SUBNET,), subnet_id) for subnet_id in sorted(ids)):
        if subnet is not None:
            yield from _subnet_shortage(cluster, pools, subnet)


def _subnet_shortage(cluster: Inputs, pools: Sequence[Profile], subnet: Resource) -> Iterator[str]:
    users = [pool for pool in pools if str(pool.get("vnetSubnetID")).lower() == subnet.id.lower()]
    required = sum(_max_nodes(pool) * _node_addresses(cluster, pool) for pool in users)
    blocks = [block for text in blocks_of(subnet.inputs) if (block := block_of(text))]
    sizes = [block.num_addresses - RESERVED_ADDRESSES for block in blocks if block.version == 4]
    if sizes and required > sum(sizes):
        yield _shortage(required, sum(sizes), blocks, subnet.id.rpartition("/")[2])


def _shortage(required: int, available: int, blocks: Iterable[object], name: str) -> str:
    block_list = ", ".join(map(str, blocks))
    return (
        f"Pre-allocated IPs {required} exceeds IPs available {available} in Subnet Cidr {block_list}, Subnet Name "
        f"{name}. The max-count from each autoscaled nodepool is counted: lower it, or use a larger block"
    )


def _max_nodes(pool: Profile) -> int:
    """Return the maximum number of nodes of a pool, with a surge node of an upgrade (AKS #4467)."""
    count = pool.get("maxCount") if pool.get("enableAutoScaling") else pool.get("count")
    surge = section(pool, "upgradeSettings").get("maxSurge")
    has_surge = pool.get("scaleSetPriority") != "Spot" and surge not in ("0", "0%")
    return int(1 if count is None else count) + has_surge


def _node_addresses(cluster: Inputs, pool: Profile) -> int:
    """Return the addresses of a node in its subnet: its own, and its pods' if they have no block or subnet."""
    profile = section(cluster, "networkProfile")
    is_flat = profile.get("networkPlugin") == "azure" and not _has_overlay(profile)
    if not is_flat or pool.get("podSubnetID"):
        return 1
    return 1 + int(pool.get("maxPods") or DEFAULT_MAX_PODS)


def _has_overlay(profile: Inputs) -> bool:
    return profile.get("networkPluginMode") == "overlay"


def _pod_blocks(cluster: Inputs) -> list[Any]:
    """Return the blocks of the pods; none if they have addresses of the virtual network, or their own plugin's."""
    profile = section(cluster, "networkProfile")
    if profile.get("networkPlugin") in ("azure", "none") and not _has_overlay(profile):
        return []
    return _declared_blocks(cluster, "podCidr") or [DEFAULT_PODS]


def _declared_blocks(cluster: Inputs, name: str) -> list[Any]:
    """Return the blocks in `name` and in the list of its plural, which a dual-stack cluster has."""
    profile = section(cluster, "networkProfile")
    return list(dict.fromkeys([*values_at(name, profile), *values_at(f"{name}s.*", profile)]))
