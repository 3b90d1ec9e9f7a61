"""Rules about access to API servers, storage, registries and instance metadata."""

from collections.abc import Iterator, Sequence

from policy.rule import PolicyRule, Resource
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

ANY_ADDRESS = frozenset({"0.0.0.0/0", "::/0"})


def _range_violations(ranges: Sequence[str] | None, key: str) -> Iterator[str]:
    if not ranges:
        yield f"has an API open to the whole internet: list the allowed ranges in {key}, or make it private"
    elif ANY_ADDRESS & set(ranges):
        yield f"allows every address in {key}: list the ranges of your own networks"


def _check_eks_api(resource: Resource) -> Iterator[str]:
    network = resource.properties.get("vpcConfig") or {}
    if network.get("endpointPublicAccess", True):  # EKS's own default
        yield from _range_violations(
            network.get("publicAccessCidrs"), "vpcConfig.publicAccessCidrs"
        )


def _check_aks_api(resource: Resource) -> Iterator[str]:
    profile = resource.properties.get("apiServerAccessProfile") or {}
    if not profile.get("enablePrivateCluster"):
        ranges = profile.get("authorizedIPRanges")
        yield from _range_violations(ranges, "apiServerAccessProfile.authorizedIPRanges")


def _check_access_entries(resource: Resource) -> Iterator[str]:
    access = resource.properties.get("accessConfig") or {}
    if access.get("authenticationMode") != "API":
        yield "reads its users from a ConfigMap in the cluster: use accessConfig.authenticationMode API"


def _check_local_accounts(resource: Resource) -> Iterator[str]:
    if not resource.properties.get("disableLocalAccounts"):
        yield "has local accounts, whose certificates bypass Entra ID: set disableLocalAccounts"


def _check_shared_keys(resource: Resource) -> Iterator[str]:
    if resource.properties.get("allowSharedKeyAccess") is not False:
        yield "is accessible with account keys: set allowSharedKeyAccess to false"


def _check_anonymous_blobs(resource: Resource) -> Iterator[str]:
    if resource.properties.get("allowBlobPublicAccess") is not False:
        yield "allows public containers: set allowBlobPublicAccess to false"


def _check_registry_admin(resource: Resource) -> Iterator[str]:
    if resource.properties.get("adminUserEnabled"):
        yield "has the admin user, a shared password: remove adminUserEnabled"


def _check_long_lived_credential(resource: Resource) -> Iterator[str]:
    kind = resource.type.rpartition(":")[2]
    yield f"is a credential that does not expire ({kind}): use roles and workload or pod identity"


def _check_metadata_token(resource: Resource) -> Iterator[str]:
    options = resource.properties.get("metadataOptions") or {}
    if options.get("httpTokens") != "required":
        yield "accepts metadata requests without a token: set metadataOptions.httpTokens: required"


def _check_public_access_block(resource: Resource) -> Iterator[str]:
    settings = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    for setting in settings:
        if resource.properties.get(setting) is not True:
            yield f"allows the bucket to become public: set {setting} to true"


RULES = (
    PolicyRule(
        name="no-public-api-without-ranges",
        description="An EKS API server is private or lists the networks that may reach it.",
        types=frozenset({EKS_CLUSTER}),
        check=_check_eks_api,
    ),
    PolicyRule(
        name="no-public-aks-api-without-ranges",
        description="An AKS API server is private or lists the networks that may reach it.",
        types=frozenset({AKS_CLUSTER}),
        check=_check_aks_api,
    ),
    PolicyRule(
        name="eks-users-by-access-entries",
        description="The users of a cluster are defined by access entries, which are audited.",
        types=frozenset({EKS_CLUSTER}),
        check=_check_access_entries,
    ),
    PolicyRule(
        name="no-local-accounts",
        description="AKS accepts only Entra identities.",
        types=frozenset({AKS_CLUSTER}),
        check=_check_local_accounts,
    ),
    PolicyRule(
        name="no-account-keys",
        description="A storage account is accessible by identities, not by its keys.",
        types=frozenset({STORAGE_ACCOUNT}),
        check=_check_shared_keys,
    ),
    PolicyRule(
        name="no-public-blobs",
        description="No container of a storage account is public.",
        types=frozenset({STORAGE_ACCOUNT}),
        check=_check_anonymous_blobs,
    ),
    PolicyRule(
        name="no-registry-admin",
        description="A registry has no shared password.",
        types=frozenset({ACR}),
        check=_check_registry_admin,
    ),
    PolicyRule(
        name="no-long-lived-credentials",
        description="No IAM users and no access keys.",
        types=frozenset({ACCESS_KEY, USER}),
        check=_check_long_lived_credential,
    ),
    PolicyRule(
        name="metadata-needs-a-token",
        description="Machines accept metadata requests only with a token (IMDSv2).",
        types=frozenset({LAUNCH_TEMPLATE}),
        check=_check_metadata_token,
    ),
    PolicyRule(
        name="no-public-buckets",
        description="A bucket blocks all kinds of public access.",
        types=frozenset({PUBLIC_ACCESS_BLOCK}),
        check=_check_public_access_block,
    ),
)
