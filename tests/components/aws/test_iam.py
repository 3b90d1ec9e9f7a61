"""IAM documents: actions are always listed by name."""

import json
from typing import Any

import pytest

from components.aws.iam import ALL_RESOURCES, POD_IDENTITY, Statement, trust_policy


@pytest.mark.parametrize("action", ["*", "s3:*", "s3:Get*"])
def test_no_action_is_a_wildcard(action: str) -> None:
    with pytest.raises(ValueError, match="one by one"):
        Statement(actions=[action], resources=["arn:aws:s3:::a"])


def test_statements_on_all_resources_are_read_only() -> None:
    Statement(actions=["ec2:DescribeImages", "s3:ListAllMyBuckets"], resources=[ALL_RESOURCES])

    with pytest.raises(ValueError, match="ec2:TerminateInstances"):
        Statement(
            actions=["ec2:DescribeImages", "ec2:TerminateInstances"], resources=[ALL_RESOURCES]
        )


def test_a_statement_has_the_format_of_iam() -> None:
    actual = Statement(
        actions=["b:Do", "a:Do"], resources=["arn"], conditions={"StringEquals": {"k": "v"}}
    )

    assert actual.as_document() == {
        "Effect": "Allow",
        "Action": ["a:Do", "b:Do"],
        "Resource": ["arn"],
        "Condition": {"StringEquals": {"k": "v"}},
    }


@pytest.mark.parametrize(
    ("service", "actions"),
    [
        ("eks.amazonaws.com", ["sts:AssumeRole"]),
        (POD_IDENTITY, ["sts:AssumeRole", "sts:TagSession"]),
    ],
)
def test_a_role_trusts_one_service(service: str, actions: list[str]) -> None:
    (statement,) = trust_statements(service)

    assert statement["Principal"] == {"Service": service}
    assert statement["Action"] == actions


def trust_statements(service: str) -> list[dict[str, Any]]:
    actual: list[dict[str, Any]] = json.loads(trust_policy(service))["Statement"]
    return actual
