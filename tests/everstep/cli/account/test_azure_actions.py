"""The Azure RBAC actions and resource providers of a stack match its declared types."""

import inspect
import re

import pytest
from cloudfacts.azure_actions import DOCTOR, KINDS, TASKS, actions_of, all_actions

from components.config import AksConfig, as_kind
from everstep.cli.account import azure_account
from everstep.cli.account.azure import resource_providers
from everstep.cli.account.azure_actions import with_table
from everstep.resources import PACKAGES
from tests.components.azure.aks_stack import (
    aks_config,
    all_features_stack,
    declare_aks,
    plain_stack,
    spoke_stack,
)
from tests.components.recorder import Graph

ACTION = r"Microsoft\.[A-Za-z]+(/[A-Za-z]+)+/(read|write|delete|[A-Za-z]+/action)"
ALL_FEATURES = {
    "cluster": {"monitoring": {"containerInsights": True, "managedPrometheus": True}},
    "registry": {"kind": "acr", "name": "visionimages"},
    "cost": {"budget": {"monthlyUsd": 500, "email": "owner@example.org"}},
}
NODE_PROVIDERS = {"Microsoft.Compute"}
"""Resource providers of the machines that AKS creates."""


def types_of(graph: Graph) -> set[str]:
    return {resource.type for resource in graph.resources_of("azure-native")}


def test_every_type_that_a_stack_declares_has_actions() -> None:
    declared_types = (
        types_of(plain_stack()) | types_of(all_features_stack()) | types_of(spoke_stack())
    )

    assert declared_types == set(KINDS), "the guide would list too few actions, or too many"


ALL_TASKS = {action for actions in TASKS.values() for action in actions}


@pytest.mark.parametrize("action", sorted({*all_actions(), *ALL_TASKS}))
def test_an_action_is_spelled_as_in_azure(action: str) -> None:
    assert re.fullmatch(ACTION, action)


def test_each_request_of_the_doctor_is_in_the_guide() -> None:
    source = inspect.getsource(azure_account)
    requests = set(re.findall(r'"(Microsoft\.[A-Za-z/]+/read)"', source))

    assert requests <= {*DOCTOR, *all_actions()}
    assert set(DOCTOR) - requests == {"Microsoft.ContainerRegistry/registries/metadata/read"}


def test_a_cluster_with_container_insights_needs_the_key_of_its_workspace() -> None:
    action = "Microsoft.OperationalInsights/workspaces/sharedkeys/read"

    assert action in actions_of("azure-native:containerservice:ManagedCluster")
    assert f"`{action}`" in (PACKAGES / "docs/aks.md").read_text()


def test_an_unknown_type_has_no_actions() -> None:
    assert actions_of("azure-native:batch:Pool") == ()


@pytest.mark.parametrize("sections", [{}, ALL_FEATURES], ids=["plain", "with all features"])
def test_the_resource_providers_of_all_declared_types_are_checked(
    sections: dict[str, dict[str, object]],
) -> None:
    config = aks_config(**sections)
    declared_providers = {
        KINDS[token].partition("/")[0] for token in types_of(declare_aks(**sections))
    }

    checked_providers = resource_providers(config, as_kind(config.cluster, AksConfig))

    assert set(checked_providers) == (declared_providers | NODE_PROVIDERS) - {"Microsoft.Resources"}


def test_the_guide_lists_the_actions() -> None:
    page = (PACKAGES / "docs/aks.md").read_text()

    assert with_table(page) == page, "`make docs` writes the table"
