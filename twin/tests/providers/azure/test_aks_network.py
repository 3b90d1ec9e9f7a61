"""Addresses of an AKS cluster and of its nodes' network."""

import pytest
from cloudtwin.providers.azure.aks_network import (
    cluster_fits,
    pod_overlap,
    pool_fits,
    service_overlap,
)
from cloudtwin.providers.azure.aks_rules import POOL
from cloudtwin.providers.azure.network import NETWORK
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import ProviderConfig, ResourceRequest
from cloudtwin.providers.protocol.values import Object

from twin.tests.providers.azure.cases import AKS, INLINE, NODES, VNET, cluster, resource, subnet

OVERLAY = {"networkPlugin": "azure", "networkPluginMode": "overlay"}
FLAT = {"networkPlugin": "azure"}


def request_for(inputs: Object, *resources: Resource, name: str = AKS) -> ResourceRequest:
    """Return a request for a cluster or a pool in a subscription with other resources."""
    config = ProviderConfig(cloud="azure-native")
    return ResourceRequest(
        inputs=inputs, config=config, account=Inventory(resources), entropy="", id=name
    )


def with_network(profile: Object, **pool: object) -> Object:
    """Return the inputs of a cluster with a network profile and one inline pool."""
    pools = [{"name": "system", "vnetSubnetID": NODES, **pool}]
    return {"networkProfile": profile, "agentPoolProfiles": pools}


@pytest.mark.parametrize(
    ("profile", "reasons"),
    [
        ({}, 1),
        ({"serviceCidr": "10.0.0.0/24"}, 1),
        ({"serviceCidr": "10.2.0.0/16"}, 0),
        ({"serviceCidrs": ["fd00::/108", "10.0.0.0/20"]}, 1),
        ({"serviceCidrs": ["fd00::/108", "10.2.0.0/16"]}, 0),
    ],
)
def test_the_block_of_the_services_is_outside_all_subnets_of_the_nodes_network(
    profile: Object, reasons: int
) -> None:
    request = request_for(with_network(profile), subnet())

    assert len(list(service_overlap(request))) == reasons


@pytest.mark.parametrize(
    ("profile", "reasons"),
    [
        ({}, 1),
        ({"networkPlugin": "kubenet"}, 1),
        (OVERLAY, 1),
        (FLAT, 0),
        ({"networkPlugin": "none"}, 0),
        ({**OVERLAY, "podCidr": "10.0.0.0/16"}, 0),
        ({**OVERLAY, "podCidr": "10.247.0.0/16"}, 1),
    ],
)
def test_pods_with_their_own_block_are_outside_the_nodes_network(
    profile: Object, reasons: int
) -> None:
    space = {"addressSpace": {"addressPrefixes": ["10.244.0.0/14"]}}
    request = request_for(with_network(profile), resource(NETWORK, VNET, space))

    assert len(list(pod_overlap(request))) == reasons


@pytest.mark.parametrize(
    ("pool", "nodes"),
    [
        ({"count": 4}, 5),
        ({"count": 1, "enableAutoScaling": True, "maxCount": 4}, 5),
        ({"count": 5, "upgradeSettings": {"maxSurge": "0"}}, 5),
        ({"count": 5, "scaleSetPriority": "Spot"}, 5),
    ],
)
def test_the_overlay_has_a_24_for_each_node_of_all_pools_and_one_surge_node(
    pool: Object, nodes: int
) -> None:
    small, sufficient = (
        request_for(with_network({**OVERLAY, "podCidr": block}, **pool))
        for block in ("10.240.100.0/22", "10.240.0.0/21")
    )

    (reason,) = cluster_fits(small)

    assert reason.startswith(
        f"Pre-allocated IPs {nodes * 256} exceeds IPs available 1024 in Subnet Cidr 10.240.100.0/22, Subnet Name "
        "networkProfile.podCIDR."
    )
    assert list(cluster_fits(sufficient)) == []


@pytest.mark.parametrize(
    ("profile", "pool", "required"),
    [
        (FLAT, {"count": 9}, 310),
        (FLAT, {"count": 9, "maxPods": 110}, 1110),
        (FLAT, {"count": 9, "podSubnetID": f"{VNET}/subnets/pods"}, None),
        (OVERLAY, {"count": 9}, None),
        ({"networkPlugin": "kubenet"}, {"count": 9}, None),
        (OVERLAY, {"count": 251}, 252),
    ],
)
def test_pods_without_their_own_block_have_addresses_in_the_subnet_of_the_nodes(
    profile: Object, pool: Object, required: int | None
) -> None:
    profile = {"podCidr": "172.16.0.0/12", **profile}
    reasons = list(cluster_fits(request_for(with_network(profile, **pool), subnet())))

    expected = [f"Pre-allocated IPs {required} exceeds IPs available 251"] if required else []
    assert [reason.partition(" in Subnet")[0] for reason in reasons] == expected


@pytest.mark.parametrize(
    ("subnet_id", "cluster_id", "is_refused"),
    [(NODES.upper(), AKS, True), (f"{VNET}/subnets/gpu", AKS, False), (NODES, f"{AKS}2", False)],
)
def test_a_pool_shares_its_subnet_with_the_other_pools_of_its_cluster(
    subnet_id: str, cluster_id: str, is_refused: bool
) -> None:
    other = resource(
        POOL, f"{cluster_id}/agentPools/other", {"count": 5, "vnetSubnetID": subnet_id}
    )
    pool = {"agentPoolName": "t4", "count": 5, "vnetSubnetID": NODES}
    small = subnet(addressPrefix="10.1.0.0/28")  # 11 addresses; the pool and the inline pool need 8
    request = request_for(pool, cluster(), small, other, name=f"{AKS}/agentPools/t4")

    assert bool(list(pool_fits(request))) is is_refused


def test_an_updated_cluster_fits_with_its_separate_pools() -> None:
    pools = [
        resource(POOL, f"{AKS}/agentPools/p{n}", {"count": 4, "vnetSubnetID": NODES})
        for n in range(2)
    ]
    request = request_for(INLINE, subnet(addressPrefix="10.1.0.0/28"), *pools)

    (reason,) = cluster_fits(request)

    assert "Pre-allocated IPs 12 exceeds IPs available 11" in reason
