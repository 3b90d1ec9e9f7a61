"""The IDs of the twin's accounts."""

from dataclasses import asdict, replace
from pathlib import Path

import cloudtwin
import pytest
from cloudtwin import accounts
from cloudtwin.capacity import shortage
from cloudtwin.nodes.metadata.instance import facts, provider_id
from cloudtwin.nodes.model import MachineSpec
from cloudtwin.providers import azure
from cloudtwin.providers.azure.aks_pools import inline_pools
from cloudtwin.providers.azure.identity import CLUSTER
from cloudtwin.providers.inventory import Inventory
from cloudtwin.providers.model import ProviderConfig, ResourceRequest

from twin.tests.capacity.builders import pool
from twin.tests.providers.azure import cases as azure_cases


@pytest.mark.parametrize("identity", [accounts.AWS_ACCOUNT, accounts.AZURE_SUBSCRIPTION])
def test_the_id_of_an_account_is_in_one_module_only(identity: str) -> None:
    package = Path(cloudtwin.__file__).parent
    modules = [path for path in package.rglob("*.py") if identity in path.read_text()]

    assert [path.name for path in modules] == ["accounts.py"]


def test_machines_and_messages_name_the_same_subscription() -> None:
    spot_pool = pool(cloud="azure", region="eastus", zone="")

    assert f"'{accounts.AZURE_SUBSCRIPTION}'" in shortage.reason(spot_pool, 1)
    assert f"/subscriptions/{accounts.AZURE_SUBSCRIPTION}/" in provider_id(
        spot_pool.machine("spot-0")
    )


@pytest.mark.parametrize("declared_group", ["", "my-nodes"])
def test_the_cluster_its_pools_and_their_machines_name_one_resource_group(
    declared_group: str,
) -> None:
    cluster = azure_cases.cluster(
        resourceGroupName="g", nodeResourceGroup=declared_group or None, dnsPrefix="c"
    )
    request = ResourceRequest(
        inputs=cluster.inputs,
        config=ProviderConfig(cloud="azure-native", region="eastus"),
        account=Inventory(),
        entropy="0" * 32,
        id=cluster.id,
    )
    describe = azure.CLOUD.types[CLUSTER].describe
    assert describe is not None
    (system,) = inline_pools(replace(cluster, outputs=describe(request)), Inventory())
    machine = system.machine("system-3")

    group = declared_group or "MC_g_c_eastus"
    assert describe(request)["nodeResourceGroup"] == group
    assert machine.labels["kubernetes.azure.com/cluster"] == group
    assert facts(machine, "10.0.0.1")["resource_group"] == group
    assert f"/resourceGroups/{group.lower()}/providers" in provider_id(machine)
    assert MachineSpec.parse(asdict(machine)) == machine


@pytest.mark.parametrize(
    ("group", "label"),
    [
        ("MC_g_c_eastus", "MC_g_c_eastus"),
        ("a(b)c", "a-b-c"),
        ("n" * 80, "n" * 63),
        ("n" * 62 + "_tail", "n" * 62 + "z"),
        ("nodes(1)", "nodes-1-z"),
    ],
)
def test_a_resource_group_becomes_a_valid_label(group: str, label: str) -> None:
    assert accounts.cluster_label(group) == label
