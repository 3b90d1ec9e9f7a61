"""IAM: policy documents that name every action, and the rules of an account for roles.

AWS's own examples allow `service:*` on `*`. This module refuses a statement with a wildcard action. A
statement on all resources may only read, since most Describe and List actions cannot be restricted to a
resource.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from cloudfacts.aws import READ_PREFIXES

from components.component import Transformation
from components.config import EksIamConfig

ALL_RESOURCES = "*"
WILDCARDS = frozenset("*?")
POD_IDENTITY = "pods.eks.amazonaws.com"
ROLE, POLICY = "aws:iam/role:Role", "aws:iam/policy:Policy"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement with the effect Allow.

    Attributes:
        actions: actions such as `eks:DescribeNodegroup`, without wildcards.
        resources: ARNs; `ALL_RESOURCES` only if all actions are read-only.
        conditions: operator -> key -> value, in the syntax of IAM.
    """

    actions: Sequence[str]
    resources: Sequence[pulumi.Input[str]]
    conditions: Mapping[str, Mapping[str, pulumi.Input[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the statement is not too broad.

        Raises:
            ValueError: an action has a wildcard, or a write action is allowed on all resources.
        """
        if any(WILDCARDS & set(action) for action in self.actions):
            raise ValueError(
                f"actions {list(self.actions)} contain a wildcard; name the actions one by one"
            )
        read_only = all(
            action.partition(":")[2].startswith(READ_PREFIXES) for action in self.actions
        )
        if ALL_RESOURCES in self.resources and not read_only:
            raise ValueError(
                f"actions {list(self.actions)} may change all resources; name the resources that they may change"
            )

    def as_document(self) -> dict[str, Any]:
        """Return the statement in the syntax of IAM."""
        document: dict[str, Any] = {
            "Effect": "Allow",
            "Action": sorted(self.actions),
            "Resource": list(self.resources),
        }
        return {**document, "Condition": self.conditions} if self.conditions else document


def policy(*statements: Statement) -> pulumi.Output[str]:
    """Return the policy document of the statements, as JSON."""
    documents = [statement.as_document() for statement in statements]
    return pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": documents})


def trust_policy(service: str) -> str:
    """Return the trust policy that lets only one AWS service assume a role.

    Args:
        service: name such as eks.amazonaws.com. Pod identity (pods.eks.amazonaws.com) also needs
            permission to tag its sessions.
    """
    actions = ["sts:AssumeRole"]
    if service == POD_IDENTITY:
        actions.append("sts:TagSession")
    statement = {"Effect": "Allow", "Action": actions, "Principal": {"Service": service}}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def with_account_rules(config: EksIamConfig) -> Transformation:
    """Return the transformation that gives every role its boundary, and every role and policy its path.

    A transformation, so that no role of a component can be forgotten: one role without its boundary fails the
    whole update in an account that requires it.
    """
    path = {} if config.path == "/" else {"path": config.path}
    boundary = (
        {"permissions_boundary": config.permissions_boundary} if config.permissions_boundary else {}
    )
    inputs = {ROLE: {**path, **boundary}, POLICY: path}

    def transform(
        args: pulumi.ResourceTransformationArgs,
    ) -> pulumi.ResourceTransformationResult | None:
        if args.type_ not in inputs:
            return None
        return pulumi.ResourceTransformationResult({**args.props, **inputs[args.type_]}, args.opts)

    return transform
