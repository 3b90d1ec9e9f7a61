"""Fewer aliases for Azure's resources: Pulumi computes each of them for each resource at each run.

The SDK gives a resource an alias for each version of Azure's API that it knows, such as
`azure-native:network/v20230101:Subnet`: 27 for each resource on average. They are only for stacks that were declared
with such a type, which Everstep never does. Without them, a program with 31 of Azure's resources takes 0.5 s less CPU
time.
"""

import copy
import re

import pulumi

OF_API_VERSION = re.compile(r"azure-native:\w+/v\d{8}\w*:\w+")


def without_api_versions(
    args: pulumi.ResourceTransformationArgs,
) -> pulumi.ResourceTransformationResult | None:
    """Remove the aliases for versions of Azure's API; aliases by name, and for other types, are kept."""
    if not args.opts.aliases:
        return None
    opts = copy.copy(args.opts)
    opts.aliases = [alias for alias in args.opts.aliases if not _is_of_api_version(alias)]
    return pulumi.ResourceTransformationResult(args.props, opts)


def _is_of_api_version(alias: pulumi.Input[str | pulumi.Alias]) -> bool:
    return (
        isinstance(alias, pulumi.Alias)
        and isinstance(alias.type_, str)
        and OF_API_VERSION.fullmatch(alias.type_) is not None
    )
