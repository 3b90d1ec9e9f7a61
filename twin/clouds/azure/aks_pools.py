"""The node pools of AKS: the record, and the machines that pools stand for. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twin.clouds.azure import aks_rules as rules
from twin.clouds.azure.aks_pool_rules import POOL_CHECKS, SPOT_KEY, SPOT_TAINT, TAINT
from twin.clouds.azure.aks_rules import CLUSTER, POOL
from twin.clouds.azure.common import arm, location_of, named, parent_of
from twin.clouds.azure.machines import GPUS
from twin.clouds.azure.network import SUBNET
from twin.clouds.model import Demand, Hold, Inputs, Making, Naming, Reference, ResourceType, Rule
from twin.clouds.world import Resource, World

if TYPE_CHECKING:
    from twin.clouds.capacity import Pool
from twin.clouds.azure.aks_rules import BAD, DOCS, IN_USE, POOL_PATH

PATCHES: Mapping[str, str] = {
    "1.34": "1.34.8",
    "1.35": "1.35.5",
    "1.36": "1.36.2",
    "1.37": "1.37.0",
}


DEFAULT_VERSION = "1.36"


IDLE_SECONDS = 600.0  # of the autoscaler, where the profile says nothing


UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _describe_pool(making: Making) -> dict[str, Any]:
    cluster = rules.cluster_of(making)
    inherited = cluster.outputs["currentKubernetesVersion"] if cluster else DEFAULT_VERSION
    version = str(making.inputs.get("orchestratorVersion") or inherited)
    return {
        "currentOrchestratorVersion": PATCHES.get(version, version),
        "nodeImageVersion": "AKSUbuntu-2404gen2containerd-202611.05.0",
        "powerState": {"code": "Running"},
        **_imposed(making.inputs),
    }


def _imposed(inputs: Inputs) -> dict[str, Any]:
    """Return label and taint that AKS puts on a Spot pool, declared or not."""
    if inputs.get("scaleSetPriority") != "Spot":
        return {}
    labels, taints = dict(inputs.get("nodeLabels") or {}), list(inputs.get("nodeTaints") or ())
    return {
        "nodeLabels": {**labels, SPOT_KEY: "spot"},
        "nodeTaints": taints if SPOT_TAINT in taints else [*taints, SPOT_TAINT],
    }


def _pool(given: Mapping[str, Any], name: str, cluster: Resource) -> "Pool":
    from twin.clouds.capacity import Pool
    from twin.nodes.model import Role

    given = {**given, **_imposed(given)}
    size, place = (
        str(given.get("vmSize") or "Standard_D4s_v5"),
        location_of(str(cluster.inputs.get("location") or "")),
    )
    zones, count = given.get("availabilityZones") or (), given.get("count")
    wanted = int(1 if count is None else count)
    scales = bool(given.get("enableAutoScaling"))
    return Pool(
        name=name,
        cloud="azure",
        cluster=str(cluster.inputs["resourceName"]),
        role=Role.GPU if GPUS.get(size) else Role.SYSTEM,
        instance_types=(size,),
        zone=f"{place}-{zones[0]}" if zones else "",
        region=place,
        labels={str(key): str(value) for key, value in (given.get("nodeLabels") or {}).items()},
        taints=_taints(given.get("nodeTaints") or ()),
        gpus=GPUS.get(size, 0),
        minimum=int(given.get("minCount") or 0) if scales else wanted,
        desired=wanted,
        maximum=int(given.get("maxCount") or wanted) if scales else wanted,
        capacity="spot" if given.get("scaleSetPriority") == "Spot" else "on-demand",
        autoscaled=scales,
        idle_seconds=_idle(cluster.inputs),
    )


def _taints(texts: Iterable[str]) -> Any:  # noqa: ANN401  a tuple of taints; their type is imported late
    from twin.nodes.model import Taint

    found = (TAINT.fullmatch(str(each)) for each in texts)
    keys = ("key", "value", "effect")
    return tuple(Taint.parse(dict(zip(keys, each.groups(), strict=True))) for each in found if each)


def _idle(cluster: Inputs) -> float:
    text = str((cluster.get("autoScalerProfile") or {}).get("scaleDownUnneededTime") or "")
    match = re.fullmatch(r"(\d+)([smh])", text)
    return float(match[1]) * UNITS[match[2]] if match else IDLE_SECONDS


def inline_pools(cluster: Resource, _world: World) -> Sequence["Pool"]:
    """Return the machines of a cluster's inline pools."""
    pools = cluster.inputs.get("agentPoolProfiles") or ()
    return [_pool(each, str(each["name"]), cluster) for each in pools]


def own_pool(pool: Resource, world: World) -> Sequence["Pool"]:
    """Return the machines of an agent pool."""
    cluster = world.find((CLUSTER,), parent_of(pool.id))
    return [_pool(pool.inputs, str(pool.inputs["agentPoolName"]), cluster)] if cluster else []


def _live_pool(inputs: Inputs, sizes: Mapping[str, int]) -> Inputs:
    """Return a pool's inputs as AKS would answer them: resized, and with what it imposed."""
    size = sizes.get(str(inputs["agentPoolName"]))
    resized = {} if size is None or "count" not in inputs else {"count": size}
    return {**inputs, **_imposed(inputs), **resized}


def live_cluster(inputs: Inputs, sizes: Mapping[str, int]) -> Inputs:
    """Return a cluster's inputs as AKS would answer them: its inline pools resized."""
    pools = [
        {**each, "count": sizes.get(str(each["name"]), each["count"])} if "count" in each else each
        for each in inputs.get("agentPoolProfiles") or ()
    ]
    return {**inputs, "agentPoolProfiles": pools}


TYPES = (
    ResourceType(
        token=POOL,
        identify=arm(POOL_PATH),
        describe=_describe_pool,
        pools=own_pool,
        resized=_live_pool,
        naming=Naming(property="agentPoolName", longest=12),
        immutable=named(
            POOL_PATH,
            "vmSize",
            "scaleSetPriority",
            "scaleSetEvictionPolicy",
            "spotMaxPrice",
            "nodeTaints",
            "type",
            "osType",
            "osDiskType",
            "osDiskSizeGB",
            "vnetSubnetID",
            "podSubnetID",
            "availabilityZones",
            "gpuInstanceProfile",
            "gpuProfile",
            "enableNodePublicIP",
            "maxPods",
            "kubeletDiskType",
            "enableFIPS",
            "enableUltraSSD",
            "proximityPlacementGroupID",
        ),
        parent=parent_of,
        rules=(
            Rule(
                name="version of a pool",
                source=f"{DOCS}, supported versions",
                broken=rules.version_known("orchestratorVersion"),
            ),
            *(
                Rule(name=name, source=f"{DOCS}, node pools", broken=check)
                for name, check in POOL_CHECKS.items()
            ),
        ),
        references=(
            Reference(
                path="vnetSubnetID", to=(SUBNET,), code="InvalidResourceReference", holds=IN_USE
            ),
        ),
        demands=(
            Demand(
                name="pool and control plane",
                source=f"{DOCS}, upgrade a node pool",
                code="NodePoolMcVersionIncompatible",
                broken=rules.pool_version,
            ),
            Demand(
                name="pool apart from inline ones",
                source=f"{DOCS}, node pools",
                code="Conflict",
                broken=rules.pool_apart,
            ),
            Demand(
                name="pool in the cluster's network",
                source=f"{DOCS}, node pools with a unique subnet",
                code=BAD,
                broken=rules.pool_in_network,
            ),
            Demand(
                name="pool's location has zones",
                source="Azure regions",
                code="AvailabilityZoneNotSupported",
                broken=rules.zones_there,
            ),
        ),
        holds=(
            Hold(
                name="last System pool",
                source="pulumi-azure-native #1575",
                code="OperationNotAllowed",
                broken=rules.last_system_pool,
            ),
        ),
        unique_code="Conflict",
    ),
)
