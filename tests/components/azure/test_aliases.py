"""The aliases of Azure's resources: only those that a state can contain."""

import pulumi
import pulumi_azure_native as azure_native

from components.azure.aliases import without_api_versions
from tests.components.azure.aks_stack import all_features_stack
from tests.components.recorder import Graph, record


def aliases_of(graph: Graph, kind: str) -> list[str]:
    """Return the types, or else the names, of the aliases of the only resource of a kind."""
    return [alias.spec.type or alias.spec.name for alias in graph.one(kind).aliases]


def test_no_resource_of_a_stack_has_an_alias_for_a_version_of_an_api() -> None:
    graph = all_features_stack()

    kinds = {alias.spec.type for resource in graph.resources.values() for alias in resource.aliases}
    assert not [kind for kind in kinds if kind.startswith("azure-native:") and "/v" in kind]


def test_aliases_by_name_and_by_another_type_are_kept() -> None:
    def program() -> None:
        opts = pulumi.ResourceOptions(
            transformations=[without_api_versions], aliases=[pulumi.Alias(name="earlier")]
        )
        azure_native.monitor.DataCollectionEndpoint("data", resource_group_name="g", opts=opts)

    aliases = aliases_of(record(program), "DataCollectionEndpoint")

    assert aliases == ["earlier", "azure-native:insights:DataCollectionEndpoint"]
