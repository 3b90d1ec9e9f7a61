"""All AKS options that a platform team needs, with its data: the real engine, and Azure's rules in the twin."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.components.certificates import CA
from tests.program.conftest import ROOT
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

HUB = "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/hub/providers/Microsoft.Network"
CLUSTER: dict[str, Any] = {
    "kind": "aks",
    "privateApi": True,
    "privateDnsZone": f"{HUB}/privateDnsZones/privatelink.eastus.azmk8s.io",
    "gpuPool": {"vmSizes": [{"name": "t4", "vmSize": "Standard_NC4as_T4_v3"}]},
    "network": {
        "egress": "userDefinedRouting",
        "firewallIp": "10.100.0.4",
        "proxy": {"http": "http://proxy.example.org:3128", "trustedCa": CA},
    },
}
GROUP = "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/everstep-aks-test"
SERVICES = f"{GROUP}/providers/Microsoft.ContainerService"
PINNED = {
    **CLUSTER,
    "gpuPool": {**CLUSTER["gpuPool"], "snapshotId": f"{SERVICES}/snapshots/t4"},
    "upgrades": {"channel": "none", "nodeImage": "None"},
}
"""The same cluster, whose GPU nodes keep the image of a snapshot of their pool."""

CHEAPER = {**PINNED, "gpuPool": {**PINNED["gpuPool"], "maxPrice": 0.25}}
"""The same cluster with a price ceiling, which AKS does not change in a pool."""

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
import pulumi
import pulumi_azure_native as azure
from components.azure.environment import AksEnvironment, AksEnvironmentArgs
from components.config import from_mapping

provider = azure.Provider("hub", location="eastus")
opts = pulumi.ResourceOptions(provider=provider)
hub = azure.resources.ResourceGroup("hub-group", resource_group_name="hub", opts=opts)
zone = azure.privatedns.PrivateZone(
    "hub-zone", private_zone_name="privatelink.eastus.azmk8s.io", location="global",
    resource_group_name=hub.name, opts=opts,
)
data_group = azure.resources.ResourceGroup("data-group", resource_group_name="data", opts=opts)
account = azure.storage.StorageAccount(
    "data-account", account_name="visiondata", resource_group_name=data_group.name, kind="StorageV2",
    sku={{"name": "Standard_LRS"}}, opts=opts,
)
azure.storage.BlobContainer(
    "data-container", container_name="photos", account_name=account.name, resource_group_name=data_group.name,
    opts=opts,
)
"""
STACK = """
tags = {{"owner": "vision", "costCenter": "4711", "environment": "dev"}}
config = from_mapping({{"tags": tags, "cluster": {cluster!r}, "data": {data!r}}})
environment = AksEnvironment("aks", AksEnvironmentArgs(config=config, stack="aks-test"))
azure.containerservice.Snapshot(
    "hub-snapshot", resource_name_="t4", resource_group_name="everstep-aks-test", location="eastus",
    creation_data={{"source_resource_id": "{services}/managedClusters/everstep/agentPools/t4"}},
    opts=pulumi.ResourceOptions(provider=provider, depends_on=[environment]),
)
"""


PHOTOS = {"source": "az://visiondata/photos/imagenet", "sourceResourceGroup": "data"}
OTHERS = {"dataset": "imagefolder", **PHOTOS, "source": "az://visiondata/others"}
DIRECT = {"dataset": "imagefolder", **PHOTOS}
CACHED = {"dataset": "imagefolder", "cache": PHOTOS}


def team_program() -> str:
    """Return a program that declares what a team already has: a zone in its hub, and a container with data."""
    return PROGRAM.format(root=str(ROOT))


def program(cluster: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return a program that also declares an environment on Azure that uses them."""
    return team_program() + STACK.format(cluster=dict(cluster), data=dict(data), services=SERVICES)


def check_reader(project: CloudProject) -> None:
    """Check that the data preparation reads the container outside the stack with an identity of its own."""
    resources = project.resources()
    role = resources["aks-data-reader"]["inputs"]
    assert role["scope"] == resources["data-container"]["id"]
    assert role["principalId"] == resources["aks-data-identity"]["outputs"]["principalId"]
    trust = resources["aks-data-trust"]["inputs"]
    assert trust["subject"] == "system:serviceaccount:elastic-job:data-preparation"


def check_cache(project: CloudProject) -> None:
    """Check that the cache reads that container with the identity that writes to the stack's container."""
    resources = project.resources()
    reader, writer = resources["aks-data-reader"], resources["aks-blob-data-contributor"]
    assert reader["inputs"]["principalId"] == writer["inputs"]["principalId"]
    assert "aks-data-identity" not in resources


def test_all_options_with_data_outside_the_stack_are_accepted_and_leave_nothing_behind(
    project: CloudProject,
) -> None:
    project.program(team_program())
    project.up()
    project.program(program(CLUSTER, OTHERS))
    assert "blobServices/default/containers/others" in project.pulumi("preview", fails=True)

    project.program(program(CLUSTER, DIRECT))
    project.up()
    check_reader(project)
    project.program(program(PINNED, CACHED))
    operations = project.preview()
    assert operations["aks-cluster-pools-t4"] == "update", "a snapshot replaces no pool"
    project.up()

    project.pulumi("preview", "--expect-no-changes")
    check_cache(project)
    resources = project.resources()
    assert resources["aks-network-subnet"]["inputs"]["routeTable"]
    assert "aks-network-gateway" not in resources
    host = resources["aks-cluster-cluster"]["outputs"]["privateFQDN"]
    pool = resources["aks-cluster-pools-t4"]["outputs"]
    assert pool["creationData"]["sourceResourceId"] == f"{SERVICES}/snapshots/t4"
    assert host.partition(".")[2] == "privatelink.eastus.azmk8s.io", "a name in the hub's zone"
    project.program(program(CHEAPER, CACHED))
    project.up()
    pool = project.resources()["aks-cluster-pools-t4"]["outputs"]
    assert pool["spotMaxPrice"] == 0.25, "the pool is replaced"

    project.program(team_program())
    project.up()
    assert {resource["id"].rpartition("/")[2] for resource in project.account("azure-native")} == {
        *("hub", "privatelink.eastus.azmk8s.io"), *("data", "visiondata", "photos")
    }  # fmt: skip
