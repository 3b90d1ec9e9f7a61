"""The complete production stacks: valid for the SDKs, and compliant with the policies.

The end-to-end tests create all stacks of the clouds on the twin.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from components import environment
from components.docs import stack_table
from components.stack import TrainingStack, TrainingStackArgs
from policy.pack import RULES
from policy.rule import Level, Resource
from tests.components.docs.test_stack_table import CLOUD_STACKS
from tests.components.recorder import Graph, RecordedResource, record

PRODUCTION = [name for name in CLOUD_STACKS if name.endswith("-prod")]


@cache
def graph_of(name: str) -> Graph:
    config = stack_table.read(stack_table.STACKS / f"Pulumi.{name}.yaml")

    def program() -> Mapping[str, Any]:
        stack_environment = environment.declare(config, name)
        args = TrainingStackArgs(
            config=config, cluster=stack_environment.cluster, volume=stack_environment.volume
        )
        return {**stack_environment.outputs, **TrainingStack("training", args).outputs}

    return record(program)


def default_tags(graph: Graph, resource: RecordedResource) -> Mapping[str, str]:
    provider = next(
        (
            provider
            for provider in graph.resources.values()
            if resource.provider.startswith(provider.urn)
        ),
        None,
    )
    inputs = provider.inputs.get("defaultTags") if provider else None
    # Arguments of a provider are sent as JSON.
    provider_tags = json.loads(inputs) if isinstance(inputs, str) else inputs
    return dict((provider_tags or {}).get("tags") or {})


def violations(name: str, level: Level) -> Iterator[tuple[str, str]]:
    graph = graph_of(name)
    for resource in graph.resources.values():
        policy_resource = Resource(
            type=resource.type,
            properties=resource.inputs,
            stack=name,
            protect=resource.protect,
            default_tags=default_tags(graph, resource),
        )
        for rule in RULES:
            if rule.level is level:
                yield from (
                    (rule.name, f"{resource.name} {message}")
                    for message in rule.violations(policy_resource)
                )


@pytest.mark.parametrize("name", PRODUCTION)
def test_a_stack_violates_no_mandatory_policy(name: str) -> None:
    assert any(
        resource.type in rule.types
        for resource in graph_of(name).resources.values()
        for rule in RULES
    )
    assert list(violations(name, Level.MANDATORY)) == []


@pytest.mark.parametrize("name", PRODUCTION)
def test_the_only_advice_for_a_stack_is_to_use_image_digests(name: str) -> None:
    assert {rule for rule, _ in violations(name, Level.ADVISORY)} == {"production-images-by-digest"}
