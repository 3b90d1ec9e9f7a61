"""Rules about ownership tags, protection of production data and support tiers."""

from collections.abc import Iterator

from everstep.catalog.names import REQUIRED_TAGS
from policy.rule import Level, PolicyRule, Resource
from policy.tokens import (
    ACR,
    AGENT_POOL,
    AKS_CLUSTER,
    BLOB_CONTAINER,
    BUCKET,
    ECR_REPOSITORY,
    EKS_CLUSTER,
    FSX_LUSTRE,
    IDENTITY,
    KMS_KEY,
    LAUNCH_TEMPLATE,
    NODE_GROUP,
    RESOURCE_GROUP,
    ROLE,
    SECURITY_GROUP,
    STORAGE_ACCOUNT,
    SUBNET,
    VIRTUAL_NETWORK,
    VPC,
)

TAGGED_TYPES = frozenset(
    {
        *(EKS_CLUSTER, NODE_GROUP, LAUNCH_TEMPLATE, BUCKET, FSX_LUSTRE, KMS_KEY, ECR_REPOSITORY),
        *(ROLE, VPC, SUBNET, SECURITY_GROUP),
        *(AKS_CLUSTER, AGENT_POOL, STORAGE_ACCOUNT, ACR, RESOURCE_GROUP, VIRTUAL_NETWORK),
        IDENTITY,
    }
)
DATA_TYPES = frozenset({BUCKET, FSX_LUSTRE, STORAGE_ACCOUNT, BLOB_CONTAINER})


def _check_tags(resource: Resource) -> Iterator[str]:
    missing = [tag for tag in REQUIRED_TAGS if not resource.tags.get(tag)]
    if missing:
        yield f"lacks the tags {', '.join(missing)}: set them under everstep:tags"


def _check_protection(resource: Resource) -> Iterator[str]:
    if resource.in_production and not resource.protect:
        yield "contains production data and is not protected: set everstep:protect to true"


def _check_support(resource: Resource) -> Iterator[str]:
    support = (resource.properties.get("upgradePolicy") or {}).get("supportType")
    if support != "STANDARD":
        yield "enters extended support at six times the price: use upgradePolicy STANDARD"


RULES = (
    PolicyRule(
        name="costs-have-an-owner",
        description="Billed resources have the tags owner, costCenter and environment.",
        types=TAGGED_TYPES,
        check=_check_tags,
    ),
    PolicyRule(
        name="production-data-is-protected",
        description="Buckets, file systems, storage accounts and containers of production are protected.",
        types=DATA_TYPES,
        check=_check_protection,
    ),
    PolicyRule(
        name="no-extended-support",
        description="An EKS cluster does not enter extended support, which costs more.",
        types=frozenset({EKS_CLUSTER}),
        check=_check_support,
        level=Level.ADVISORY,
    ),
)
