"""Amazon S3 and ECR: buckets and repositories. Pure.

Sources: S3 User Guide ("Bucket naming rules"), S3 and ECR API References. Read 2026-11.
"""

# ruff: noqa: S106  (a token is the name of a type here, and no password)

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from twin.clouds.aws.common import ACCOUNT, arn, by
from twin.clouds.aws.policies import document_faults
from twin.clouds.model import Hold, Inputs, Making, Naming, Reference, ResourceType, Rule
from twin.clouds.rules import at
from twin.clouds.wire.check import Mistake
from twin.clouds.world import Resource, World

BUCKET, OBJECT = "aws:s3/bucket:Bucket", "aws:s3/bucketObjectv2:BucketObjectv2"


REPOSITORY = "aws:ecr/repository:Repository"


BUCKET_NAME = re.compile(r"(?!xn--|sthree-)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?<!-s3alias)")


REPOSITORY_NAME = re.compile(r"[a-z0-9]+([._/-][a-z0-9]+)*")


def _bucket_name(inputs: Inputs) -> Iterable[Mistake]:
    name = inputs.get("bucket")
    if isinstance(name, str) and not BUCKET_NAME.fullmatch(name):
        yield at(
            "bucket", f"{name!r} is no bucket's name: 3 to 63 lower-case letters, digits, . and -"
        )


def _not_empty(gone: Resource, world: World) -> Iterable[str]:
    inside = [each for each in world.all(OBJECT) if each.inputs.get("bucket") == gone.id]
    if inside and not gone.inputs.get("forceDestroy"):
        yield f"the bucket {gone.id} still holds {inside[0].inputs['key']!r}: set forceDestroy"


def _describe_bucket(making: Making) -> dict[str, Any]:
    return {
        "arn": f"arn:aws:s3:::{making.id}",
        "bucketDomainName": f"{making.id}.s3.amazonaws.com",
        "bucketRegionalDomainName": f"{making.id}.s3.{making.region}.amazonaws.com",
        "bucketRegion": making.region,
        "hostedZoneId": "Z3AQBSTGFYJSTF",
        "bucket": making.id,
    }


def _of_bucket(name: str, *, rules: tuple[Rule, ...] = (), **more: Any) -> ResourceType:  # noqa: ANN401  a record's fields
    small = name[0].lower() + name[1:]
    return ResourceType(
        token=f"aws:s3/{small}:{name}",
        identify=by("bucket"),
        immutable=("bucket", "region"),
        rules=rules,
        references=(Reference(path="bucket", to=(BUCKET,), code="NoSuchBucket"),),
        **more,
    )


def _repository_name(inputs: Inputs) -> Iterable[Mistake]:
    name = inputs.get("name")
    if isinstance(name, str) and not REPOSITORY_NAME.fullmatch(name):
        yield at(
            "name", f"{name!r} is no repository's name: lower-case letters, digits and . _ - /"
        )


OF_REPOSITORY = Reference(
    path="repository", to=(REPOSITORY,), by="name", code="RepositoryNotFoundException"
)


TYPES = (
    ResourceType(
        token=BUCKET,
        identify=by("bucket"),
        describe=_describe_bucket,
        defaults={"forceDestroy": False},
        naming=Naming(property="bucket", longest=63),
        immutable=("bucketPrefix", "objectLockEnabled", "region"),
        rules=(
            Rule(
                name="name of a bucket",
                source="S3 User Guide, bucket naming rules",
                broken=_bucket_name,
            ),
        ),
        holds=(
            Hold(
                name="bucket not empty",
                source="S3 API, DeleteBucket",
                code="BucketNotEmpty",
                broken=_not_empty,
            ),
        ),
        unique_code="BucketAlreadyOwnedByYou",
    ),
    _of_bucket(
        "BucketVersioning",
        enums={"versioningConfiguration.status": ("Enabled", "Suspended", "Disabled")},
    ),
    _of_bucket(
        "BucketServerSideEncryptionConfiguration",
        enums={
            "rules.*.applyServerSideEncryptionByDefault.sseAlgorithm": (
                "AES256",
                "aws:kms",
                "aws:kms:dsse",
            )
        },
    ),
    _of_bucket("BucketPublicAccessBlock"),
    _of_bucket("BucketLifecycleConfiguration", enums={"rules.*.status": ("Enabled", "Disabled")}),
    _of_bucket(
        "BucketOwnershipControls",
        enums={
            "rule.objectOwnership": ("BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter")
        },
    ),
    _of_bucket(
        "BucketPolicy",
        rules=(
            Rule(
                name="document of a bucket",
                source="IAM API, MalformedPolicyDocument",
                broken=partial(document_faults, "policy"),
            ),
        ),
    ),
    ResourceType(
        token=OBJECT,
        identify=lambda making: f"{making.inputs['bucket']}/{making.inputs['key']}",
        describe=lambda making: {
            "arn": f"arn:aws:s3:::{making.inputs['bucket']}/{making.inputs['key']}",
            "etag": making.digits("etag", 32),
        },
        immutable=("bucket", "key", "region"),
        references=(Reference(path="bucket", to=(BUCKET,), code="NoSuchBucket"),),
    ),
    ResourceType(
        token=REPOSITORY,
        identify=by("name"),
        describe=lambda making: {
            "arn": arn("ecr", f"repository/{making.id}", making.region),
            "registryId": ACCOUNT,
            "repositoryUrl": f"{ACCOUNT}.dkr.ecr.{making.region}.amazonaws.com/{making.id}",
        },
        defaults={"imageTagMutability": "MUTABLE", "forceDelete": False},
        naming=Naming(longest=256),
        immutable=("encryptionConfigurations", "region"),
        enums={
            "imageTagMutability": (
                "MUTABLE",
                "IMMUTABLE",
                "MUTABLE_WITH_EXCLUSION",
                "IMMUTABLE_WITH_EXCLUSION",
            ),
            "encryptionConfigurations.*.encryptionType": ("AES256", "KMS", "KMS_DSSE"),
        },
        rules=(
            Rule(
                name="name of a repository",
                source="ECR API, CreateRepository",
                broken=_repository_name,
            ),
        ),
        unique_code="RepositoryAlreadyExistsException",
    ),
    ResourceType(
        token="aws:ecr/lifecyclePolicy:LifecyclePolicy",
        identify=by("repository"),
        describe=lambda _making: {"registryId": ACCOUNT},
        immutable=("repository", "region"),
        references=(OF_REPOSITORY,),
    ),
    ResourceType(
        token="aws:ecr/repositoryPolicy:RepositoryPolicy",
        identify=by("repository"),
        describe=lambda _making: {"registryId": ACCOUNT},
        immutable=("repository", "region"),
        rules=(
            Rule(
                name="document of a repository",
                source="IAM API, MalformedPolicyDocument",
                broken=partial(document_faults, "policy"),
            ),
        ),
        references=(OF_REPOSITORY,),
    ),
)
