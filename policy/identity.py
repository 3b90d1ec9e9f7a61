"""Rights are named one by one: no wildcards in what a role may do or on what."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from policy.rule import Resource, Rule
from policy.tokens import IAM_POLICY, ROLE, ROLE_POLICY

# What only looks. AWS lets most of these be granted on "*" alone.
READING = ("Describe", "List", "Get")


def _statements(document: object) -> Iterator[Mapping[str, Any]]:
    """Give the Allow statements of a policy document: JSON, or what JSON stands for."""
    if isinstance(document, str):
        document = json.loads(document)
    if not isinstance(document, Mapping):
        return
    found = document.get("Statement") or ()
    for statement in [found] if isinstance(found, Mapping) else found:
        if statement.get("Effect") == "Allow":
            yield statement


def _listed(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(entry) for entry in value] if isinstance(value, list | tuple) else []


def _only_reads(actions: list[str]) -> bool:
    return all(action.partition(":")[2].startswith(READING) for action in actions)


def _no_wildcards(resource: Resource) -> Iterator[str]:
    for statement in _statements(resource.properties.get("policy")):
        actions = _listed(statement.get("Action"))
        for action in actions:
            if action == "*" or action.endswith(":*"):
                yield f"allows {action}: name the actions that are needed"
        everywhere = "*" in _listed(statement.get("Resource"))
        if everywhere and not statement.get("Condition") and not _only_reads(actions):
            what = ", ".join(actions[:3])
            yield f"allows {what} on every resource: name the ARNs, or add a Condition"
        if "NotAction" in statement or "NotResource" in statement:
            yield "allows all but a few (NotAction, NotResource): name what is needed instead"


def _nobody_unknown_assumes(resource: Resource) -> Iterator[str]:
    for statement in _statements(resource.properties.get("assumeRolePolicy")):
        principal = statement.get("Principal")
        named = _listed(principal) if isinstance(principal, str) else []
        if isinstance(principal, Mapping):
            named = _listed(principal.get("AWS"))
        if "*" in named and not statement.get("Condition"):
            yield "can be assumed by anybody: name the principal"


RULES = (
    Rule(
        name="no-wildcard-iam",
        description="A policy names its actions, and its resources where it does more than read.",
        types=frozenset({IAM_POLICY, ROLE_POLICY}),
        check=_no_wildcards,
    ),
    Rule(
        name="roles-name-who-may-assume-them",
        description="A role names who may assume it.",
        types=frozenset({ROLE}),
        check=_nobody_unknown_assumes,
    ),
)
