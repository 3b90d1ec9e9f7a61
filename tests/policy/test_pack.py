"""The rules as Pulumi's policies, without an engine."""

import pytest
from pulumi_policy import (
    EnforcementLevel,
    PolicyCustomTimeouts,
    PolicyProviderResource,
    PolicyResourceOptions,
    ResourceValidationArgs,
)

from policy import pack
from policy.tokens import BUCKET, ROLE

URN = "urn:pulumi:eks-prod::everstep::everstep:storage:Fsx$aws:s3/bucket:Bucket::data"
TAGS = {"owner": "vision", "costCenter": "42", "environment": "dev"}


def arguments(kind, props, *, protect=False, provider=None):
    options = PolicyResourceOptions(protect, [], None, [], PolicyCustomTimeouts(0, 0, 0), [])
    return ResourceValidationArgs(kind, props, URN, "data", options, provider)


def reports_of(name, args):
    policy = next(policy for policy in pack.policies() if policy.name == name)
    found = []
    policy.validate(args, lambda message, urn=None: found.append(message))
    return found


@pytest.mark.parametrize("protect", [True, False])
def test_the_stack_and_the_protection_come_from_the_engine(protect):
    reports = reports_of("production-data-is-protected", arguments(BUCKET, {}, protect=protect))

    assert bool(reports) is not protect
    assert all(report.startswith("data holds production's data") for report in reports)


def test_the_provider_s_tags_are_read_from_its_packed_arguments():
    packed = {"defaultTags": '{"tags": {"owner": "v", "costCenter": "1", "environment": "dev"}}'}
    provider = PolicyProviderResource("pulumi:providers:aws", packed, "urn", "aws")

    assert not reports_of("costs-have-an-owner", arguments(ROLE, {}, provider=provider))
    assert reports_of("costs-have-an-owner", arguments(ROLE, {}))


def test_levels_are_the_rules_own():
    levels = {policy.name: policy.enforcement_level for policy in pack.policies()}

    assert levels["gpu-pools-are-spot"] is EnforcementLevel.MANDATORY
    assert levels["production-images-by-digest"] is EnforcementLevel.ADVISORY
    assert set(levels) == {rule.name for rule in pack.RULES}
