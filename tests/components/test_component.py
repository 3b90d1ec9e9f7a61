"""A component passes its dependencies to each of its children, in every form that Pulumi accepts."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from pulumi_kubernetes import core

from components.component import Component, DependsOn
from tests.components.recorder import Graph, record


class OneConfigMap(Component):
    """A component with one child, which may depend on a sibling too."""

    def __init__(
        self, name: str, opts: pulumi.ResourceOptions | None = None, sibling: bool = False
    ) -> None:
        super().__init__("test:OneConfigMap", name, opts)
        siblings = [core.v1.ConfigMap(f"{name}-sibling", opts=self.child())] if sibling else []
        core.v1.ConfigMap(f"{name}-child", opts=self.child(depends_on=siblings))
        self.register_outputs({})


def graph_with(
    depends_on: Callable[[pulumi.Resource, pulumi.Resource], DependsOn], sibling: bool = False
) -> Graph:
    def program() -> dict[str, Any]:
        first, second = core.v1.ConfigMap("first"), core.v1.ConfigMap("second")
        opts = pulumi.ResourceOptions(depends_on=depends_on(first, second))
        OneConfigMap("one", opts, sibling)
        return {}

    return record(program)


@pytest.mark.parametrize(
    ("depends_on", "expected"),
    [
        pytest.param(lambda a, _: a, {"first"}, id="one resource"),
        pytest.param(lambda a, b: [a, b], {"first", "second"}, id="a list"),
        pytest.param(lambda a, b: (a, b), {"first", "second"}, id="a tuple"),
        pytest.param(lambda a, _: pulumi.Output.from_input(a), {"first"}, id="an output of one"),
        pytest.param(
            lambda a, b: pulumi.Output.from_input([a, b]),
            {"first", "second"},
            id="an output of a list",
        ),
        pytest.param(
            lambda a, b: [pulumi.Output.from_input(a), b],
            {"first", "second"},
            id="a list with an output",
        ),
        pytest.param(lambda a, b: [], set(), id="nothing"),
    ],
)
def test_a_child_has_the_dependencies_of_its_component(
    depends_on: Callable[[pulumi.Resource, pulumi.Resource], DependsOn], expected: set[str]
) -> None:
    graph = graph_with(depends_on)

    assert graph.ancestors("one-child") == expected, (
        "`destroy` could delete a missing dependency before the child"
    )


@pytest.mark.parametrize(
    "depends_on",
    [
        pytest.param(lambda a, _: a, id="one resource"),
        pytest.param(lambda a, _: pulumi.Output.from_input(a), id="an output of one"),
    ],
)
def test_siblings_are_added_to_the_dependencies_of_the_component(
    depends_on: Callable[[pulumi.Resource, pulumi.Resource], DependsOn],
) -> None:
    graph = graph_with(depends_on, sibling=True)

    assert graph.ancestors("one-child") == {"first", "one-sibling"}


def test_children_of_a_component_without_options_depend_only_on_their_siblings() -> None:
    def program() -> dict[str, Any]:
        OneConfigMap("one", sibling=True)
        return {}

    graph = record(program)

    assert graph["one-sibling"].dependencies == frozenset()
    assert graph["one-child"].dependencies == {graph["one-sibling"].urn}
