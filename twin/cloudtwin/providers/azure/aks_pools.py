"""Node pools of AKS, and their machines. Pure."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudfacts.kubernetes import AKS_DEFAULT_VERSION, AKS_PATCHES

from cloudtwin.providers.azure import aks_network
from cloudtwin.providers.azure import aks_rules as rules
from cloudtwin.providers.azure.aks_pool_rules import (
    POOL_RULES,
    SPOT_KEY,
    SPOT_TAINT,
    TAINT,
    gpus,
)
from cloudtwin.providers.azure.aks_rules import (
    BAD_REQUEST,
    DOCS,
    IN_USE,
    INVALID_PARAMETER,
    POOL,
    POOL_PATH,
)
from cloudtwin.providers.azure.common import arm_type, location_of, parent_of
from cloudtwin.providers.azure.identity import CLUSTER
from cloudtwin.providers.azure.network import SUBNET, resource_reference
from cloudtwin.providers.conditions import section, value_rule
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import (
    DeletionGuard,
    Inputs,
    Precondition,
    Reference,
    ResourceRequest,
)

if TYPE_CHECKING:
    from cloudtwin.capacity import Pool

NODE_IMAGE = "AKSUbuntu-2404gen2containerd-202611.05.0"
IDLE_SECONDS = 600.0  # default of the autoscaler
DEFAULT_SURGE = "10%"
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _describe_pool(request: ResourceRequest) -> dict[str, Any]:
    cluster = rules.cluster_of(request)
    cluster_version = (
        cluster.outputs["currentKubernetesVersion"] if cluster else AKS_DEFAULT_VERSION
    )
    version = str(request.inputs.get("orchestratorVersion") or cluster_version)
    snapshot = request.account.find(
        (rules.SNAPSHOT,), section(request.inputs, "creationData").get("sourceResourceId") or ""
    )
    return {
        "currentOrchestratorVersion": AKS_PATCHES.get(version, version),
        "nodeImageVersion": snapshot.outputs["nodeImageVersion"] if snapshot else NODE_IMAGE,
        "powerState": {"code": "Running"},
        **_service_inputs(request.inputs),
    }


def _describe_snapshot(request: ResourceRequest) -> dict[str, Any]:
    """Return the node pool properties that a snapshot stores."""
    source = section(request.inputs, "creationData").get("sourceResourceId") or ""
    pool = request.account.find((POOL,), source)
    if pool is None:
        return {}
    return {
        "nodeImageVersion": pool.outputs["nodeImageVersion"],
        "kubernetesVersion": pool.outputs["currentOrchestratorVersion"],
        "vmSize": pool.inputs.get("vmSize"),
        "osType": pool.inputs.get("osType", "Linux"),
        "osSku": pool.inputs.get("osSKU", "Ubuntu"),
        "enableFIPS": False,
    }


def _service_inputs(inputs: Inputs) -> dict[str, Any]:
    """Return a Spot pool's labels and taints, with the label and taint that AKS adds; empty for another pool."""
    if inputs.get("scaleSetPriority") != "Spot":
        return {}
    labels, taints = dict(inputs.get("nodeLabels") or {}), list(inputs.get("nodeTaints") or ())
    return {
        "nodeLabels": {**labels, SPOT_KEY: "spot"},
        "nodeTaints": taints if SPOT_TAINT in taints else [*taints, SPOT_TAINT],
    }


def _pool(declared_inputs: Mapping[str, Any], name: str, cluster: Resource) -> "Pool":
    """Return the machine pool of an AKS pool, inline or separate."""
    from cloudtwin.capacity import Pool
    from cloudtwin.nodes.model import Role

    inputs = {**declared_inputs, **_service_inputs(declared_inputs)}
    size = str(inputs.get("vmSize") or "Standard_D4s_v5")
    location = location_of(cluster.inputs.get("location") or "")
    zones, count = inputs.get("availabilityZones") or (), inputs.get("count")
    desired = int(1 if count is None else count)
    scales = bool(inputs.get("enableAutoScaling"))
    min_size = int(inputs.get("minCount") or 0) if scales else desired
    return Pool(
        name=name,
        cloud="azure",
        cluster=str(cluster.inputs["resourceName"]),
        role=Role.GPU if gpus(size) else Role.SYSTEM,
        instance_types=(size,),
        zone=f"{location}-{zones[0]}" if zones else "",
        region=location,
        labels={str(key): str(value) for key, value in (inputs.get("nodeLabels") or {}).items()},
        taints=_taints(inputs.get("nodeTaints") or ()),
        gpus=gpus(size),
        min_size=min_size,
        # The autoscaler of AKS adds nodes up to the minimum; it does not remove nodes in use above the maximum.
        desired_size=max(desired, min_size),
        max_size=int(inputs.get("maxCount") or desired) if scales else desired,
        capacity="spot" if inputs.get("scaleSetPriority") == "Spot" else "on-demand",
        autoscaled=scales,
        idle_seconds=_idle_seconds(cluster.inputs),
        release=_release(inputs, cluster),
        surge=_surge(inputs, desired),
        max_price=_max_price(inputs),
        resource_group=str(cluster.outputs["nodeResourceGroup"]),
    )


def _max_price(pool: Inputs) -> float | None:
    """Return the maximum price of a Spot pool; None if the on-demand price is its limit, and for another pool."""
    price = float(pool.get("spotMaxPrice") or -1)
    return price if price > 0 and pool.get("scaleSetPriority") == "Spot" else None


def _release(pool: Inputs, cluster: Resource) -> str:
    """Return the version of a pool's machines; an upgrade replaces them."""
    cluster_version = cluster.outputs.get("currentKubernetesVersion") or AKS_DEFAULT_VERSION
    version = str(pool.get("orchestratorVersion") or cluster_version)
    return AKS_PATCHES.get(version, version)


def _surge(pool: Inputs, size: int) -> int:
    """Return the number of machines that a pool has above its size during an upgrade; 0 for a Spot pool."""
    if pool.get("scaleSetPriority") == "Spot":
        return 0
    text = str(section(pool, "upgradeSettings").get("maxSurge") or DEFAULT_SURGE)
    share = text.removesuffix("%")
    return math.ceil(size * int(share) / 100) if share != text else int(text)


def _taints(texts: Iterable[str]) -> Any:  # noqa: ANN401  a tuple of taints, whose type is imported late
    from cloudtwin.nodes.model import Taint

    matches = (TAINT.fullmatch(str(text)) for text in texts)
    keys = ("key", "value", "effect")
    return tuple(
        Taint.parse(dict(zip(keys, match.groups(), strict=True))) for match in matches if match
    )


def _idle_seconds(cluster: Inputs) -> float:
    text = str(section(cluster, "autoScalerProfile").get("scaleDownUnneededTime") or "")
    match = re.fullmatch(r"(\d+)([smh])", text)
    return float(match[1]) * UNITS[match[2]] if match else IDLE_SECONDS


def inline_pools(cluster: Resource, _account: Inventory) -> Sequence["Pool"]:
    """Return the machine pools of a cluster's inline pools."""
    return [_pool(pool, str(pool["name"]), cluster) for pool in rules.inline_profiles(cluster)]


def separate_pool(pool: Resource, subscription: Inventory) -> Sequence["Pool"]:
    """Return the machine pool of an agent pool; none if its cluster does not exist."""
    cluster = subscription.find((CLUSTER,), parent_of(pool.id))
    return [_pool(pool.inputs, str(pool.inputs["agentPoolName"]), cluster)] if cluster else []


def _current_pool(inputs: Inputs, sizes: Mapping[str, int]) -> Inputs:
    """Return the current inputs of a pool: its current size, and the label and taint that AKS adds."""
    size = sizes.get(str(inputs["agentPoolName"]))
    count = {} if size is None or "count" not in inputs else {"count": size}
    return {**inputs, **_service_inputs(inputs), **count}


def current_cluster(inputs: Inputs, sizes: Mapping[str, int]) -> Inputs:
    """Return the current inputs of a cluster: its inline pools have their current sizes."""
    pools = [
        {**pool, "count": sizes.get(str(pool["name"]), pool["count"])} if "count" in pool else pool
        for pool in inputs.get("agentPoolProfiles") or ()
    ]
    return {**inputs, "agentPoolProfiles": pools}


def _pools_sized_by_update(_old: Inputs, new: Inputs) -> Collection[str]:
    """Return the name of a pool with a number of nodes: each update sends all inputs."""
    return [] if new.get("count") is None else [str(new["agentPoolName"])]


def inline_pools_sized_by_update(_old: Inputs, new: Inputs) -> Collection[str]:
    """Return the names of the declared inline pools with a number of nodes: each update sends all inputs."""
    pools = new.get("agentPoolProfiles") or ()
    return [str(pool["name"]) for pool in pools if pool.get("count") is not None]


TYPES = (
    arm_type(
        # The provider replaces a pool for no other property: pulumi-azure-native, provider/pkg/gen/replacement.go.
        POOL, POOL_PATH, 12, "vmSize", "gpuInstanceProfile",
        name=None,
        describe=_describe_pool,
        pools=separate_pool,
        current_inputs=_current_pool,
        pools_sized_by_update=_pools_sized_by_update,
        rules=(
            value_rule("version of a pool", "orchestratorVersion", rules.version_error,
                       f"{DOCS}, supported versions"),
            *POOL_RULES,
        ),
        references=(
            resource_reference("vnetSubnetID", SUBNET, IN_USE),
            Reference("creationData.sourceResourceId", (rules.SNAPSHOT,), BAD_REQUEST),
        ),
        preconditions=(
            Precondition("version of a pool and its control plane", f"{DOCS}, upgrade a node pool",
                         "NodePoolMcVersionIncompatible", rules.pool_version),
            Precondition("number of nodes of a new pool", f"{DOCS}, cluster autoscaler", INVALID_PARAMETER,
                         rules.new_pool_size),
            Precondition("pool unchanged", "AKS #4374; pulumi-azure-native #959", "PropertyChangeNotAllowed",
                         rules.pool_unchanged),
            Precondition("no version downgrade of a pool", f"{DOCS}, upgrade a node pool",
                         "OperationNotAllowed", rules.pool_downgrade),
            Precondition("pool name not inline", f"{DOCS}, node pools", "Conflict",
                         rules.pool_name_free),
            Precondition("pool in the cluster's network", f"{DOCS}, node pools with a unique subnet",
                         BAD_REQUEST, rules.pool_in_network),
            Precondition("addresses of a pool", "AKS-Construction #701; AKS #4467", "InsufficientSubnetSize",
                         aks_network.pool_fits),
            Precondition("snapshot of a pool", f"{DOCS}, node pool snapshot", BAD_REQUEST,
                         rules.snapshot_fits),
            Precondition("pool's location has zones", "Azure regions",
                         "AvailabilityZoneNotSupported", rules.zonal_location),
        ),
        deletion_guards=(
            DeletionGuard("last System pool", "pulumi-azure-native #1575", "OperationNotAllowed",
                          rules.last_system_pool),
        ),
    ),
    arm_type(
        rules.SNAPSHOT, "Microsoft.ContainerService/snapshots/{resourceName}", 63, "location",
        "creationData.sourceResourceId", "snapshotType",
        describe=_describe_snapshot,
        references=(Reference("creationData.sourceResourceId", (POOL,), BAD_REQUEST),),
    ),
)  # fmt: skip
