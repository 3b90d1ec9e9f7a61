"""Production stacks, declared whole: nothing the SDK refuses, nothing the policies do.

Those of development have the same parts and fewer of them; the twin brings them up.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from components import environment, stack_table
from components.stack import TrainingStack, TrainingStackArgs
from policy.pack import RULES
from policy.rule import Level, Resource
from tests.unit.components.recorder import Graph, Recorded, record
from tests.unit.components.test_stacks import ON_CLOUDS

PRODUCTION = [name for name in ON_CLOUDS if name.endswith("-prod")]


@cache
def graph_of(name: str) -> Graph:
    config = stack_table.read(stack_table.STACKS / f"Pulumi.{name}.yaml")

    def program() -> Mapping[str, Any]:
        place = environment.declare(config, name)
        args = TrainingStackArgs(config=config, cluster=place.cluster, volume=place.volume)
        return {**place.outputs, **TrainingStack("training", args).outputs}

    return record(program)


def default_tags(graph: Graph, resource: Recorded) -> Mapping[str, str]:
    provider = next(
        (one for one in graph.resources.values() if resource.provider.startswith(one.urn)), None
    )
    said = provider.inputs.get("defaultTags") if provider else None
    parsed = json.loads(said) if isinstance(said, str) else said  # as providers' arguments travel
    return dict((parsed or {}).get("tags") or {})


def violations(name: str, level: Level) -> Iterator[tuple[str, str]]:
    graph = graph_of(name)
    for one in graph.resources.values():
        seen = Resource(
            type=one.type,
            properties=one.inputs,
            stack=name,
            protect=one.protect,
            default_tags=default_tags(graph, one),
        )
        for rule in RULES:
            if rule.level is level:
                yield from ((rule.name, f"{one.name} {said}") for said in rule.violations(seen))


@pytest.mark.parametrize("name", PRODUCTION)
def test_a_stack_breaks_no_policy_that_is_mandatory(name: str) -> None:
    assert any(
        one.type in rule.types for one in graph_of(name).resources.values() for rule in RULES
    )
    assert list(violations(name, Level.MANDATORY)) == []


@pytest.mark.parametrize("name", PRODUCTION)
def test_a_stack_is_advised_of_nothing_but_digests_for_its_images(name: str) -> None:
    advised = {rule for rule, _ in violations(name, Level.ADVISORY)}

    assert advised <= {"production-images-by-digest"}
