"""IAM documents: a right is always named."""

import json
from typing import Any

import pytest

from components.iam import EVERY, POD_IDENTITY, Statement, trusting


@pytest.mark.parametrize("action", ["*", "s3:*", "s3:Get*"])
def test_no_action_is_a_wildcard(action: str) -> None:
    with pytest.raises(ValueError, match="one by one"):
        Statement(actions=[action], resources=["arn:aws:s3:::a"])


def test_on_everything_one_may_only_look() -> None:
    Statement(actions=["ec2:DescribeImages", "s3:ListAllMyBuckets"], resources=[EVERY])

    with pytest.raises(ValueError, match="ec2:TerminateInstances"):
        Statement(actions=["ec2:DescribeImages", "ec2:TerminateInstances"], resources=[EVERY])


def test_a_statement_is_written_as_iam_reads_it() -> None:
    said = Statement(
        actions=["b:Do", "a:Do"], resources=["arn"], conditions={"StringEquals": {"k": "v"}}
    )

    assert said.as_document() == {
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
    (statement,) = trusted(service)

    assert statement["Principal"] == {"Service": service}
    assert statement["Action"] == actions


def trusted(service: str) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = json.loads(trusting(service))["Statement"]
    return said
