"""Rules about IAM: no wildcard actions or resources, and known principals only."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cloudfacts.aws import READ_PREFIXES

from policy.rule import PolicyRule, Resource
from policy.tokens import IAM_POLICY, ROLE, ROLE_POLICY

WILDCARDS = frozenset("*?")


def _statements(document: object) -> Iterator[Mapping[str, Any]]:
    """Yield the Allow statements of a policy document, given as JSON text or parsed."""
    if isinstance(document, str):
        document = json.loads(document)
    if not isinstance(document, Mapping):
        return
    statements = document.get("Statement") or ()
    for statement in [statements] if isinstance(statements, Mapping) else statements:
        if statement.get("Effect") == "Allow":
            yield statement


def _as_list(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(entry) for entry in value] if isinstance(value, list | tuple) else []


def _only_reads(actions: list[str]) -> bool:
    return all(action.partition(":")[2].startswith(READ_PREFIXES) for action in actions)


def _check_wildcards(resource: Resource) -> Iterator[str]:
    for statement in _statements(resource.properties.get("policy")):
        actions = _as_list(statement.get("Action"))
        for action in actions:
            if WILDCARDS & set(action):
                yield f"allows {action}: list the required actions"
        covers_all = "*" in _as_list(statement.get("Resource"))
        if covers_all and not statement.get("Condition") and not _only_reads(actions):
            examples = ", ".join(actions[:3])
            yield f"allows {examples} on every resource: list the ARNs, or add a Condition"
        if "NotAction" in statement or "NotResource" in statement:
            yield "allows everything except a list (NotAction, NotResource): list the required ones instead"


def _check_principals(resource: Resource) -> Iterator[str]:
    for statement in _statements(resource.properties.get("assumeRolePolicy")):
        principal = statement.get("Principal")
        principals = _as_list(principal) if isinstance(principal, str) else []
        if isinstance(principal, Mapping):
            principals = _as_list(principal.get("AWS"))
        if "*" in principals and not statement.get("Condition"):
            yield "can be assumed by any principal: specify the principal"


RULES = (
    PolicyRule(
        name="no-wildcard-iam",
        description="A policy lists its actions, and its resources unless it only reads.",
        types=frozenset({IAM_POLICY, ROLE_POLICY}),
        check=_check_wildcards,
    ),
    PolicyRule(
        name="roles-have-known-principals",
        description="A role lists the principals that may assume it.",
        types=frozenset({ROLE}),
        check=_check_principals,
    ),
)
