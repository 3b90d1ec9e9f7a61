"""The pools of an AKS cluster: which there are, what they carry, who may change their size."""

import re
from typing import Any

import pytest
import yaml
from pulumi_azure_native import containerservice

from components.cluster.aks_pools import (
    GPU_PLACEMENT,
    SYSTEM_PLACEMENT,
    GpuPool,
    gpu_pools,
    priorities,
    system_pool,
)
from components.config import AksConfig, TolerationConfig
from tests.unit.components.aks_stack import cluster_of, full, plain
from tests.unit.components.recorder import Recorded

SPOT = "kubernetes.azure.com/scalesetpriority"


def config_of(gpu: dict[str, Any] | None = None, **cluster: Any) -> AksConfig:
    """A job of one worker, so that pools of any size can hold it."""
    job = {"replicas": 1, "minReplicas": 1, "maxReplicas": 1}
    return cluster_of(cluster={"gpuPool": gpu or {}, **cluster}, job=job)


def spot_pools() -> list[Recorded]:
    found = [one for one in full().of("AgentPool") if one.inputs["scaleSetPriority"] == "Spot"]
    assert len(found) == 2
    return found


def fallback() -> Recorded:
    return full()["aks-cluster-pools-ondemand"]


def test_a_spot_pool_declares_the_label_and_the_taint_that_azure_adds() -> None:
    for pool in spot_pools():
        assert pool.inputs["nodeLabels"] == {"everstep/pool": "gpu-spot", SPOT: "spot"}
        assert pool.inputs["nodeTaints"] == [f"{SPOT}=spot:NoSchedule"], (
            "undeclared it drifts, and a later update is refused"
        )


def test_a_spot_pool_says_nothing_of_upgrades() -> None:
    for pool in spot_pools():
        assert "upgradeSettings" not in pool.inputs, "AKS refuses any, also a surge of 0"


def test_evicted_machines_are_deleted_and_the_price_is_capped_at_on_demand() -> None:
    for pool in spot_pools():
        assert pool.inputs["scaleSetEvictionPolicy"] == "Delete", "deallocated, they hold quota"
        assert pool.inputs["spotMaxPrice"] == -1


def test_every_gpu_pool_is_a_scale_set_of_user_nodes_in_the_stacks_subnet() -> None:
    for pool in full().of("AgentPool"):
        said = pool.inputs
        assert (said["type"], said["mode"]) == ("VirtualMachineScaleSets", "User")
        assert said["vnetSubnetID"].endswith("/nodes")
        assert said["enableNodePublicIP"] is False
        assert said["gpuProfile"] == {"driver": "Install"}
        assert said["scaleDownMode"] == "Delete"
        assert said["orchestratorVersion"] == "1.36"


def test_the_fallback_is_bought_on_demand_and_looks_like_the_others_to_a_worker() -> None:
    said = fallback().inputs

    assert said["scaleSetPriority"] == "Regular"
    assert "scaleSetEvictionPolicy" not in said
    assert "spotMaxPrice" not in said
    assert said["nodeLabels"] == {"everstep/pool": "gpu-spot", "everstep/capacity": "on-demand"}
    assert said["nodeTaints"] == ["everstep/spot=true:NoSchedule"]
    assert (said["count"], said["minCount"], said["maxCount"]) == (0, 0, 2), "nothing beforehand"
    assert said["upgradeSettings"] == {"maxSurge": "0", "maxUnavailable": "1"}, (
        "a surge would ask for GPUs that nobody has to spare"
    )


def test_workers_tolerate_the_taints_of_every_pool() -> None:
    tolerated = {(one.key, one.value, one.effect) for one in GPU_PLACEMENT.tolerations}

    for pool in full().of("AgentPool"):
        for taint in pool.inputs["nodeTaints"]:
            key, value, effect = re.split("[=:]", taint)
            assert (key, value, effect) in tolerated
        assert GPU_PLACEMENT.selector.items() <= pool.inputs["nodeLabels"].items()


def test_a_fallback_leaves_the_workers_placement_alone() -> None:
    # The placement is a constant: a running job is replaced when its template changes.
    assert GPU_PLACEMENT.selector == {"everstep/pool": "gpu-spot"}
    assert [one.key for one in GPU_PLACEMENT.tolerations] == [SPOT, "everstep/spot"]


def test_only_the_count_is_the_autoscalers() -> None:
    for pool in full().of("AgentPool"):
        assert pool.ignore_changes == ("count",)
        assert pool.inputs["enableAutoScaling"] is True


def test_the_first_pool_starts_with_nodes_and_the_others_from_zero() -> None:
    pools = {one.name: one for one in gpu_pools(config_of({"nodes": 4, "maxNodes": 8}))}

    assert {name: (one.count, one.least, one.most) for name, one in pools.items()} == {
        "t4": (4, 0, 8),
        "a10": (0, 0, 8),
    }


def test_a_pool_never_starts_below_its_least() -> None:
    for pool in gpu_pools(config_of({"minNodes": 2, "nodes": 3, "maxNodes": 4})):
        assert pool.least <= pool.count <= pool.most


def test_capacity_on_demand_makes_no_spot_pool_and_no_fallback() -> None:
    pools = gpu_pools(config_of({"capacity": "onDemand"}))

    assert [one.name for one in pools] == ["t4", "a10"]
    for pool in pools:
        assert not pool.spot
        assert pool.taint == TolerationConfig(key="everstep/spot", value="true")
        assert pool.labels["everstep/capacity"] == "on-demand"


def test_the_fallback_is_of_the_first_size() -> None:
    sizes = {"b": "Standard_NV6ads_A10_v5", "a": "Standard_NC4as_T4_v3"}

    *_, last = gpu_pools(config_of({"vmSizes": sizes, "fallbackNodes": 3}))

    assert (last.name, last.vm_size, last.most) == ("ondemand", "Standard_NV6ads_A10_v5", 3)


def pool(name: str) -> GpuPool:
    return GpuPool(name=name, vm_size="x", spot=True, count=0, least=0, most=1)


def test_the_autoscaler_tries_the_pools_in_the_order_written() -> None:
    table = yaml.safe_load(priorities([pool("t4"), pool("a10"), pool("ondemand")]))
    best_first = [patterns for _, patterns in sorted(table.items(), reverse=True)]

    assert best_first == [["^aks-t4-"], ["^aks-a10-"], ["^aks-ondemand-"]]
    assert all(isinstance(number, int) and number > 0 for number in table)


def test_a_pattern_matches_the_scale_set_of_its_own_pool_alone() -> None:
    table = yaml.safe_load(priorities([pool("t4"), pool("t4a")]))
    for number, (pattern,) in table.items():
        matched = [
            name for name in ("t4", "t4a", "at4") if re.search(pattern, f"aks-{name}-31-vmss")
        ]
        assert matched == [{20: "t4", 10: "t4a"}[number]]


def test_the_priorities_stand_where_the_autoscaler_looks() -> None:
    said = plain()["aks-cluster-priorities"].inputs

    assert said["metadata"] == {
        "name": "cluster-autoscaler-priority-expander",
        "namespace": "kube-system",
    }
    assert "^aks-t4-" in said["data"]["priorities"]


def system(config: AksConfig) -> containerservice.ManagedClusterAgentPoolProfileArgs:
    return system_pool(config, "subnet", {"owner": "vision"})


def test_the_system_pool_stays_on_demand_and_keeps_strangers_away() -> None:
    (said,) = plain().one("ManagedCluster").inputs["agentPoolProfiles"]

    assert (said["name"], said["mode"]) == ("system", "System")
    assert "scaleSetPriority" not in said, "a system pool is never spot"
    assert said["nodeTaints"] == ["CriticalAddonsOnly=true:NoSchedule"]
    assert said["nodeLabels"] == {"everstep/pool": "system"}
    assert said["enableNodePublicIP"] is False


def test_what_runs_on_the_system_pool_tolerates_its_taint() -> None:
    (taint,) = SYSTEM_PLACEMENT.tolerations

    assert (taint.key, taint.value, taint.effect) == ("CriticalAddonsOnly", "true", "NoSchedule")
    assert SYSTEM_PLACEMENT.selector == {"everstep/pool": "system"}


def test_the_system_pool_grows_only_where_it_may() -> None:
    fixed = system(config_of(systemPool={"nodes": 3, "maxNodes": 3}))
    growing = system(config_of(systemPool={"nodes": 2, "maxNodes": 5}))

    assert (fixed.enable_auto_scaling, fixed.min_count, fixed.max_count) == (False, None, None)
    assert (growing.enable_auto_scaling, growing.min_count, growing.max_count) == (True, 2, 5)


@pytest.mark.parametrize(("zones", "expected"), [([], None), (["1", "3"], ["1", "3"])])
def test_zones_are_those_asked_for(zones: list[str], expected: list[str] | None) -> None:
    assert system(config_of(systemPool={"zones": zones})).availability_zones == expected
