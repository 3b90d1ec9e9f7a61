"""GPUs are bought on the spot market unless a pool says that it is not."""

import re
from collections.abc import Iterator

from policy.rule import Resource, Rule
from policy.tokens import AGENT_POOL, AKS_CLUSTER, NODE_GROUP

# Families with NVIDIA GPUs: AWS g4dn to g7e and p4 to p6; Azure's N series, all of which have one.
AWS_GPU = re.compile(r"(g[4-9][a-z]*|p[4-9][a-z-]*[a-z0-9]*)\.")
AZURE_GPU = re.compile(r"Standard_N[CDV]", re.IGNORECASE)

CAPACITY_LABEL, ON_DEMAND = "everstep/capacity", "on-demand"
SPOT_LABEL = "kubernetes.azure.com/scalesetpriority"
SPOT_TAINT = f"{SPOT_LABEL}=spot:NoSchedule"


def _has_gpu(resource: Resource) -> bool:
    said = resource.properties
    if resource.type == NODE_GROUP:
        return any(AWS_GPU.match(kind) for kind in said.get("instanceTypes") or ())
    return bool(AZURE_GPU.match(said.get("vmSize") or ""))


def _is_spot(resource: Resource) -> bool:
    key = "capacityType" if resource.type == NODE_GROUP else "scaleSetPriority"
    return str(resource.properties.get(key) or "").lower() == "spot"


def _labels(resource: Resource) -> dict[str, str]:
    key = "labels" if resource.type == NODE_GROUP else "nodeLabels"
    return dict(resource.properties.get(key) or {})


def _spot_unless_marked(resource: Resource) -> Iterator[str]:
    if not _has_gpu(resource) or _is_spot(resource):
        return
    if _labels(resource).get(CAPACITY_LABEL) != ON_DEMAND:
        yield (
            "has GPUs and is not spot: use spot capacity, or say that this is meant with the node "
            f"label {CAPACITY_LABEL}: {ON_DEMAND}"
        )


def _taint_keeps_others_away(resource: Resource) -> Iterator[str]:
    if _has_gpu(resource) and not resource.properties.get(
        "taints" if resource.type == NODE_GROUP else "nodeTaints"
    ):
        yield "has GPUs and no taint, so that any pod may take their place: add one"


def _azure_spot_declared(resource: Resource) -> Iterator[str]:
    if not _is_spot(resource):
        return
    if _labels(resource).get(SPOT_LABEL) != "spot":
        yield f"lacks the label {SPOT_LABEL}: spot that AKS adds: undeclared it drifts at refresh"
    if SPOT_TAINT not in (resource.properties.get("nodeTaints") or ()):
        yield f"lacks the taint {SPOT_TAINT} that AKS adds: undeclared, a later update is refused"
    if resource.properties.get("upgradeSettings"):
        yield "sets upgradeSettings, which AKS refuses on a spot pool: leave them out"
    if resource.properties.get("scaleSetEvictionPolicy") != "Delete":
        yield "keeps evicted machines, which hold quota: use scaleSetEvictionPolicy: Delete"


def _gpus_in_own_pools(resource: Resource) -> Iterator[str]:
    for pool in resource.properties.get("agentPoolProfiles") or ():
        if AZURE_GPU.match(pool.get("vmSize") or ""):
            yield f"has the GPU pool {pool.get('name')} inline: make it an AgentPool of its own"


RULES = (
    Rule(
        name="gpu-pools-are-spot",
        description="A GPU pool is spot unless its label everstep/capacity says on-demand.",
        types=frozenset({NODE_GROUP, AGENT_POOL}),
        check=_spot_unless_marked,
    ),
    Rule(
        name="gpu-pools-are-tainted",
        description="A GPU pool carries a taint, so that only what needs a GPU runs there.",
        types=frozenset({NODE_GROUP, AGENT_POOL}),
        check=_taint_keeps_others_away,
    ),
    Rule(
        name="azure-spot-pools-declare-what-azure-adds",
        description="An AKS spot pool declares Azure's label and taint, and nothing that AKS "
        "refuses on it.",
        types=frozenset({AGENT_POOL}),
        check=_azure_spot_declared,
    ),
    Rule(
        name="gpu-pools-stand-alone",
        description="GPU pools of AKS are resources of their own: inline edits touch all pools.",
        types=frozenset({AKS_CLUSTER}),
        check=_gpus_in_own_pools,
    ),
)
