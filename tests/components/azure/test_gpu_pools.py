"""Several GPU pools on AKS: an agent pool each, in its own zone."""

import re
from functools import cache

import yaml

from components.cost import estimate
from tests.components.azure.aks_stack import aks_config, all_features_stack, declare_aks
from tests.components.recorder import Graph

POOLS = [
    {
        "name": "t4one",
        "zone": "1",
        "vmSize": "Standard_NC4as_T4_v3",
        "maxPrice": 0.25,
        "fallbackNodes": 2,
    },
    {"name": "t4two", "zone": "2", "vmSize": "Standard_NC4as_T4_v3", "maxNodes": 4},
]
ONE, TWO, FALLBACK = (f"aks-cluster-pools-{name}" for name in ("t4one", "t4two", "t4oneod"))
MAX_NAME_LENGTH = 12  # AKS, Linux


@cache
def two_pools() -> Graph:
    return declare_aks(cluster={"gpuPools": POOLS})


def test_each_pool_is_an_agent_pool_in_its_zone_with_its_own_price_ceiling() -> None:
    pools = {resource.name: resource.inputs for resource in two_pools().of_type("AgentPool")}

    assert set(pools) == {ONE, TWO, FALLBACK}
    assert [pools[name]["availabilityZones"] for name in (ONE, TWO, FALLBACK)] == [
        ["1"],
        ["2"],
        ["1"],
    ]
    assert [pools[name]["spotMaxPrice"] for name in (ONE, TWO)] == [0.25, -1]
    assert [pools[name]["maxCount"] for name in (ONE, TWO, FALLBACK)] == [6, 4, 2]
    assert {pools[name]["minCount"] for name in pools} == {0}
    for inputs in pools.values():
        assert len(inputs["agentPoolName"]) <= MAX_NAME_LENGTH


def test_the_fallback_is_on_demand_without_a_price_ceiling() -> None:
    inputs = two_pools()[FALLBACK].inputs

    assert inputs["scaleSetPriority"] == "Regular"
    assert "spotMaxPrice" not in inputs
    assert inputs["nodeTaints"] == ["everstep.dev/spot=true:NoSchedule"]


def test_nodes_of_every_pool_have_the_label_that_workers_select_and_the_name_of_their_pool() -> (
    None
):
    for name, pool in ((ONE, "t4one"), (TWO, "t4two"), (FALLBACK, "t4one")):
        labels = two_pools()[name].inputs["nodeLabels"]
        assert labels["everstep.dev/pool"] == "gpu-spot"
        assert labels["everstep.dev/gpu-pool"] == pool
    for resource in all_features_stack().some_of_type("AgentPool"):
        assert "everstep.dev/gpu-pool" not in resource.inputs["nodeLabels"]


def test_the_autoscaler_tries_spot_pools_in_their_order_and_fallbacks_last() -> None:
    profile = two_pools().one("ManagedCluster").inputs["autoScalerProfile"]
    ranks = yaml.safe_load(two_pools()["aks-cluster-priorities"].inputs["data"]["priorities"])
    patterns = [pattern for _, (pattern,) in sorted(ranks.items(), reverse=True)]

    assert profile["expander"] == "priority"
    assert patterns == ["^aks-t4one-", "^aks-t4two-", "^aks-t4oneod-"]
    assert not re.search(patterns[0], "aks-t4oneod-31-vmss")


def test_the_only_remaining_pool_keeps_its_name() -> None:
    graph = declare_aks(cluster={"gpuPools": POOLS[1:]})

    assert [resource.name for resource in graph.of_type("AgentPool")] == [TWO]


def test_the_cost_counts_every_pool_and_its_fallback() -> None:
    items = {
        (item.component, item.name): (item.count, item.maximum)
        for item in estimate(aks_config(cluster={"gpuPools": POOLS})).items
    }

    assert items["GPU pool t4one", "Standard_NC4as_T4_v3"] == (3, 6)
    assert items["GPU pool t4two", "Standard_NC4as_T4_v3"] == (0, 4)
    assert items["GPU pool t4oneod", "Standard_NC4as_T4_v3"] == (0, 2)
