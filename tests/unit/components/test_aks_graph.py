"""What a stack on Azure declares, as a graph: whose child, through whom, tagged, in which order."""

import subprocess
import sys

import pytest

from policy.pack import RULES
from policy.rule import Resource
from tests.unit.components.aks_stack import STACK, TAGS, full, plain
from tests.unit.components.answers import AZURE_NAMES
from tests.unit.components.recorder import Graph
from tests.unit.components.sdk_types import arguments_class, input_types

IN_THE_CLUSTER = "aks-cluster-kubernetes"  # the provider through which all in the cluster is made


@pytest.fixture(params=[plain, full], ids=["plain", "full"])
def graph(request: pytest.FixtureRequest) -> Graph:
    found: Graph = request.param()
    return found


def takes(token: str, key: str) -> bool:
    arguments = arguments_class(token)
    return arguments is not None and key in input_types(arguments)


def test_every_child_carries_its_components_name(graph: Graph) -> None:
    by_urn = {one.urn: one for one in graph.resources.values()}
    for one in graph.resources.values():
        parent = by_urn.get(one.parent)
        if one.name == "aks":
            assert parent is None
        else:
            assert parent is not None, f"{one.name} stands alone"
            assert one.name.startswith(f"{parent.name}-")


def test_everything_on_azure_is_made_through_the_stacks_own_provider(graph: Graph) -> None:
    (provider,) = graph.of("azure-native")

    assert provider.inputs["location"] == "eastus"
    for one in graph.custom("azure-native"):
        assert one.provider.startswith(f"{provider.urn}::"), f"{one.name} may go elsewhere"


def test_everything_that_takes_tags_says_whose_it_is(graph: Graph) -> None:
    expected = {"owner": TAGS["owner"], "managed-by": "everstep", "stack": STACK}
    tagged = [one for one in graph.custom("azure-native") if takes(one.type, "tags")]

    assert len(tagged) >= 10
    for one in tagged:
        assert expected.items() <= one.inputs["tags"].items(), one.name
    (pool,) = graph.one("ManagedCluster").inputs["agentPoolProfiles"]
    assert expected.items() <= pool["tags"].items(), "its machines would belong to nobody"


def test_everything_that_takes_a_location_has_the_stacks(graph: Graph) -> None:
    for one in graph.custom("azure-native"):
        if takes(one.type, "location"):
            assert one.inputs["location"] == "eastus", one.name


def test_everything_has_a_name_of_its_own_choosing_and_makes_room_for_its_successor(
    graph: Graph,
) -> None:
    for one in graph.custom("azure-native"):
        names = AZURE_NAMES[one.type.rsplit(":", 1)[-1]]
        assert any(key in one.inputs for key in names), f"{one.name} would get a random name"
        assert one.delete_before_replace, f"two {one.name} of one name cannot be there at once"


# What comes before what; destroyed, the other way round.
ORDER = {
    "the way out is there before nodes are": ("aks-network-gateway", "aks-network-subnet"),
    "the subnet outlives the nodes": ("aks-network-subnet", "aks-cluster-cluster"),
    "the group outlives all": ("aks-network-group", "aks-blob-container"),
    "the control plane may join the subnet before it does": (
        "aks-cluster-identities-network-contributor",
        "aks-cluster-cluster",
    ),
    "it may give nodes their identity before it does": (
        "aks-cluster-identities-identity-operator",
        "aks-cluster-cluster",
    ),
    "pools join a cluster": ("aks-cluster-cluster", "aks-cluster-pools-t4"),
    "pods go before the nodes that run them": ("aks-cluster-pools-a10", IN_THE_CLUSTER),
    "whoever cleans up is still let in": (
        "aks-cluster-administrator-11111111-2222-3333-4444-555555555555",
        IN_THE_CLUSTER,
    ),
    "tokens are trusted once somebody issues them": (
        "aks-cluster-cluster",
        "aks-blob-trust-trainer",
    ),
    "a role is given on what is there": ("aks-blob-account", "aks-blob-data-contributor"),
    "the identity outlives its role": ("aks-blob-identity", "aks-blob-data-contributor"),
    "priorities are told to a cluster": (IN_THE_CLUSTER, "aks-cluster-priorities"),
}


@pytest.mark.parametrize(("earlier", "later"), ORDER.values(), ids=ORDER.keys())
def test_the_order_of_creation(earlier: str, later: str) -> None:
    assert earlier in plain().ancestors(later)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("aks-cluster-monitoring-logs", "aks-cluster-cluster"),
        ("aks-cluster-cluster", "aks-cluster-monitoring-logs-association"),
        ("aks-cluster-monitoring-metrics-rule", "aks-cluster-monitoring-metrics-association"),
        ("aks-cluster-pools-ondemand", IN_THE_CLUSTER),
        ("aks-cluster-identities-kubelet", "aks-registry-pull"),
        ("aks-registry-registry", "aks-registry-pull"),
    ],
)
def test_the_order_of_what_was_asked_for(earlier: str, later: str) -> None:
    assert earlier in full().ancestors(later)


def test_nothing_waits_for_itself(graph: Graph) -> None:
    for name in graph.resources:
        assert name not in graph.ancestors(name)


def test_the_storage_account_is_made_beside_the_cluster() -> None:
    ancestors = plain().ancestors("aks-blob-container")

    assert "aks-cluster-cluster" not in ancestors, "the minutes of both would add up"


def test_production_keeps_group_cluster_and_data() -> None:
    kept = {one.name for one in full().resources.values() if one.protect}
    left = {one.name for one in full().resources.values() if one.retain_on_delete}
    data = {"aks-blob-account", "aks-blob-container"}

    assert kept == {"aks-network-group", "aks-cluster-cluster", *data}
    assert left == data, "a stack that is forgotten must not take the checkpoints along"


def test_development_can_be_removed_whole() -> None:
    for one in plain().resources.values():
        assert not one.protect, one.name
        assert not one.retain_on_delete, one.name


def test_the_policy_pack_has_nothing_against_it(graph: Graph) -> None:
    seen = [
        (one.name, Resource(type=one.type, properties=one.inputs, stack=STACK, protect=one.protect))
        for one in graph.resources.values()
    ]
    judged = [rule for rule in RULES for _, resource in seen if resource.type in rule.types]

    assert len(judged) >= 20, "the pack must look at it at all"
    for name, resource in seen:
        for rule in RULES:
            assert not list(rule.violations(resource)), f"{name} breaks {rule.name}"


def test_the_kubeconfig_is_a_secret() -> None:
    assert "kubeconfig" in plain()[IN_THE_CLUSTER].secrets


def test_outputs_say_where_everything_is() -> None:
    said = full().outputs

    assert said["where"] == f"https://{said['storageAccount']}.blob.core.windows.net/training"
    assert said["resourceGroup"] == "everstep-aks-test"
    assert said["nodeResourceGroup"] == "everstep-aks-test-nodes"
    assert said["endpoint"] == "https://everstep-0a1b2c3.hcp.eastus.azmk8s.io:443"
    assert said["registry"] == "visionimages.azurecr.io"
    assert plain().outputs["registry"] is None


def test_a_stack_on_azure_never_imports_the_sdk_of_aws() -> None:
    look = (
        "import sys; from unittest.mock import MagicMock; "
        "both = ('pulumi_azure_native', 'pulumi_kubernetes'); "
        "sys.modules |= dict.fromkeys(both, MagicMock()); "  # they take seconds
        "import components.environment.aks; assert 'pulumi_aws' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", look], check=True)
