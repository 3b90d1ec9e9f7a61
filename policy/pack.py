"""All rules as Pulumi's policies: the only module that knows the SDK."""

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
from policy.rule import Resource, Rule

NAME = "everstep"
RULES: tuple[Rule, ...] = (
    *gpu_pools.RULES,
    *access.RULES,
    *encryption.RULES,
    *identity.RULES,
    *ownership.RULES,
    *workloads.RULES,
)


def policies() -> list[Policy]:
    """Give the pack's policies."""
    return [_policy(rule) for rule in RULES]


def _policy(rule: Rule) -> ResourceValidationPolicy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for violation in rule.violations(seen(args)):
            report(f"{args.name} {violation}.", None)

    level = EnforcementLevel(rule.level.value)
    return ResourceValidationPolicy(rule.name, rule.description, validate, level)


def seen(args: ResourceValidationArgs) -> Resource:
    """Give a resource as rules see it."""
    return Resource(
        type=args.resource_type,
        properties=args.props,
        stack=stack_of(args.urn),
        protect=bool(args.opts.protect),
        default_tags=_default_tags(args),
    )


def stack_of(urn: str) -> str:
    """Give the stack's name, which is the first part of a URN after `urn:pulumi:`."""
    return urn.removeprefix("urn:pulumi:").partition("::")[0]


def _default_tags(args: ResourceValidationArgs) -> Mapping[str, str]:
    """Read the tags that an AWS provider adds; nested arguments of providers travel as JSON."""
    if args.provider is None:
        return {}
    said = args.provider.props.get("defaultTags")
    parsed = json.loads(said) if isinstance(said, str) else said
    return dict((parsed or {}).get("tags") or {})
