"""Rules and values that all AWS resources share: regions, tags, ARNs, ids.

Pure, except that `configure` reads AWS_REGION.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cloudfacts.aws import REGIONS

from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.providers.conditions import cidr, failure_at, is_known
from cloudtwin.providers.model import Inputs, ProviderConfig, ResourceRequest
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.values import Object, Secret
from cloudtwin.providers.schema.check import CheckFailure, nearest
from cloudtwin.providers.schema.limits import limits_of
from cloudtwin.providers.schema.model import ResourceSchema

CALLER = f"arn:aws:iam::{AWS_ACCOUNT}:user/cloudtwin"
IN_ACCOUNT = f":{AWS_ACCOUNT}:"  # part of every ARN in the twin's account
DEPENDENCY = "DependencyViolation"
CREATION_TIME = "2026-01-01T00:00:00Z"
OBJECT = "aws:s3/bucketObjectv2:BucketObjectv2"

ZONES: Mapping[str, tuple[str, ...]] = {
    name: region.zones for name, region in REGIONS.items() if region.zones
}
# Source: the provider's own schema.
PROVIDER_ARGUMENTS = frozenset({
    "region", "defaultTags", "ignoreTags", "profile", "allowedAccountIds", "assumeRoles",
    "assumeRoleWithWebIdentity", "skipCredentialsValidation", "skipMetadataApiCheck",
    "skipRegionValidation", "skipRequestingAccountId", "maxRetries", "retryMode", "version",
    "accessKey", "secretKey", "token", "sharedConfigFiles", "sharedCredentialsFiles", "endpoints",
    "pluginDownloadURL", "useFipsEndpoint", "useDualstackEndpoint", "stsRegion",
})  # fmt: skip

# Source: Tagging AWS resources, "Tag naming limits and requirements"; S3 User Guide, object tagging.
TAG_SOURCE = "Tagging AWS resources, tag naming limits"
MAX_TAGS, MAX_TAGS_OF = 50, {OBJECT: 10, "aws:budgets/budget:Budget": 200}
MAX_TAG_KEY, MAX_TAG_VALUE = 128, 256
TAG_PATTERN = re.compile(r"[\w\s+\-=.:/@]*")


# Source: AWS General Reference, Amazon Resource Names.
ARN_SOURCE = "AWS General Reference, ARNs"
ARN_PATTERN = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12}|aws|cloudfront)?:\S+")
EXAMPLE_ARN = f"arn:aws:iam::{AWS_ACCOUNT}:role/name"
# Inputs that name a KMS key by its ARN, in the resource's own region.
KEY_INPUTS = ("kmsKeyId", "kmsKeyArn", "keyArn", "kmsKey")
KEY_SOURCE = "KMS Developer Guide, key ARN"
# Lower-case suffixes of input names whose values are address blocks.
BLOCK_SUFFIXES = ("cidr", "cidrblock", "cidripv4", "cidripv6")
USER_KEYED_OBJECTS = ("tags", "labels", "metadata")  # objects whose keys the user chooses

limits = partial(limits_of, Path(__file__).parent)


def zones(region: str) -> list[str]:
    """Return the names of a region's zones; none for an unknown region."""
    return list(ZONES.get(region, ()))


def arn(service: str, resource: str, region: str = "") -> str:
    """Return an ARN in the twin's account."""
    return f"arn:aws:{service}:{region}:{AWS_ACCOUNT}:{resource}"


def id_with_prefix(prefix: str) -> Callable[[ResourceRequest], str]:
    """Return a function that creates ids such as vpc-0123456789abcdef0."""
    return lambda request: f"{prefix}-0{request.entropy[:16]}"


def id_from(*names: str, separator: str = ":") -> Callable[[ResourceRequest], str]:
    """Return a function that creates ids from inputs, such as a bucket's name."""
    return lambda request: separator.join(str(request.inputs[name]) for name in names)


def ec2(kind: str) -> Callable[[ResourceRequest], dict[str, Any]]:
    """Return a function that describes an EC2 resource: its ARN and owner."""

    def describe(request: ResourceRequest) -> dict[str, Any]:
        return {"arn": arn("ec2", f"{kind}/{request.id}", request.region), "ownerId": AWS_ACCOUNT}

    return describe


def configure(arguments: Mapping[str, Any]) -> ProviderConfig:
    """Return the provider's configuration.

    Raises:
        ProviderError: an unknown argument or region.
    """
    for name in arguments:
        if name not in PROVIDER_ARGUMENTS and not name.startswith("__"):
            raise ProviderError(
                f"aws.Provider has no argument {name!r}{nearest(name, PROVIDER_ARGUMENTS)}"
            )
    region = str(arguments.get("region") or os.environ.get("AWS_REGION") or "")
    if region and region not in ZONES:
        raise ProviderError(
            f"{region!r} is not an AWS region that the twin has{nearest(region, ZONES)}"
        )
    tags = (arguments.get("defaultTags") or {}).get("tags") or {}
    tags = {str(key): str(value) for key, value in tags.items()}
    return ProviderConfig(cloud="aws", region=region, tags=tags)


def with_defaults(inputs: Object, schema: ResourceSchema, config: ProviderConfig) -> Object:
    """Return inputs with the provider's region and tags, as the official provider compares them."""
    completed_inputs = dict(inputs)
    if "region" in schema.inputs and completed_inputs.get("region") is None and config.region:
        completed_inputs["region"] = config.region
    tags = completed_inputs.get("tags")
    declared_tags = (tags.value if isinstance(tags, Secret) else tags) or {}
    # The type check refuses tags that are not an object.
    if "tags" in schema.inputs and config.tags and isinstance(declared_tags, Mapping):
        all_tags = {**config.tags, **declared_tags}
        completed_inputs["tags"] = Secret(all_tags) if isinstance(tags, Secret) else all_tags
    return completed_inputs


def common_outputs(request: ResourceRequest) -> dict[str, Any]:
    """Return the outputs of every AWS resource: all of its tags, and its region."""
    return {"tagsAll": request.inputs.get("tags") or {}, "region": request.region}


def common_rules(
    schema: ResourceSchema, inputs: Inputs, config: ProviderConfig
) -> Iterable[CheckFailure]:
    """Yield an error for an invalid or missing region, an invalid zone, and each invalid ARN, address block and tag."""
    region = inputs.get("region") or config.region
    if "region" in schema.inputs and not region:
        yield failure_at("region", "no region is set: set aws.Provider(region=...) or aws:region")
    if isinstance(region, str) and region and region not in ZONES:
        yield failure_at(
            "region", f"{region!r} is not an AWS region that the twin has{nearest(region, ZONES)}"
        )
    zone = inputs.get("availabilityZone")
    if is_known(zone) and isinstance(region, str) and region in ZONES and zone not in zones(region):
        zone_names = ", ".join(zones(region))
        yield failure_at("availabilityZone", f"{zone!r} is not a zone of {region}: {zone_names}")
    yield from format_errors(inputs, ())
    yield from key_errors(inputs, region if isinstance(region, str) else "", ())
    tags = inputs.get("tags")
    for reason in tag_errors(schema.token, tags) if isinstance(tags, Mapping) else ():
        yield failure_at("tags", f"{reason} ({TAG_SOURCE})")


def format_errors(value: Any, path: tuple[str | int, ...]) -> Iterator[CheckFailure]:  # noqa: ANN401
    """Yield an error for each input that should be an ARN or an address block and is not."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key not in USER_KEYED_OBJECTS:
                yield from format_errors(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from format_errors(item, (*path, index))
    elif isinstance(value, str):
        name = str(next(step for step in reversed(path) if isinstance(step, str))).removesuffix("s")
        if name.endswith("Arn") and not ARN_PATTERN.fullmatch(value):
            yield CheckFailure(
                path, f"{value!r} is not an ARN such as {EXAMPLE_ARN} ({ARN_SOURCE})"
            )
        if name.lower().endswith(BLOCK_SUFFIXES) and (reason := cidr()(value)):
            yield CheckFailure(path, reason)


def key_errors(
    value: Any,  # noqa: ANN401
    region: str,
    path: tuple[str | int, ...],
) -> Iterator[CheckFailure]:
    """Yield an error for each KMS key that is not an ARN of a key in `region`; an empty `region` allows any."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key not in USER_KEYED_OBJECTS:
                yield from key_errors(item, region, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from key_errors(item, region, (*path, index))
    elif isinstance(value, str) and path and path[-1] in KEY_INPUTS:
        form = rf"arn:aws[a-z-]*:kms:{region or '[a-z0-9-]+'}:\d{{12}}:(key|alias)/\S+"
        if not re.fullmatch(form, value):
            reason = f"{value!r} is not the ARN of a key in {region or 'a region'}"
            yield CheckFailure(path, f"{reason} ({KEY_SOURCE})")


def tag_errors(token: str, tags: Mapping[str, Any]) -> Iterator[str]:
    """Yield an error for each violation of a type's tag limits."""
    max_tags = MAX_TAGS_OF.get(token, MAX_TAGS)
    if len(tags) > max_tags:
        yield f"{len(tags)} tags, at most {max_tags} are allowed (including the provider's default tags)"
    lower_case_keys = [key.lower() for key in tags]
    for key, value in tags.items():
        if not 1 <= len(key) <= MAX_TAG_KEY:
            yield f"the key {key!r} has {len(key)} characters: 1 to {MAX_TAG_KEY} are allowed"
        if key.lower().startswith("aws:"):
            yield f"{key!r} begins with aws:, which AWS reserves"
        if token.startswith("aws:iam/") and lower_case_keys.count(key.lower()) > 1:
            yield f"{key!r} differs from another key only in case, which IAM ignores"
        if isinstance(value, str) and len(value) > MAX_TAG_VALUE:
            yield f"the value of {key!r} has {len(value)} characters, at most {MAX_TAG_VALUE} are allowed"
        for text in (key, value) if not token.startswith(("aws:ec2/", "aws:vpc/")) else ():
            if isinstance(text, str) and not TAG_PATTERN.fullmatch(text):
                yield f"{text!r} has characters other than letters, digits, spaces and _ . : / = + - @"
