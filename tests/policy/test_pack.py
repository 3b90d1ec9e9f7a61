"""The rules as Pulumi's policies, without an engine."""

from typing import Any

import pytest
from pulumi_policy import (
    EnforcementLevel,
    PolicyCustomTimeouts,
    PolicyProviderResource,
    PolicyResourceOptions,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)

from policy import pack
from policy.rule import Level
from policy.tokens import BUCKET, ROLE

URN = "urn:pulumi:eks-prod::everstep::everstep:storage:Fsx$aws:s3/bucket:Bucket::data"


def arguments(
    kind: str,
    props: dict[str, Any],
    *,
    protect: bool = False,
    provider: PolicyProviderResource | None = None,
) -> ResourceValidationArgs:
    options = PolicyResourceOptions(protect, [], None, [], PolicyCustomTimeouts(0, 0, 0), [])
    return ResourceValidationArgs(kind, props, URN, "data", options, provider)


def reports_of(name: str, args: ResourceValidationArgs) -> list[str]:
    policy = next(policy for policy in pack.policies() if policy.name == name)
    assert isinstance(policy, ResourceValidationPolicy)
    reports: list[str] = []

    def report(message: str, _urn: str | None = None) -> None:
        reports.append(message)

    policy.validate(args, report)
    return reports


@pytest.mark.parametrize("protect", [True, False])
def test_stack_and_protection_come_from_the_urn_and_options(protect: bool) -> None:
    reports = reports_of("production-data-is-protected", arguments(BUCKET, {}, protect=protect))

    assert bool(reports) is not protect
    assert all(report.startswith("data contains production data") for report in reports)


def test_default_tags_are_read_from_the_json_of_the_provider() -> None:
    inputs = {"defaultTags": '{"tags": {"owner": "v", "costCenter": "1", "environment": "dev"}}'}
    provider = PolicyProviderResource("pulumi:providers:aws", inputs, "urn", "aws")

    assert not reports_of("costs-have-an-owner", arguments(ROLE, {}, provider=provider))
    assert reports_of("costs-have-an-owner", arguments(ROLE, {}))


def test_policies_have_the_levels_of_their_rules() -> None:
    expected = {
        Level.MANDATORY: EnforcementLevel.MANDATORY,
        Level.ADVISORY: EnforcementLevel.ADVISORY,
    }

    assert {policy.name: policy.enforcement_level for policy in pack.policies()} == {
        rule.name: expected[rule.level] for rule in pack.RULES
    }
