"""IAM: documents list actions by name, and every role has the account's path and permissions boundary."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pulumi
import pytest
from pulumi_aws import iam

from components.aws.iam import (
    ALL_RESOURCES,
    POD_IDENTITY,
    ROLE,
    Statement,
    trust_policy,
    with_account_rules,
)
from components.config.eks import EksIamConfig
from tests.components.aws.eks_stack import (
    PRODUCTION,
    declare_eks,
    declare_training,
    plain_stack,
)
from tests.components.recorder import Graph, RecordedResource, record

BOUNDARY = "arn:aws:iam::123456789012:policy/boundaries/everstep"
RULES = {"permissionsBoundary": BOUNDARY, "path": "/everstep/"}
PHOTOGRAPHS = {"dataset": "imagefolder", "source": "s3://my-photos/imagenet"}


@pytest.mark.parametrize("action", ["*", "s3:*", "s3:Get*", "s3:?etObject"])
def test_an_action_with_a_wildcard_is_refused(action: str) -> None:
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


def minimal_stack() -> Graph:
    return declare_eks(cluster={"iam": RULES})


@cache
def full_stack() -> Graph:
    monitoring = {"containerInsights": True, "managedPrometheus": True}
    cluster = {"iam": RULES, "monitoring": monitoring}
    registry = {"kind": "ecr", "name": "vision"}
    return declare_training(**PRODUCTION, cluster=cluster, data=PHOTOGRAPHS, registry=registry)


def existing_vpc_stack() -> Graph:
    subnets = {"us-east-1a": "subnet-0aaaaaaa", "us-east-1b": "subnet-0bbbbbbb"}
    network = {"vpcId": "vpc-0123456789abcdef0", "privateSubnetIds": subnets}
    cluster = {"iam": RULES, "network": network, "autoscaling": {"enabled": False}}
    return declare_eks(cluster={**cluster, "gpuPool": {"nodes": 3}})


def roles_of(graph: Graph) -> list[RecordedResource]:
    return [resource for resource in graph.resources_of("aws") if resource.type == ROLE]


@pytest.mark.parametrize("stack", [minimal_stack, full_stack, existing_vpc_stack])
def test_every_role_has_the_boundary_and_the_path_of_the_account(
    stack: Callable[[], Graph],
) -> None:
    roles = roles_of(stack())

    assert len(roles) >= 3
    for role in roles:
        assert role.inputs["path"] == "/everstep/", role.name
        assert role.inputs["permissionsBoundary"] == BOUNDARY, (
            f"one role without its boundary fails the whole update: {role.name}"
        )


def test_a_policy_has_the_path_of_the_account_and_no_boundary() -> None:
    def program() -> None:
        rules = with_account_rules(EksIamConfig.model_validate(RULES))
        opts = pulumi.ResourceOptions(transformations=[rules])
        iam.Policy("own", policy=json.dumps({"Version": "2012-10-17"}), opts=opts)

    inputs = record(program)["own"].inputs

    assert inputs["path"] == "/everstep/"
    assert "permissionsBoundary" not in inputs, "only roles and users have one"


def test_the_full_stack_has_the_role_of_every_component() -> None:
    actual = {role.inputs["name"].removeprefix("everstep-") for role in roles_of(full_stack())}

    assert actual == {
        *("cluster", "nodes", "autoscaler", "metrics", "data"),
        *("vpc-cni", "aws-fsx-csi-driver", "amazon-cloudwatch-observability"),
    }


def test_without_rules_a_role_gets_neither_a_path_nor_a_boundary() -> None:
    roles = roles_of(plain_stack())

    assert roles, "without a role, this test checks nothing"
    for role in roles:
        assert not {"path", "permissionsBoundary"} & set(role.inputs), (
            "a new input would be a change of every existing stack"
        )
