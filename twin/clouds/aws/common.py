"""What holds for every AWS resource: regions, ARNs, tags, ids. Pure."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twin.clouds.model import Inputs, Making, Settings
from twin.clouds.rules import at, known
from twin.clouds.wire.check import Mistake, nearest
from twin.clouds.wire.model import Wire
from twin.pulumi.provider.convert import Object, Unknown, plain
from twin.pulumi.provider.errors import ProviderError

ACCOUNT = "123456789012"  # the one that AWS's own examples use: nobody's
CALLER = f"arn:aws:iam::{ACCOUNT}:user/everstep"
DEPENDENCY = "DependencyViolation"

# Source: AWS General Reference, "Regions and Zones"; the zones are those of an account of 2026.
ZONES: Mapping[str, str] = {
    "us-east-1": "abcdef", "us-east-2": "abc", "us-west-1": "ac", "us-west-2": "abcd",
    "ca-central-1": "abd", "sa-east-1": "abc",
    "eu-central-1": "abc", "eu-central-2": "abc", "eu-north-1": "abc", "eu-south-1": "abc",
    "eu-south-2": "abc", "eu-west-1": "abc", "eu-west-2": "abc", "eu-west-3": "abc",
    "ap-northeast-1": "acd", "ap-northeast-2": "abcd", "ap-northeast-3": "abc",
    "ap-south-1": "abc", "ap-southeast-1": "abc", "ap-southeast-2": "abc",
}  # fmt: skip
# Source: the service endpoints' namespaces; these resources have no region of their own.
ARGUMENTS = frozenset({
    "region", "defaultTags", "ignoreTags", "profile", "allowedAccountIds", "assumeRoles",
    "assumeRoleWithWebIdentity", "skipCredentialsValidation", "skipMetadataApiCheck",
    "skipRegionValidation", "skipRequestingAccountId", "maxRetries", "retryMode", "version",
    "accessKey", "secretKey", "token", "sharedConfigFiles", "sharedCredentialsFiles", "endpoints",
    "pluginDownloadURL", "useFipsEndpoint", "useDualstackEndpoint", "stsRegion",
})  # fmt: skip


def zones(region: str) -> list[str]:
    """List a region's zones by name; none where the region is not known."""
    return [f"{region}{letter}" for letter in ZONES.get(region, "")]


def arn(service: str, resource: str, region: str = "") -> str:
    """Return the name of a resource that AWS knows everywhere."""
    return f"arn:aws:{service}:{region}:{ACCOUNT}:{resource}"


def prefixed(prefix: str) -> Callable[[Making], str]:
    """Return a maker of ids such as vpc-0123456789abcdef0."""
    return lambda making: f"{prefix}-0{making.entropy[:16]}"


def by(name: str) -> Callable[[Making], str]:
    """Return a maker of ids that are an input, such as a bucket's name."""
    return lambda making: str(making.inputs[name])


def ec2(kind: str) -> Callable[[Making], dict[str, Any]]:
    """Return a describer for a resource of EC2: its ARN and owner."""

    def describe(making: Making) -> dict[str, Any]:
        return {"arn": arn("ec2", f"{kind}/{making.id}", making.region), "ownerId": ACCOUNT}

    return describe


def settings(given: Mapping[str, Any]) -> Settings:
    """Read the provider's arguments.

    Raises:
        ProviderError: an argument or region that does not exist.
    """
    for name in given:
        if name not in ARGUMENTS and not name.startswith("__"):
            listed = dict.fromkeys(ARGUMENTS)
            raise ProviderError(f"aws.Provider has no argument {name!r}{nearest(name, listed)}")
    region = str(given.get("region") or os.environ.get("AWS_REGION") or "")
    if region and region not in ZONES:
        raise ProviderError(f"{region!r} is no AWS region{nearest(region, {**ZONES})}")
    tags = (given.get("defaultTags") or {}).get("tags") or {}
    return Settings(cloud="aws", region=region, tags={str(k): str(v) for k, v in tags.items()})


def complete(inputs: Object, wire: Wire, settings: Settings) -> Object:
    """Add the provider's region and tags, as the official provider does before it compares."""
    given = dict(inputs)
    if "region" in wire.inputs and given.get("region") is None and settings.region:
        given["region"] = settings.region
    taggable = wire.inputs.get("tags")
    tags = given.get("tags")
    if taggable and settings.tags and not isinstance(tags, Unknown):
        given["tags"] = {**settings.tags, **(plain(tags) or {})}
    return given


def adds(making: Making) -> dict[str, Any]:
    """Return what AWS answers of any resource: all of its tags, and where it is."""
    return {"tagsAll": making.inputs.get("tags") or {}, "region": making.region}


def faults(wire: Wire, inputs: Inputs, settings: Settings) -> Iterable[Mistake]:
    """Refuse a resource without a region, or with one, or a zone, that does not exist."""
    region = inputs.get("region") or settings.region
    if "region" in wire.inputs and not region:
        yield at("region", "no region is set: give aws.Provider(region=...) or aws:region")
    if isinstance(region, str) and region and region not in ZONES:
        yield at("region", f"{region!r} is no AWS region{nearest(region, {**ZONES})}")
    zone = inputs.get("availabilityZone")
    if known(zone) and isinstance(region, str) and region in ZONES and zone not in zones(region):
        listed = ", ".join(zones(region))
        yield at("availabilityZone", f"{zone!r} is no zone of {region}: {listed}")
    tags = inputs.get("tags")
    for key in tags if isinstance(tags, Mapping) else ():
        if key.lower().startswith("aws:"):
            yield at("tags", f"{key!r} begins with aws:, which is AWS's own (Tagging reference)")
