"""The resource graph of a stack on Azure: parents, providers, tags and order."""

import subprocess
import sys

import pytest

from policy.pack import RULES
from policy.rule import Resource
from tests.components.azure.aks_stack import (
    STACK,
    TAGS,
    all_features_stack,
    declare_aks,
    plain_stack,
    spoke_stack,
)
from tests.components.provider_outputs import AZURE_NAMES
from tests.components.recorder import Graph
from tests.components.sdk_schema import arguments_class, input_types

KUBERNETES_PROVIDER = "aks-cluster-kubernetes"  # the provider of all Kubernetes objects


@pytest.fixture(
    params=[plain_stack, all_features_stack, spoke_stack], ids=["plain", "full", "spoke"]
)
def graph(request: pytest.FixtureRequest) -> Graph:
    result: Graph = request.param()
    return result


def has_input(token: str, key: str) -> bool:
    arguments = arguments_class(token)
    return arguments is not None and key in input_types(arguments)


def test_every_child_has_the_name_of_its_component_as_prefix(graph: Graph) -> None:
    by_urn = {resource.urn: resource for resource in graph.resources.values()}
    for resource in graph.resources.values():
        parent = by_urn.get(resource.parent)
        if resource.name == "aks":
            assert parent is None
        else:
            assert parent is not None, f"{resource.name} has no parent"
            assert resource.name.startswith(f"{parent.name}-")


def test_every_azure_resource_uses_the_provider_of_the_stack(graph: Graph) -> None:
    (provider,) = graph.of_type("azure-native")

    assert provider.inputs["location"] == "eastus"
    assert len(graph.resources_of("azure-native")) > 20
    for resource in graph.resources_of("azure-native"):
        assert resource.provider.startswith(f"{provider.urn}::"), (
            f"{resource.name} may be created in another subscription or location"
        )


def test_every_taggable_resource_has_owner_and_stack_tags(graph: Graph) -> None:
    expected = {"owner": TAGS["owner"], "managed-by": "everstep", "stack": STACK}
    taggable_resources = [
        resource
        for resource in graph.resources_of("azure-native")
        if has_input(resource.type, "tags")
    ]

    assert len(taggable_resources) >= 10
    for resource in taggable_resources:
        assert expected.items() <= resource.inputs["tags"].items(), resource.name
    (pool,) = graph.one("ManagedCluster").inputs["agentPoolProfiles"]
    assert expected.items() <= pool["tags"].items(), "its machines would have no owner tag"


def test_every_resource_with_a_location_is_in_the_location_of_the_stack(graph: Graph) -> None:
    locations = {
        resource.name: resource.inputs["location"]
        for resource in graph.resources_of("azure-native")
        if has_input(resource.type, "location")
    }

    assert len(locations) >= 8
    assert set(locations.values()) == {"eastus"}, locations


def test_every_resource_has_an_explicit_name_and_is_deleted_before_replacement(
    graph: Graph,
) -> None:
    for resource in graph.resources_of("azure-native"):
        assert AZURE_NAMES[resource.type.rsplit(":", 1)[-1]] in resource.inputs, (
            f"{resource.name} would get a random name"
        )
        assert resource.delete_before_replace, (
            f"two {resource.name} with the same name cannot coexist"
        )


# Order of creation; deletion is in reverse order.
ORDER = {
    "the gateway exists before the subnet that uses it": (
        "aks-network-gateway",
        "aks-network-subnet",
    ),
    "the subnet outlives the nodes": ("aks-network-subnet", "aks-cluster-cluster"),
    "the group outlives the container in it": ("aks-network-group", "aks-blob-container"),
    "the control plane has its role on the subnet before the cluster is created": (
        "aks-cluster-identities-network-contributor",
        "aks-cluster-cluster",
    ),
    "the control plane has its role on the nodes' identity before the cluster is created": (
        "aks-cluster-identities-identity-operator",
        "aks-cluster-cluster",
    ),
    "pools join an existing cluster": ("aks-cluster-cluster", "aks-cluster-pools-t4"),
    "administrators keep their access until the objects are deleted": (
        "aks-cluster-administrator-11111111-2222-3333-4444-555555555555",
        KUBERNETES_PROVIDER,
    ),
    "tokens are trusted once their issuer exists": (
        "aks-cluster-cluster",
        "aks-blob-trust-trainer",
    ),
    "a role is assigned on an existing resource": ("aks-blob-account", "aks-blob-data-contributor"),
    "the identity outlives its role": ("aks-blob-identity", "aks-blob-data-contributor"),
    "priorities are written to an existing cluster": (
        KUBERNETES_PROVIDER,
        "aks-cluster-priorities",
    ),
}


@pytest.mark.parametrize(("dependency", "dependent"), ORDER.values(), ids=ORDER.keys())
def test_resources_are_created_in_the_order_of_their_dependencies(
    dependency: str, dependent: str
) -> None:
    assert dependency in plain_stack().ancestors(dependent)


@pytest.mark.parametrize(
    ("dependency", "dependent"),
    [
        ("aks-cluster-monitoring-logs", "aks-cluster-cluster"),
        ("aks-cluster-cluster", "aks-cluster-monitoring-logs-association"),
        ("aks-cluster-monitoring-metrics-rule", "aks-cluster-monitoring-metrics-association"),
        ("aks-cluster-identities-kubelet", "aks-registry-pull"),
        ("aks-registry-registry", "aks-registry-pull"),
        (
            "aks-registry-pull",
            KUBERNETES_PROVIDER,
        ),  # otherwise the first image pulls would fail and be retried later
    ],
)
def test_optional_resources_are_created_in_the_order_of_their_dependencies(
    dependency: str, dependent: str
) -> None:
    assert dependency in all_features_stack().ancestors(dependent)


def test_the_storage_account_is_created_in_parallel_with_the_cluster() -> None:
    ancestors = plain_stack().ancestors("aks-blob-container")

    assert "aks-cluster-cluster" not in ancestors, "each takes minutes, which would add up"


def test_production_protects_group_cluster_registry_and_data() -> None:
    protected = {
        resource.name for resource in all_features_stack().resources.values() if resource.protect
    }
    retained = {
        resource.name
        for resource in all_features_stack().resources.values()
        if resource.retain_on_delete
    }
    data = {"aks-blob-account", "aks-blob-container", "aks-blob-retention"}

    others = {"aks-network-group", "aks-cluster-cluster", "aks-registry-registry"}
    assert protected == {*others, *data}
    assert retained == data, "deleting the stack must not delete the checkpoints"


def test_a_development_stack_can_keep_its_data_only() -> None:
    resources = declare_aks(storage={"kind": "blob", "keep": True}).resources.values()

    data = {"aks-blob-account", "aks-blob-container", "aks-blob-retention"}
    assert {resource.name for resource in resources if resource.protect} == data
    assert {resource.name for resource in resources if resource.retain_on_delete} == data


def test_a_development_stack_can_be_deleted_completely() -> None:
    for resource in plain_stack().resources.values():
        assert not resource.protect, resource.name
        assert not resource.retain_on_delete, resource.name


def test_the_stack_violates_no_policy(graph: Graph) -> None:
    resources = [
        (
            resource.name,
            Resource(
                type=resource.type,
                properties=resource.inputs,
                stack=STACK,
                protect=resource.protect,
            ),
        )
        for resource in graph.resources.values()
    ]
    applicable = [
        rule for rule in RULES for _, resource in resources if resource.type in rule.types
    ]

    assert len(applicable) >= 20, "the policies must apply to these resources at all"
    for name, resource in resources:
        for rule in RULES:
            assert not list(rule.violations(resource)), f"{name} breaks {rule.name}"


def test_the_kubeconfig_is_a_secret() -> None:
    assert "kubeconfig" in plain_stack()[KUBERNETES_PROVIDER].secrets


def test_outputs_locate_data_checkpoints_and_cluster() -> None:
    actual = all_features_stack().outputs

    assert (
        actual["location"] == f"https://{actual['storageAccount']}.blob.core.windows.net/training"
    )
    assert actual["resourceGroup"] == "everstep-aks-test"
    assert actual["nodeResourceGroup"] == "everstep-aks-test-nodes"
    assert actual["endpoint"] == "https://everstep-0a1b2c3.hcp.eastus.azmk8s.io:443"
    assert actual["registry"] == "visionimages.azurecr.io"
    assert plain_stack().outputs["registry"] is None


def test_a_stack_on_azure_never_imports_the_aws_sdk() -> None:
    script = (
        "import sys; from unittest.mock import MagicMock; "
        "names = ('pulumi_azure_native', 'pulumi_kubernetes'); "
        "sys.modules |= dict.fromkeys(names, MagicMock()); "  # importing the real SDKs takes seconds
        "import components.azure.environment; assert 'pulumi_aws' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", script], check=True)
