"""IAM: documents list actions by name, and every role follows the rules of the account."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from components.aws.iam import (
    ALL_RESOURCES,
    POD_IDENTITY,
    POLICY,
    ROLE,
    Statement,
    trust_policy,
)
from tests.components.aws.eks_stack import PRODUCTION, declare_eks, declare_training
from tests.components.recorder import Graph, RecordedResource

BOUNDARY = "arn:aws:iam::123456789012:policy/boundaries/everstep"
RULES = {"permissionsBoundary": BOUNDARY, "path": "/everstep/"}
PHOTOGRAPHS = {"dataset": "imagefolder", "source": "s3://my-photos/imagenet"}


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


def own_vpc() -> dict[str, Any]:
    zones = {"us-east-1a": "subnet-0aaaaaaa", "us-east-1b": "subnet-0bbbbbbb"}
    return {"vpcId": "vpc-0123456789abcdef0", "privateSubnetIds": zones}


def plain_stack(rules: dict[str, str]) -> Graph:
    return declare_eks(cluster={"iam": rules})


def full_stack(rules: dict[str, str]) -> Graph:
    monitoring = {"containerInsights": True, "managedPrometheus": True}
    cluster = {"iam": rules, "monitoring": monitoring}
    registry = {"kind": "ecr", "name": "vision"}
    return declare_training(**PRODUCTION, cluster=cluster, data=PHOTOGRAPHS, registry=registry)


def own_vpc_stack(rules: dict[str, str]) -> Graph:
    cluster = {"iam": rules, "network": own_vpc(), "autoscaling": {"enabled": False}}
    return declare_eks(cluster={**cluster, "gpuPool": {"nodes": 3}})


def roles_of(graph: Graph) -> list[RecordedResource]:
    return [resource for resource in graph.resources_of("aws") if resource.type == ROLE]


@pytest.mark.parametrize("stack", [plain_stack, full_stack, own_vpc_stack])
def test_every_role_has_the_boundary_and_the_path_of_the_account(
    stack: Callable[[dict[str, str]], Graph],
) -> None:
    graph = stack(RULES)

    assert len(roles_of(graph)) >= 3
    for role in roles_of(graph):
        assert role.inputs["path"] == "/everstep/", role.name
        assert role.inputs["permissionsBoundary"] == BOUNDARY, (
            f"one role without its boundary fails the whole update: {role.name}"
        )
    for policy in graph.resources_of("aws"):
        assert policy.type != POLICY or policy.inputs["path"] == "/everstep/", policy.name


def test_the_full_stack_has_the_role_of_every_component() -> None:
    actual = {role.inputs["name"].removeprefix("everstep-") for role in roles_of(full_stack(RULES))}

    assert actual == {
        *("cluster", "nodes", "autoscaler", "metrics", "data"),
        *("vpc-cni", "aws-fsx-csi-driver", "amazon-cloudwatch-observability"),
    }


def test_without_rules_a_role_gets_neither_a_path_nor_a_boundary() -> None:
    roles = roles_of(plain_stack({}))

    assert roles, "without a role, this test checks nothing"
    for role in roles:
        assert not {"path", "permissionsBoundary"} & set(role.inputs), (
            "a new input would be a change of every existing stack"
        )
