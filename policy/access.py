"""Who can reach an API server or a bucket, and with what in hand."""

from collections.abc import Iterator, Sequence

from policy.rule import Resource, Rule
from policy.tokens import (
    ACCESS_KEY,
    ACR,
    AKS_CLUSTER,
    EKS_CLUSTER,
    LAUNCH_TEMPLATE,
    PUBLIC_ACCESS_BLOCK,
    STORAGE_ACCOUNT,
    USER,
)

EVERYBODY = frozenset({"0.0.0.0/0", "::/0"})


def _ranges_named(ranges: Sequence[str] | None, key: str) -> Iterator[str]:
    if not ranges:
        yield f"has a public API that anybody can reach: name who may in {key}, or make it private"
    elif EVERYBODY & set(ranges):
        yield f"lets everybody in through {key}: name the ranges of your own networks"


def _eks_api(resource: Resource) -> Iterator[str]:
    network = resource.properties.get("vpcConfig") or {}
    if network.get("endpointPublicAccess", True):  # EKS's own default
        yield from _ranges_named(network.get("publicAccessCidrs"), "vpcConfig.publicAccessCidrs")


def _aks_api(resource: Resource) -> Iterator[str]:
    profile = resource.properties.get("apiServerAccessProfile") or {}
    if not profile.get("enablePrivateCluster"):
        ranges = profile.get("authorizedIPRanges")
        yield from _ranges_named(ranges, "apiServerAccessProfile.authorizedIPRanges")


def _eks_entries(resource: Resource) -> Iterator[str]:
    access = resource.properties.get("accessConfig") or {}
    if access.get("authenticationMode") != "API":
        yield "takes users from a ConfigMap in the cluster: use accessConfig.authenticationMode API"


def _aks_accounts(resource: Resource) -> Iterator[str]:
    if not resource.properties.get("disableLocalAccounts"):
        yield "has local accounts, whose certificate never ends: set disableLocalAccounts"


def _shared_keys(resource: Resource) -> Iterator[str]:
    if resource.properties.get("allowSharedKeyAccess") is not False:
        yield "can be opened with account keys: set allowSharedKeyAccess to false"


def _anonymous_blobs(resource: Resource) -> Iterator[str]:
    if resource.properties.get("allowBlobPublicAccess") is not False:
        yield "may hold public containers: set allowBlobPublicAccess to false"


def _registry_admin(resource: Resource) -> Iterator[str]:
    if resource.properties.get("adminUserEnabled"):
        yield "has the admin user, a shared password: leave adminUserEnabled out"


def _long_lived(resource: Resource) -> Iterator[str]:
    kind = resource.type.rpartition(":")[2]
    yield f"is a {kind}, a key that lives for ever: use roles and workload or pod identity"


def _metadata_token(resource: Resource) -> Iterator[str]:
    options = resource.properties.get("metadataOptions") or {}
    if options.get("httpTokens") != "required":
        yield "answers metadata requests without a token: set metadataOptions.httpTokens: required"


def _all_blocked(resource: Resource) -> Iterator[str]:
    doors = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    for door in doors:
        if resource.properties.get(door) is not True:
            yield f"leaves a way to make the bucket public: set {door} to true"


RULES = (
    Rule(
        name="no-public-api-without-ranges",
        description="An API server is private or names the networks that may reach it.",
        types=frozenset({EKS_CLUSTER}),
        check=_eks_api,
    ),
    Rule(
        name="no-public-aks-api-without-ranges",
        description="An AKS API server is private or names the networks that may reach it.",
        types=frozenset({AKS_CLUSTER}),
        check=_aks_api,
    ),
    Rule(
        name="eks-users-by-access-entries",
        description="Who may use a cluster stands in access entries, which are audited.",
        types=frozenset({EKS_CLUSTER}),
        check=_eks_entries,
    ),
    Rule(
        name="no-local-accounts",
        description="AKS knows Entra identities only.",
        types=frozenset({AKS_CLUSTER}),
        check=_aks_accounts,
    ),
    Rule(
        name="no-account-keys",
        description="A storage account is opened by identities, never by its keys.",
        types=frozenset({STORAGE_ACCOUNT}),
        check=_shared_keys,
    ),
    Rule(
        name="no-public-blobs",
        description="No container of a storage account is public.",
        types=frozenset({STORAGE_ACCOUNT}),
        check=_anonymous_blobs,
    ),
    Rule(
        name="no-registry-admin",
        description="A registry has no shared password.",
        types=frozenset({ACR}),
        check=_registry_admin,
    ),
    Rule(
        name="no-long-lived-credentials",
        description="No IAM users and no access keys.",
        types=frozenset({ACCESS_KEY, USER}),
        check=_long_lived,
    ),
    Rule(
        name="metadata-needs-a-token",
        description="Machines answer metadata requests with a token only (IMDSv2).",
        types=frozenset({LAUNCH_TEMPLATE}),
        check=_metadata_token,
    ),
    Rule(
        name="no-public-buckets",
        description="A bucket's block on public access has no gap.",
        types=frozenset({PUBLIC_ACCESS_BLOCK}),
        check=_all_blocked,
    ),
)
