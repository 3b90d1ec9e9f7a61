"""All rules as Pulumi's policies. Besides `__main__`, it is the only module that imports the SDK."""

import json
from collections.abc import Mapping

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)

from policy import access, encryption, gpu_pools, identity, ownership, workloads
from policy.rule import PolicyRule, Resource

NAME = "everstep"
RULES: tuple[PolicyRule, ...] = (
    *gpu_pools.RULES,
    *access.RULES,
    *encryption.RULES,
    *identity.RULES,
    *ownership.RULES,
    *workloads.RULES,
)


def policies() -> list[Policy]:
    """Return the pack's policies."""
    return [_policy(rule) for rule in RULES]


def _policy(rule: PolicyRule) -> ResourceValidationPolicy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for violation in rule.violations(as_resource(args)):
            report(f"{args.name} {violation}.", None)

    level = EnforcementLevel(rule.level.value)
    return ResourceValidationPolicy(rule.name, rule.description, validate, level)


def as_resource(args: ResourceValidationArgs) -> Resource:
    """Return a resource in the form that the rules check."""
    return Resource(
        type=args.resource_type,
        properties=args.props,
        stack=stack_of(args.urn),
        protect=bool(args.opts.protect),
        default_tags=_default_tags(args),
    )


def stack_of(urn: str) -> str:
    """Return the stack's name, which is the first part of a URN after `urn:pulumi:`."""
    return urn.removeprefix("urn:pulumi:").partition("::")[0]


def _default_tags(args: ResourceValidationArgs) -> Mapping[str, str]:
    """Return the tags that an AWS provider adds; the engine passes nested provider arguments as JSON."""
    if args.provider is None:
        return {}
    tags = args.provider.props.get("defaultTags")
    parsed = json.loads(tags) if isinstance(tags, str) else tags
    return dict((parsed or {}).get("tags") or {})
