"""Lifecycle policies of Amazon ECR. Pure.

Source: ECR User Guide, "Lifecycle policy parameters". Read 2026-11.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

TAG_STATUSES = ("tagged", "untagged", "any")


def lifecycle_policy_error(text: object) -> str | None:
    """Return the reason why text is not a lifecycle policy; None if it is valid."""
    try:
        content = json.loads(text) if isinstance(text, str) else {"rules": []}
    except ValueError as error:
        return f"this is not valid JSON: {error}"
    rules = content.get("rules") if isinstance(content, Mapping) else None
    if not isinstance(rules, list):
        return "the policy has no list of rules"
    if not all(
        isinstance(rule, Mapping) and isinstance(rule.get("selection"), Mapping) for rule in rules
    ):
        return "each rule must be an object with a selection"
    return next(_errors(rules), None)


def _errors(rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    priorities: list[Any] = [rule.get("rulePriority") for rule in rules]
    for rule, priority in zip(rules, priorities, strict=True):
        if not isinstance(priority, int) or priority < 1:
            yield f"rulePriority is a number of at least 1, not {priority!r}"
        elif priorities.count(priority) > 1:
            yield f"two rules have the rulePriority {priority}"
        for reason in _selection_errors(rule["selection"]):
            yield f"rule {priority}: {reason}"
    for status in ("untagged", "any"):
        selected = [rule for rule in rules if rule["selection"].get("tagStatus") == status]
        classes = [rule["selection"].get("storageClass", "standard") for rule in selected]
        if len(set(classes)) < len(classes):
            yield f"only one rule may select images with the tagStatus {status}"
        if status == "any" and any(rule["rulePriority"] < max(priorities) for rule in selected):
            yield "the rule with the tagStatus any must have the highest rulePriority"


def _selection_errors(selection: Mapping[str, Any]) -> Iterator[str]:
    status = selection.get("tagStatus")
    if status not in TAG_STATUSES:
        yield f"tagStatus is one of {', '.join(TAG_STATUSES)}, not {status!r}"
    has_tags = any(selection.get(name) for name in ("tagPrefixList", "tagPatternList"))
    if status == "tagged" and not has_tags:
        yield "the tagStatus tagged needs a tagPrefixList or a tagPatternList"
    is_age = str(selection.get("countType")).startswith("since")
    if is_age != (selection.get("countUnit") is not None):
        yield "countUnit must be set if and only if countType begins with since"
    number = selection.get("countNumber")
    if not isinstance(number, int) or number < 1:
        yield f"countNumber is a number of at least 1, not {number!r}"
