"""A part of a stack is brought up with all that it needs, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.engine.partial_update import PARTS, check_part, closure, fails_on_protection_only
from everstep.errors import EverstepError

REPOSITORY = PARTS["registry"][0]


def test_parents_providers_and_dependencies_are_included() -> None:
    states: list[dict[str, Any]] = [
        {"urn": "stack", "type": "pulumi:pulumi:Stack"},
        {"urn": "eks", "type": "everstep:environment:Eks", "parent": "stack"},
        {"urn": "a::b::aws", "type": "pulumi:providers:aws", "parent": "eks"},
        {"urn": "group", "type": "x:Group", "parent": "eks"},
        {"urn": "repo", "type": REPOSITORY, "parent": "eks", "provider": "a::b::aws::id", "dependencies": ["group"]},
        {"urn": "vpc", "type": "aws:ec2/vpc:Vpc", "parent": "eks", "dependencies": ["repo"]},
    ]  # fmt: skip

    assert closure(states, PARTS["registry"]) == ["a::b::aws", "eks", "group", "repo", "stack"]


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=10),
    st.sets(st.integers(0, 9)),
)
def test_a_closure_needs_nothing_outside_it(
    edges: list[list[int]], chosen_indexes: set[int]
) -> None:
    states = [
        {
            "urn": str(index),
            "type": REPOSITORY if index in chosen_indexes else "other",
            "dependencies": [str(target) for target in targets if target < len(edges)],
        }
        for index, targets in enumerate(edges)
    ]

    included_urns = set(closure(states, PARTS["registry"]))

    assert {str(index) for index in chosen_indexes if index < len(edges)} <= included_urns
    for state in states:
        if state["urn"] in included_urns:
            assert set(state["dependencies"]) <= included_urns


def test_an_unknown_part_is_reported_with_the_valid_names() -> None:
    with pytest.raises(EverstepError, match="registy") as error:
        check_part("registy")
    assert "registry" in error.value.fix


def test_a_plan_that_fails_on_protected_resources_only_is_used() -> None:
    protected = {
        "urn": "bucket",
        "severity": "error",
        "message": "cannot be deleted\nbecause it is protected.",
    }
    summary = {"severity": "error", "message": "error: preview failed"}
    other = {"urn": "stack", "severity": "error", "message": "error: no credentials"}
    warning = {"urn": "stack", "severity": "warning", "message": "a new version"}

    assert fails_on_protection_only({"diagnostics": [protected, warning, summary]})
    assert not fails_on_protection_only({"diagnostics": [protected, other, summary]})
    assert not fails_on_protection_only({"diagnostics": [summary]}), "the cause is elsewhere"
    assert not fails_on_protection_only({})
