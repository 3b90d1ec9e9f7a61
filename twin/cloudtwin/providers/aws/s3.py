"""Amazon S3 and ECR: buckets and repositories. Pure.

Sources: S3 User Guide ("Bucket naming rules", "Lifecycle configuration elements"), S3 and ECR API
References. Read 2026-11.
"""

# ruff: noqa: S106  (a token is the name of a type, not a password)

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.providers.aws.common import OBJECT, arn, id_from
from cloudtwin.providers.aws.identity import to_key
from cloudtwin.providers.aws.lifecycle_policies import lifecycle_policy_error
from cloudtwin.providers.aws.policies import document_rule, statements
from cloudtwin.providers.conditions import (
    failure_at,
    in_range,
    matches,
    objects_at,
    section,
    value_rule,
)
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import (
    DeletionGuard,
    InputRule,
    Inputs,
    Naming,
    Precondition,
    Reference,
    ResourceRequest,
    ResourceType,
)
from cloudtwin.providers.schema.check import CheckFailure

BUCKET, REPOSITORY = "aws:s3/bucket:Bucket", "aws:ecr/repository:Repository"
LIFECYCLE = "S3 User Guide, lifecycle configuration elements"
PUBLIC_ACCESS_BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
BY_DEFAULT = "rules.*.applyServerSideEncryptionByDefault"
ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")
MAX_DAYS = 2**31 - 1
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
IA_DAYS, IA_CLASSES = 30, ("STANDARD_IA", "ONEZONE_IA")
ACTIONS = ("expiration", "transitions", "noncurrentVersionExpiration", "noncurrentVersionTransitions",
           "abortIncompleteMultipartUpload")  # fmt: skip
DAYS = ("expiration.days", "noncurrentVersionExpiration.noncurrentDays",
        "abortIncompleteMultipartUpload.daysAfterInitiation")  # fmt: skip
DATES = ("expiration.date", "transitions.*.date")


def bucket_name_error(name: object) -> str | None:
    """Return the reason why text is not the name of a bucket; None if it is valid."""
    text = str(name)
    pattern = (
        r"(?!xn--|sthree-|amzn-s3-demo-|\d+\.\d+\.\d+\.\d+$)(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
        r"(?<!-s3alias)(?<!--ol-s3)(?<!\.mrap)(?<!--x-s3)(?<!--table-s3)"
    )
    return matches(
        pattern, "is not a valid bucket name: 3 to 63 lower-case letters, digits, . and -"
    )(text)


def _lifecycle(inputs: Inputs) -> Iterable[CheckFailure]:
    rules = objects_at("rules", inputs)
    if isinstance(inputs.get("rules"), list) and not rules:
        yield failure_at("rules", "a lifecycle configuration needs at least one rule")
    ids = [rule.get("id") for _, rule in rules]
    for path, rule in rules:
        if ids.count(rule.get("id")) > 1:
            yield failure_at(f"{path}.id", f"two rules have the id {rule.get('id')!r}")


def _lifecycle_actions(inputs: Inputs) -> Iterable[CheckFailure]:
    for path, rule in objects_at("rules", inputs):
        if not any(rule.get(action) for action in ACTIONS):
            yield failure_at(path, "At least one action needs to be specified in a rule")
        expiration = section(rule, "expiration")
        if expiration.get("days") and expiration.get("date"):
            yield failure_at(f"{path}.expiration", "days and date exclude each other")
        for at, transition in _transitions(path, rule):
            days = transition.get("days", transition.get("noncurrentDays"))
            storage_class = transition.get("storageClass")
            if isinstance(days, int) and days < IA_DAYS and storage_class in IA_CLASSES:
                reason = f"'Days' in Transition action must be greater than or equal to {IA_DAYS} for storageClass"
                yield failure_at(at, f"{reason} {storage_class!r}")
            last_day = expiration.get("days")
            if (
                isinstance(transition.get("days"), int)
                and isinstance(last_day, int)
                and last_day <= days
            ):
                reason = "'Days' in the Expiration action must be greater than 'Days' in the Transition action"
                yield failure_at(at, reason)


def _transitions(path: str, rule: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the transitions of a lifecycle rule with their paths."""
    for name in ("transitions", "noncurrentVersionTransitions"):
        for at, transition in objects_at(name, rule):
            yield f"{path}.{at}", transition


def _kms_key_of_bucket(inputs: Inputs) -> Iterable[CheckFailure]:
    for path, rule in objects_at("rules", inputs):
        settings = section(rule, "applyServerSideEncryptionByDefault")
        if settings.get("kmsMasterKeyId") is not None and settings.get("sseAlgorithm") == "AES256":
            reason = "a key needs the sseAlgorithm aws:kms or aws:kms:dsse"
            yield failure_at(f"{path}.applyServerSideEncryptionByDefault.kmsMasterKeyId", reason)


def _key_of_repository(inputs: Inputs) -> Iterable[CheckFailure]:
    for path, settings in objects_at("encryptionConfigurations", inputs):
        if settings.get("kmsKey") is not None and settings.get("encryptionType") in (
            None,
            "AES256",
        ):
            yield failure_at(f"{path}.kmsKey", "a key needs the encryptionType KMS or KMS_DSSE")


def _not_empty(bucket: Resource, account: Inventory) -> Iterable[str]:
    objects = account.where(OBJECT, bucket=bucket.id)
    if objects and not bucket.inputs.get("forceDestroy"):
        yield f"the bucket {bucket.id} still has {objects[0].inputs['key']!r}: set forceDestroy"


def _describe_bucket(request: ResourceRequest) -> dict[str, Any]:
    return {
        "arn": f"arn:aws:s3:::{request.id}",
        "bucketDomainName": f"{request.id}.s3.amazonaws.com",
        "bucketRegionalDomainName": f"{request.id}.s3.{request.region}.amazonaws.com",
        "bucketRegion": request.region,
        "hostedZoneId": "Z3AQBSTGFYJSTF",
        "bucket": request.id,
    }


def _acl(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for an ACL of a new bucket: its objects belong to its owner, who grants access by policies."""
    if request.previous is None and request.inputs.get("acl", "private") != "private":
        yield "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting"


def _public_policy(request: ResourceRequest) -> Iterable[str]:
    bucket = request.inputs["bucket"]
    blocks = request.account.where(PUBLIC_ACCESS_BLOCK, bucket=bucket)
    is_blocked = blocks[0].inputs.get("blockPublicPolicy", False) if blocks else True
    if is_blocked and any(map(_is_public, statements(request.inputs.get("policy")))):
        yield (
            f"not authorized to perform s3:PutBucketPolicy on {bucket} because public policies are "
            "blocked by the BlockPublicPolicy block public access setting, which new buckets have"
        )


def _is_public(statement: Mapping[str, Any]) -> bool:
    """Return True for a statement that allows all AWS accounts without a condition. S3 also evaluates conditions."""
    principal = statement.get("Principal")
    accounts = principal.get("AWS") if isinstance(principal, Mapping) else principal
    is_for_all = accounts == "*" or (isinstance(accounts, list) and "*" in accounts)
    return statement.get("Effect") == "Allow" and is_for_all and not statement.get("Condition")


def _resources_in_bucket(request: ResourceRequest) -> Iterable[str]:
    for statement in statements(request.inputs.get("policy")):
        resources = statement.get("Resource", ())
        for resource in [resources] if isinstance(resources, str) else resources:
            name = str(resource).removeprefix("arn:aws:s3:::").partition("/")[0]
            if not re.search(r"[*?$:]", name) and name != request.inputs["bucket"]:
                yield f"Policy has invalid resource: {resource}"


def _date_time_error(text: object) -> str | None:
    """Return the reason why text is not a date and time of RFC 3339; None if it is valid."""
    try:
        is_complete = datetime.fromisoformat(str(text)).tzinfo is not None
    except ValueError:
        is_complete = False
    is_complete = is_complete and RFC_3339.fullmatch(str(text)) is not None
    return None if is_complete else f"{text!r} is not a date and time such as 2026-01-31T00:00:00Z"


def _bucket_setting(
    name: str,
    rules: tuple[InputRule, ...] = (),
    enums: Mapping[str, tuple[str, ...]] | None = None,
    references: tuple[Reference, ...] = (),
    preconditions: tuple[Precondition, ...] = (),
) -> ResourceType:
    return ResourceType(
        token=f"aws:s3/{name[0].lower()}{name[1:]}:{name}",
        identify=id_from("bucket"),
        immutable=("bucket", "region"),
        enums=enums or {},
        rules=rules,
        references=(TO_BUCKET, *references),
        preconditions=preconditions,
    )


TO_BUCKET = Reference("bucket", (BUCKET,), "NoSuchBucket")
TO_REPOSITORY = Reference("repository", (REPOSITORY,), "RepositoryNotFoundException", key="name")
TYPES = (
    ResourceType(
        token=BUCKET,
        identify=id_from("bucket"),
        describe=_describe_bucket,
        defaults={"forceDestroy": False},
        naming=Naming("bucket", 63),
        immutable=("bucketPrefix", "objectLockEnabled", "region"),
        rules=(
            value_rule(
                "name of a bucket", "bucket", bucket_name_error, "S3 User Guide, bucket naming rules"
            ),
        ),
        preconditions=(
            Precondition(
                "ACL of a bucket", "S3 User Guide, Object Ownership", "InvalidBucketAclWithObjectOwnership", _acl
            ),
        ),
        deletion_guards=(
            DeletionGuard("bucket not empty", "S3 API, DeleteBucket", "BucketNotEmpty", _not_empty),
        ),
        unique_code="BucketAlreadyOwnedByYou",
    ),
    _bucket_setting("BucketVersioning"),
    _bucket_setting(
        "BucketServerSideEncryptionConfiguration",
        (InputRule("KMS key of a bucket", "S3 API, ServerSideEncryptionByDefault", _kms_key_of_bucket),),
        enums={f"{BY_DEFAULT}.sseAlgorithm": ENCRYPTIONS},
        references=(to_key(f"{BY_DEFAULT}.kmsMasterKeyId", "KMS.NotFoundException"),),
    ),
    _bucket_setting("BucketPublicAccessBlock"),
    _bucket_setting(
        "BucketLifecycleConfiguration",
        (
            InputRule("rules of a lifecycle", LIFECYCLE, _lifecycle),
            InputRule("actions of a lifecycle", LIFECYCLE, _lifecycle_actions),
            value_rule(
                "ids of lifecycle rules", "rules.*.id",
                matches(r"(?s).{1,255}", "must have 1 to 255 characters"), LIFECYCLE,
            ),
            *(value_rule(f"lifecycle {path}", f"rules.*.{path}", in_range(1, MAX_DAYS, "days"), LIFECYCLE)
              for path in DAYS),
            *(value_rule(f"lifecycle {path}", f"rules.*.{path}", _date_time_error, LIFECYCLE) for path in DATES),
        ),
    ),
    _bucket_setting("BucketOwnershipControls"),
    _bucket_setting(
        "BucketPolicy", (document_rule("policy of a bucket", "policy", "bucket"),),
        preconditions=(
            Precondition(
                "public policy of a bucket", "S3 User Guide, Block Public Access", "AccessDenied", _public_policy
            ),
            Precondition("bucket of a policy", "S3 API, PutBucketPolicy", "MalformedPolicy", _resources_in_bucket),
        ),
    ),
    ResourceType(
        token=OBJECT,
        identify=id_from("bucket", "key", separator="/"),
        describe=lambda request: {
            "arn": f"arn:aws:s3:::{request.inputs['bucket']}/{request.inputs['key']}",
            "etag": request.digits("etag", 32),
        },
        naming=Naming("key", 1024),
        immutable=("bucket", "region"),
        rules=(
            value_rule("end of an object's retention", "objectLockRetainUntilDate", _date_time_error,
                       "S3 API, PutObject"),
        ),
        references=(TO_BUCKET, to_key("kmsKeyId", "KMS.NotFoundException")),
    ),
    ResourceType(
        token=REPOSITORY,
        identify=id_from("name"),
        describe=lambda request: {
            "arn": arn("ecr", f"repository/{request.id}", request.region),
            "registryId": AWS_ACCOUNT,
            "repositoryUrl": f"{AWS_ACCOUNT}.dkr.ecr.{request.region}.amazonaws.com/{request.id}",
        },
        defaults={"imageTagMutability": "MUTABLE", "forceDelete": False},
        naming=Naming(max_length=256),
        immutable=("encryptionConfigurations", "region"),
        rules=(InputRule("KMS key of a repository", "ECR API, EncryptionConfiguration", _key_of_repository),),
        references=(to_key("encryptionConfigurations.*.kmsKey", "KmsException"),),
        unique_code="RepositoryAlreadyExistsException",
        image_repository=lambda repository: str(repository.outputs["repositoryUrl"]),
    ),
    ResourceType(
        token="aws:ecr/lifecyclePolicy:LifecyclePolicy",
        identify=id_from("repository"),
        describe=lambda _request: {"registryId": AWS_ACCOUNT},
        immutable=("repository", "region"),
        rules=(
            value_rule("lifecycle of a repository", "policy", lifecycle_policy_error,
                       "ECR API, PutLifecyclePolicy"),
        ),
        references=(TO_REPOSITORY,),
    ),
    ResourceType(
        token="aws:ecr/repositoryPolicy:RepositoryPolicy",
        identify=id_from("repository"),
        describe=lambda _request: {"registryId": AWS_ACCOUNT},
        immutable=("repository", "region"),
        rules=(document_rule("policy of a repository", "policy", "repository"),),
        references=(TO_REPOSITORY,),
    ),
)  # fmt: skip
