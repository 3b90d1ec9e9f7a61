"""The pools of an AKS cluster: capacity, labels, taints and scaling."""

import re
from functools import cache
from typing import Any

import pytest
import yaml
from pulumi_azure_native import containerservice

from components.azure.node_pools import (
    GPU_PLACEMENT,
    SYSTEM_PLACEMENT,
    labels_of,
    priorities,
    system_pool,
    taint_of,
)
from components.config import AksConfig, AksPool, TolerationConfig
from components.config.aks import AksGpuNodesConfig
from tests.components.azure.aks_stack import (
    SNAPSHOTS,
    all_features_stack,
    cluster_of,
    declare_aks,
    plain_stack,
    spoke_stack,
)
from tests.components.recorder import Graph, RecordedResource

SPOT = "kubernetes.azure.com/scalesetpriority"


def config_of(gpu: dict[str, Any] | None = None, **cluster: Any) -> AksConfig:
    """Return the cluster section of a stack whose job has one worker, so that it fits pools of any size."""
    job = {"replicas": 1, "minReplicas": 1, "maxReplicas": 1}
    return cluster_of(cluster={"gpuPool": gpu or {}, **cluster}, job=job)


def spot_pools() -> list[RecordedResource]:
    pools = [
        resource
        for resource in all_features_stack().of_type("AgentPool")
        if resource.inputs["scaleSetPriority"] == "Spot"
    ]
    assert len(pools) == 2
    return pools


def fallback() -> RecordedResource:
    return all_features_stack()["aks-cluster-pools-ondemand"]


def test_nodes_keep_the_node_image_of_a_snapshot() -> None:
    (system,) = spoke_stack().one("ManagedCluster").inputs["agentPoolProfiles"]
    sources = {
        resource.inputs["agentPoolName"]: resource.inputs["creationData"]["sourceResourceId"]
        for resource in spoke_stack().of_type("AgentPool")
    }

    assert system["creationData"] == {"sourceResourceId": f"{SNAPSHOTS}/system"}
    assert sources == dict.fromkeys(("t4", "a100", "ondemand"), f"{SNAPSHOTS}/gpu")


def test_a_spot_pool_declares_the_label_and_the_taint_that_azure_adds() -> None:
    for pool in spot_pools():
        assert pool.inputs["nodeLabels"] == {"everstep.dev/pool": "gpu-spot", SPOT: "spot"}
        assert pool.inputs["nodeTaints"] == [f"{SPOT}=spot:NoSchedule"], (
            "if undeclared, it is reported as drift, and a later update is refused"
        )


def test_a_spot_pool_has_no_upgrade_settings() -> None:
    for pool in spot_pools():
        assert "upgradeSettings" not in pool.inputs, (
            "AKS refuses upgrade settings of spot pools, even a surge of 0"
        )


def test_no_pool_has_a_dns_cache_that_the_network_policies_would_block() -> None:
    (system,) = all_features_stack().one("ManagedCluster").inputs["agentPoolProfiles"]
    pools = all_features_stack().some_of_type("AgentPool")

    for pool in (system, *(pool.inputs for pool in pools)):
        assert pool["localDNSProfile"] == {"mode": "Disabled"}, "1.37 enables it by default"


def test_evicted_machines_are_deleted_and_the_price_is_capped_at_on_demand() -> None:
    for pool in spot_pools():
        assert pool.inputs["scaleSetEvictionPolicy"] == "Delete", "deallocated machines use quota"
        assert pool.inputs["spotMaxPrice"] == -1


def test_every_gpu_pool_is_a_scale_set_of_user_nodes_in_the_stacks_subnet() -> None:
    for pool in all_features_stack().some_of_type("AgentPool"):
        inputs = pool.inputs
        assert (inputs["type"], inputs["mode"]) == ("VirtualMachineScaleSets", "User")
        assert inputs["vnetSubnetID"].endswith("/nodes")
        assert inputs["enableNodePublicIP"] is False
        assert inputs["gpuProfile"] == {"driver": "Install"}
        assert inputs["scaleDownMode"] == "Delete"
        assert inputs["orchestratorVersion"] == "1.36"


def test_the_fallback_is_on_demand_and_has_the_labels_that_workers_select() -> None:
    inputs = fallback().inputs

    assert inputs["scaleSetPriority"] == "Regular"
    assert "scaleSetEvictionPolicy" not in inputs
    assert "spotMaxPrice" not in inputs
    assert inputs["nodeLabels"] == {
        "everstep.dev/pool": "gpu-spot",
        "everstep.dev/capacity": "on-demand",
    }
    assert inputs["nodeTaints"] == ["everstep.dev/spot=true:NoSchedule"]
    assert (inputs["count"], inputs["minCount"], inputs["maxCount"]) == (0, 0, 2), (
        "it has no nodes until a spot pool has no capacity"
    )
    assert inputs["upgradeSettings"] == {"maxSurge": "0", "maxUnavailable": "1"}, (
        "a surge needs spare GPU quota, which is rare"
    )


def test_workers_tolerate_the_taints_of_every_pool() -> None:
    tolerations = {
        (toleration.key, toleration.value, toleration.effect)
        for toleration in GPU_PLACEMENT.tolerations
    }

    for pool in all_features_stack().some_of_type("AgentPool"):
        for taint in pool.inputs["nodeTaints"]:
            key, value, effect = re.split("[=:]", taint)
            assert (key, value, effect) in tolerations
        assert GPU_PLACEMENT.selector.items() <= pool.inputs["nodeLabels"].items()


def test_a_fallback_does_not_change_the_placement_of_workers() -> None:
    # The placement is a constant: a running job is replaced when its template changes.
    assert GPU_PLACEMENT.selector == {"everstep.dev/pool": "gpu-spot"}
    assert [toleration.key for toleration in GPU_PLACEMENT.tolerations] == [
        SPOT,
        "everstep.dev/spot",
    ]


def test_the_autoscaler_changes_only_the_count() -> None:
    for pool in all_features_stack().some_of_type("AgentPool"):
        assert pool.ignore_changes == ("count",)
        assert pool.inputs["enableAutoScaling"] is True


@cache
def fixed_stack() -> Graph:
    """Declare a stack without an autoscaler, whose Kubernetes version AKS upgrades."""
    return declare_aks(
        cluster={
            "autoscaling": {"enabled": False},
            "gpuPool": {"nodes": 3},
            "upgrades": {"channel": "rapid"},
        }
    )


def test_without_an_autoscaler_the_stack_sets_the_count() -> None:
    pools = {pool.inputs["agentPoolName"]: pool for pool in fixed_stack().of_type("AgentPool")}

    assert {name: pool.inputs["count"] for name, pool in pools.items()} == {"t4": 3, "a100": 0}
    for pool in pools.values():
        assert pool.inputs["enableAutoScaling"] is False
        assert not {"minCount", "maxCount"} & set(pool.inputs), "they are the autoscaler's"
        assert "count" not in pool.ignore_changes, "a changed number would have no effect"


def test_a_version_that_aks_upgrades_is_ignored() -> None:
    for pool in fixed_stack().some_of_type("AgentPool"):
        assert pool.ignore_changes == ("orchestratorVersion",), "Kubernetes supports no downgrade"


def test_the_first_pool_starts_with_nodes_and_the_others_from_zero() -> None:
    pools = {
        node_pool.name: node_pool for node_pool in config_of({"nodes": 4, "maxNodes": 8}).pools
    }

    assert {
        name: (node_pool.nodes, node_pool.min_nodes, node_pool.max_nodes)
        for name, node_pool in pools.items()
    } == {
        "t4": (4, 0, 8),
        "a100": (0, 0, 8),
    }


def test_pools_after_the_first_start_with_their_minimum_number_of_nodes() -> None:
    pools = config_of({"minNodes": 2, "nodes": 3, "maxNodes": 4}).pools

    assert [(node_pool.nodes, node_pool.min_nodes, node_pool.max_nodes) for node_pool in pools] == [
        (3, 2, 4),
        (2, 2, 4),
    ]


def test_on_demand_capacity_has_no_spot_pool_and_no_fallback() -> None:
    pools = config_of({"capacity": "onDemand"}).pools

    assert [node_pool.name for node_pool in pools] == ["t4", "a100"]
    for pool in pools:
        assert not pool.spot
        assert taint_of(pool) == TolerationConfig(key="everstep.dev/spot", value="true")
        assert labels_of(pool)["everstep.dev/capacity"] == "on-demand"


def test_the_fallback_has_the_first_vm_size() -> None:
    sizes = [
        {"name": "b", "vmSize": "Standard_NV36ads_A10_v5"},
        {"name": "a", "vmSize": "Standard_NC4as_T4_v3"},
    ]

    *_, fallback_pool = config_of({"vmSizes": sizes, "fallbackNodes": 3}).pools

    assert (fallback_pool.name, fallback_pool.vm_size, fallback_pool.max_nodes) == (
        "ondemand",
        "Standard_NV36ads_A10_v5",
        3,
    )


def pool(name: str) -> AksPool:
    settings = AksGpuNodesConfig()
    return AksPool(
        key="",
        zones_key="",
        name=name,
        vm_size="x",
        zones=(),
        min_nodes=0,
        nodes=0,
        max_nodes=1,
        spot=True,
        settings=settings,
    )


def test_the_autoscaler_tries_the_pools_in_configured_order() -> None:
    table = yaml.safe_load(priorities([pool("t4"), pool("a10"), pool("ondemand")]))
    best_first = [patterns for _, patterns in sorted(table.items(), reverse=True)]

    assert best_first == [["^aks-t4-"], ["^aks-a10-"], ["^aks-ondemand-"]]
    assert all(isinstance(number, int) and number > 0 for number in table)


def test_a_pattern_matches_only_the_scale_set_of_its_pool() -> None:
    table = yaml.safe_load(priorities([pool("t4"), pool("t4a")]))
    matches = {
        rank: [name for name in ("t4", "t4a", "at4") if re.search(pattern, f"aks-{name}-31-vmss")]
        for rank, (pattern,) in table.items()
    }

    assert matches == {20: ["t4"], 10: ["t4a"]}


def test_the_priorities_are_in_the_config_map_that_the_autoscaler_reads() -> None:
    inputs = plain_stack()["aks-cluster-priorities"].inputs

    assert inputs["metadata"] == {
        "name": "cluster-autoscaler-priority-expander",
        "namespace": "kube-system",
    }
    assert "^aks-t4-" in inputs["data"]["priorities"]


def system_profile(config: AksConfig) -> containerservice.ManagedClusterAgentPoolProfileArgs:
    return system_pool(config, "subnet", {"owner": "vision"})


def test_the_system_pool_is_on_demand_and_tainted() -> None:
    (actual,) = plain_stack().one("ManagedCluster").inputs["agentPoolProfiles"]

    assert (actual["name"], actual["mode"]) == ("system", "System")
    assert "scaleSetPriority" not in actual, "AKS allows no spot capacity in system pools"
    assert actual["nodeTaints"] == ["CriticalAddonsOnly=true:NoSchedule"]
    assert actual["nodeLabels"] == {"everstep.dev/pool": "system"}
    assert actual["enableNodePublicIP"] is False


def test_pods_of_the_system_pool_tolerate_its_taint() -> None:
    (taint,) = SYSTEM_PLACEMENT.tolerations

    assert (taint.key, taint.value, taint.effect) == ("CriticalAddonsOnly", "true", "NoSchedule")
    assert SYSTEM_PLACEMENT.selector == {"everstep.dev/pool": "system"}


def test_the_system_pool_scales_only_if_configured() -> None:
    fixed_pool = system_profile(config_of(systemPool={"nodes": 3, "maxNodes": 3}))
    growing_pool = system_profile(config_of(systemPool={"nodes": 2, "maxNodes": 5}))

    assert (fixed_pool.enable_auto_scaling, fixed_pool.min_count, fixed_pool.max_count) == (
        False,
        None,
        None,
    )
    assert (growing_pool.enable_auto_scaling, growing_pool.min_count, growing_pool.max_count) == (
        True,
        2,
        5,
    )


@pytest.mark.parametrize(("zones", "expected"), [([], None), (["1", "3"], ["1", "3"])])
def test_zones_come_from_the_configuration(zones: list[str], expected: list[str] | None) -> None:
    assert system_profile(config_of(systemPool={"zones": zones})).availability_zones == expected


@pytest.mark.parametrize(
    "change",
    [
        {"capacity": "onDemand"},
        {"maxPrice": 2},
        {"zones": ["1"]},
        {"diskGib": 256},
        {"driver": "None"},
    ],
)
def test_a_property_that_aks_cannot_change_replaces_the_pool(change: dict[str, Any]) -> None:
    old, new = (
        declare_aks(cluster={"gpuPool": pool})["aks-cluster-pools-t4"] for pool in ({}, change)
    )
    keys = {*old.inputs, *new.inputs}
    changed = {key for key in keys if old.inputs.get(key) != new.inputs.get(key)}
    replaced = {path.partition(".")[0] for path in new.replace_on_changes}

    assert changed & replaced, "the provider would update the pool, and AKS would refuse the update"
