"""Several GPU pools on EKS: a node group each, in its own zone."""

import json
import re
from functools import cache
from typing import Any

import pytest
import yaml

from components.aws.autoscaler import priorities
from components.cost import as_text, estimate
from components.spending import zone_prices
from controller.placement_settings import read_settings
from tests.components.aws.eks_stack import (
    cluster_of,
    declare_eks,
    declare_training,
    eks_config,
    plain_stack,
)
from tests.components.recorder import Graph

POOLS = [
    {"name": "near", "zone": "us-east-1b", "instanceTypes": ["g5.xlarge"], "fallbackNodes": 2},
    {"name": "far", "zone": "us-east-1a", "instanceTypes": ["g6.xlarge"], "maxNodes": 4},
]
NEAR, FAR, FALLBACK = (f"eks-nodes-gpu-{name}" for name in ("near", "far", "near-on-demand"))


@cache
def two_pools() -> Graph:
    return declare_eks(cluster={"gpuPools": POOLS})


@cache
def stack_of(*, spread: bool, pools: bool = True, controller: str = "maintained") -> Graph:
    """Declare a stack with a training job and with two GPU pools or one."""
    return declare_training(
        cluster={"gpuPools": POOLS} if pools else {},
        job={"name": "fashion", "spreadZones": spread},
        controller={"kind": controller, "image": "registry.example/controller:1"},
    )


def job_of(*, spread: bool, pools: bool = True, controller: str = "maintained") -> dict[str, Any]:
    """Return the ElasticJob of a stack."""
    graph = stack_of(spread=spread, pools=pools, controller=controller)
    return dict(graph["training-job-fashion"].inputs)


def affinity_of(job: dict[str, Any]) -> dict[str, Any]:
    """Return the affinity of a worker's pod."""
    affinity: dict[str, Any] = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["affinity"]
    return affinity


def test_each_pool_is_a_node_group_in_its_zone_named_after_the_pool() -> None:
    groups = {resource.name: resource.inputs for resource in two_pools().of_type("NodeGroup")}

    assert set(groups) == {"eks-nodes-system", NEAR, FAR, FALLBACK}
    assert groups[NEAR]["nodeGroupName"] == "everstep-gpu-near"
    assert groups[NEAR]["subnetIds"] == ["eks-network-private-us-east-1b-id"]
    assert groups[FAR]["subnetIds"] == ["eks-network-private-us-east-1a-id"]
    assert groups[FAR]["scalingConfig"] == {"minSize": 0, "desiredSize": 0, "maxSize": 4}
    assert groups[FALLBACK]["nodeGroupName"] == "everstep-gpu-near-on-demand"
    assert groups[FALLBACK]["subnetIds"] == groups[NEAR]["subnetIds"]
    assert groups[FALLBACK]["scalingConfig"] == {"minSize": 0, "desiredSize": 0, "maxSize": 2}


def test_a_pool_added_before_the_others_renames_none_of_them() -> None:
    first = {"name": "first", "zone": "us-east-1a", "instanceTypes": ["g5.xlarge"]}
    groups = {resource.name for resource in two_pools().of_type("NodeGroup")}

    graph = declare_eks(cluster={"gpuPools": [first, *POOLS]})

    assert groups < {resource.name for resource in graph.of_type("NodeGroup")}, (
        "a renamed group would be deleted with its running workers"
    )


def test_nodes_of_every_pool_have_the_label_that_workers_select_and_the_name_of_their_pool() -> (
    None
):
    for group, pool in ((NEAR, "near"), (FAR, "far"), (FALLBACK, "near")):
        labels = two_pools()[group].inputs["labels"]
        assert labels["everstep.dev/pool"] == "gpu-spot"
        assert labels["everstep.dev/gpu-pool"] == pool
    assert "everstep.dev/gpu-pool" not in plain_stack()["eks-nodes-gpu-spot"].inputs["labels"]


def test_the_file_system_and_the_gateway_are_in_the_zone_of_the_first_pool() -> None:
    file_system = two_pools().one("LustreFileSystem").inputs

    assert file_system["subnetIds"] == "eks-network-private-us-east-1b-id"
    assert [resource.name for resource in two_pools().of_type("NatGateway")] == [
        "eks-network-nat-us-east-1b"
    ]


@pytest.mark.parametrize("per_zone", [False, True])
def test_a_pool_in_a_zone_without_control_plane_gets_a_subnet_there_and_changes_no_other_resource(
    per_zone: bool,
) -> None:
    network = {"natPerZone": per_zone}
    new = {"name": "new", "zone": "us-east-1e", "instanceTypes": ["g5.xlarge"]}
    before = declare_eks(cluster={"gpuPools": POOLS, "network": network})
    after = declare_eks(cluster={"gpuPools": [*POOLS, new], "network": network})

    assert after["eks-nodes-gpu-new"].inputs["subnetIds"] == ["eks-network-private-us-east-1e-id"]
    assert after.one("Cluster").inputs == before.one("Cluster").inputs, "EKS would refuse its zone"
    for kind in ("Subnet", "NatGateway", "Route", "NodeGroup"):
        old = {resource.name: resource.inputs for resource in before.of_type(kind)}
        now = {resource.name: resource.inputs for resource in after.of_type(kind)}
        assert {name: now[name] for name in old} == old
    gateways = {resource.name for resource in after.of_type("NatGateway")}
    assert ("eks-network-nat-us-east-1e" in gateways) is per_zone


def scaling_groups(names: list[str]) -> list[str]:
    return [f"eks-everstep-gpu-{name}-7cc1a1b2-0123-4567-89ab-0123456789ab" for name in names]


def test_the_autoscaler_tries_spot_pools_in_their_order_and_fallbacks_last() -> None:
    config_map = two_pools()["eks-autoscaler-preference"].inputs["data"]["priorities"]
    ranks: dict[int, list[str]] = yaml.safe_load(config_map)
    groups = scaling_groups(["near-on-demand", "far", "near"])
    priority = {
        group: max(rank for rank, (pattern,) in ranks.items() if re.search(pattern, group))
        for group in groups
    }

    assert sorted(groups, key=lambda group: -priority[group]) == scaling_groups(
        ["near", "far", "near-on-demand"]
    )
    assert ranks[1] == [".*"], "the system group has the lowest priority"


def test_a_pattern_matches_only_the_group_of_its_pool() -> None:
    pools = [
        {"name": name, "zone": "us-east-1a", "instanceTypes": ["g5.xlarge"]}
        for name in ("a", "a-b", "a-00000000")
    ]
    table = priorities(cluster_of(gpuPools=pools))
    groups = scaling_groups(["a", "a-b", "a-00000000"])

    for rank, group in zip((30, 20, 10), groups, strict=True):
        assert [match for match in groups if re.search(table[rank], match)] == [group]


def test_every_zone_with_efa_has_its_own_placement_group() -> None:
    efa = {"efa": True, "instanceTypes": ["p4d.24xlarge"]}
    pools = [{**pool, **efa} for pool in POOLS]
    graph = declare_eks(cluster={"gpuPools": pools})

    names = {resource.inputs["name"] for resource in graph.of_type("PlacementGroup")}
    assert names == {"everstep-us-east-1a-gpu", "everstep-us-east-1b-gpu"}
    first, second, fallback = (
        graph[f"{group}-template"].inputs["placement"] for group in (NEAR, FAR, FALLBACK)
    )
    assert first == fallback != second, "a placement group is in one zone"
    tags = {resource.name for resource in graph.of_type("Tag")}
    for group in (NEAR, FAR, FALLBACK):
        assert {f"{group}-efa", f"{group}-huge-pages"} <= tags, "it would not scale from zero"


def test_the_controller_gets_the_zones_in_order_of_preference_unless_workers_are_spread() -> None:
    annotations = job_of(spread=False)["metadata"]["annotations"]
    assert json.loads(annotations["everstep.dev/placement"])["zones"] == [
        "us-east-1b",
        "us-east-1a",
    ]
    for job in (job_of(spread=True), job_of(spread=False, pools=False)):
        assert "everstep.dev/placement" not in job["metadata"]["annotations"]
    assert "podAffinity" not in affinity_of(job_of(spread=False)), (
        "a worker of the new zone could not start while the old zone's workers run"
    )


def test_the_controller_gets_the_price_of_each_zone() -> None:
    config = eks_config(cluster={"gpuPools": POOLS})
    annotation = json.loads(
        job_of(spread=False)["metadata"]["annotations"]["everstep.dev/placement"]
    )

    assert annotation["usdPerHour"] == zone_prices(config)
    assert annotation["usdPerHour"].keys() == {"us-east-1a", "us-east-1b"}
    settings, faults = read_settings(json.dumps(annotation))
    assert faults == ()
    assert settings is not None
    assert settings.usd_per_hour == annotation["usdPerHour"]
    platform = stack_of(spread=False).outputs["platform"]
    assert platform["zonePrices"] == annotation["usdPerHour"], "for jobs of other stacks"


def test_with_the_upstream_controller_the_scheduler_keeps_workers_in_one_zone() -> None:
    upstream = job_of(spread=False, controller="upstream")
    assert "everstep.dev/placement" not in upstream["metadata"]["annotations"]
    term = {
        "topologyKey": "topology.kubernetes.io/zone",
        "labelSelector": {"matchLabels": {"job-name": "fashion"}},
    }

    assert affinity_of(upstream)["podAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": [term]
    }
    spread = affinity_of(job_of(spread=True, controller="upstream"))
    assert "podAffinity" not in spread
    for affinity in (affinity_of(upstream), spread):
        (other,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert other["topologyKey"] == "kubernetes.io/hostname"


def test_one_pool_needs_no_rule_about_zones() -> None:
    one_pool = job_of(spread=False, pools=False, controller="upstream")
    assert set(affinity_of(one_pool)) == {"podAntiAffinity"}, (
        "a changed template would replace the job of every stack"
    )


def test_the_cost_counts_every_pool_and_its_fallback() -> None:
    items = {
        (item.component, item.name): (item.count, item.maximum)
        for item in estimate(eks_config(cluster={"gpuPools": POOLS})).items
    }

    assert items["GPU pool near", "g5.xlarge"] == (3, 6)
    assert items["GPU fallback near", "g5.xlarge"] == (0, 2)
    assert items["GPU pool far", "g6.xlarge"] == (0, 4)
    assert items["GPU pool far", "disk of 100 GiB"] == (0, 4)


def test_workers_beyond_the_first_pool_are_priced_in_the_next_one_of_its_zone() -> None:
    pools = [{**POOLS[0], "maxNodes": 2}, POOLS[1], {**POOLS[0], "name": "more"}]
    config = eks_config(cluster={"gpuPools": pools})

    counts = {item.component: item.count for item in estimate(config).items}

    assert [counts[f"GPU pool {name}"] for name in ("near", "far", "more")] == [2, 0, 1]


@pytest.mark.parametrize("spread", [False, True])
def test_the_cost_states_the_price_of_traffic_between_zones(spread: bool) -> None:
    config = eks_config(cluster={"gpuPools": POOLS}, job={"spreadZones": spread})

    text = as_text(estimate(config))

    assert "in us-east-1a read and write the file system in us-east-1b across zones: 0.02" in text
    assert ("gradients cross zones in every step: 0.02 USD per GB" in text) is spread
    assert "across zones" not in as_text(estimate(eks_config()))
