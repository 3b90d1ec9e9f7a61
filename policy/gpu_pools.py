"""Rules about GPU pools: spot capacity unless labeled as on-demand, taints, separate resources."""

from collections.abc import Iterator

from cloudfacts import aws, azure

from everstep.catalog.names import AZURE_SPOT, AZURE_SPOT_LABEL, CAPACITY_LABEL, ON_DEMAND
from policy.rule import PolicyRule, Resource
from policy.tokens import AGENT_POOL, AKS_CLUSTER, NODE_GROUP

AWS_GPU_FAMILIES = aws.gpu_families()

EKS_GPU_AMI_SUFFIXES = ("_NVIDIA", "_NVIDIA_FIPS", "_GPU")
"""Suffixes of the AMI types with GPU drivers: the enumeration AMITypes in the service model of EKS, 2026-11."""

AKS_SPOT_TAINT_TEXT = f"{AZURE_SPOT_LABEL}={AZURE_SPOT}:NoSchedule"


def _has_gpu(resource: Resource) -> bool:
    properties = resource.properties
    if resource.type == NODE_GROUP:
        types = properties.get("instanceTypes") or ()  # none if the launch template names the type
        has_gpu_image = str(properties.get("amiType") or "").endswith(EKS_GPU_AMI_SUFFIXES)
        return has_gpu_image or any(aws.family(kind) in AWS_GPU_FAMILIES for kind in types)
    return azure.has_gpus(properties.get("vmSize") or "")


def _is_spot(resource: Resource) -> bool:
    key = "capacityType" if resource.type == NODE_GROUP else "scaleSetPriority"
    return str(resource.properties.get(key) or "").lower() == "spot"


def _labels(resource: Resource) -> dict[str, str]:
    key = "labels" if resource.type == NODE_GROUP else "nodeLabels"
    return dict(resource.properties.get(key) or {})


def _check_spot(resource: Resource) -> Iterator[str]:
    if not _has_gpu(resource) or _is_spot(resource):
        return
    if _labels(resource).get(CAPACITY_LABEL) != ON_DEMAND:
        yield (
            "has GPUs and is not spot: use spot capacity, or, if on-demand capacity is "
            f"intended, set the node label {CAPACITY_LABEL}: {ON_DEMAND}"
        )


def _check_taint(resource: Resource) -> Iterator[str]:
    if _has_gpu(resource) and not resource.properties.get(
        "taints" if resource.type == NODE_GROUP else "nodeTaints"
    ):
        yield "has GPUs and no taint, so that pods without GPUs may occupy it: add one"


def _check_azure_spot(resource: Resource) -> Iterator[str]:
    if not _is_spot(resource):
        return
    if _labels(resource).get(AZURE_SPOT_LABEL) != AZURE_SPOT:
        yield f"lacks the label {AZURE_SPOT_LABEL}: spot, which AKS adds; without it, a refresh reports a difference"
    if AKS_SPOT_TAINT_TEXT not in (resource.properties.get("nodeTaints") or ()):
        yield f"lacks the taint {AKS_SPOT_TAINT_TEXT} that AKS adds: AKS refuses a later update without it"
    if resource.properties.get("upgradeSettings"):
        yield "sets upgradeSettings, which AKS refuses on a spot pool: remove them"
    if resource.properties.get("scaleSetEvictionPolicy") not in (
        None,
        "Delete",
    ):  # the default is Delete
        yield "keeps evicted machines, which hold quota: use scaleSetEvictionPolicy: Delete"


def _check_inline_pools(resource: Resource) -> Iterator[str]:
    for pool in resource.properties.get("agentPoolProfiles") or ():
        if azure.has_gpus(pool.get("vmSize") or ""):
            yield f"has the GPU pool {pool.get('name')} inline: declare it as a separate AgentPool"


RULES = (
    PolicyRule(
        name="gpu-pools-are-spot",
        description=f"A GPU pool is spot unless its label {CAPACITY_LABEL} is {ON_DEMAND}.",
        types=frozenset({NODE_GROUP, AGENT_POOL}),
        check=_check_spot,
    ),
    PolicyRule(
        name="gpu-pools-are-tainted",
        description="A GPU pool has a taint, so that only pods that need a GPU run there.",
        types=frozenset({NODE_GROUP, AGENT_POOL}),
        check=_check_taint,
    ),
    PolicyRule(
        name="azure-spot-pools-declare-what-azure-adds",
        description="An AKS spot pool declares Azure's label and taint, and nothing that AKS "
        "refuses on it.",
        types=frozenset({AGENT_POOL}),
        check=_check_azure_spot,
    ),
    PolicyRule(
        name="gpu-pools-stand-alone",
        description="GPU pools of AKS are separate resources: inline edits touch all pools.",
        types=frozenset({AKS_CLUSTER}),
        check=_check_inline_pools,
    ),
)
