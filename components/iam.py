"""IAM documents, written so that a right is always named: what may be done, on what.

Pure but for outputs in ARNs. AWS' own examples allow `service:*` on `*`; a statement here with a
wildcard action is refused, and one on every resource must only read, since most of what describes
or lists can be granted on nothing narrower.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

READING = ("Describe", "List", "Get")
EVERY = "*"
POD_IDENTITY = "pods.eks.amazonaws.com"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One Allow.

    Attributes:
        actions: `service:Action`, each without wildcard.
        resources: ARNs; `EVERY` only where all actions read.
        conditions: operator -> key -> value, as IAM writes them.
    """

    actions: Sequence[str]
    resources: Sequence[pulumi.Input[str]]
    conditions: Mapping[str, Mapping[str, pulumi.Input[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what would allow more than is said.

        Raises:
            ValueError: a wildcard action, or a change allowed on everything.
        """
        if any("*" in action for action in self.actions):
            raise ValueError(f"name the actions one by one: {list(self.actions)}")
        reads = all(action.partition(":")[2].startswith(READING) for action in self.actions)
        if EVERY in self.resources and not reads:
            raise ValueError(f"name the resources that {list(self.actions)} may change")

    def as_document(self) -> dict[str, Any]:
        """Give it as IAM writes it."""
        said: dict[str, Any] = {
            "Effect": "Allow",
            "Action": sorted(self.actions),
            "Resource": list(self.resources),
        }
        return {**said, "Condition": self.conditions} if self.conditions else said


def policy(*statements: Statement) -> pulumi.Output[str]:
    """Give the policy document of some statements, as JSON."""
    parts = [statement.as_document() for statement in statements]
    return pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": parts})


def trusting(service: str) -> str:
    """Give the document that lets an AWS service, and nobody else, assume a role.

    Args:
        service: such as eks.amazonaws.com. Pod identity (pods.eks.amazonaws.com) tags its sessions,
            which it must be allowed to.
    """
    actions = ["sts:AssumeRole"]
    if service == POD_IDENTITY:
        actions.append("sts:TagSession")
    statement = {"Effect": "Allow", "Action": actions, "Principal": {"Service": service}}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})
