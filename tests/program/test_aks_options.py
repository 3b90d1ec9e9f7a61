"""All AKS options that a platform team needs, together: the real engine, and Azure's rules as checked by the twin."""

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

tags = {{"owner": "vision", "costCenter": "4711", "environment": "dev"}}
config = from_mapping({{"tags": tags, "cluster": {cluster!r}}})
environment = AksEnvironment(
    "aks", AksEnvironmentArgs(config=config, stack="aks-test"), pulumi.ResourceOptions(depends_on=[zone])
)
azure.containerservice.Snapshot(
    "hub-snapshot", resource_name_="t4", resource_group_name="everstep-aks-test", location="eastus",
    creation_data={{"source_resource_id": "{services}/managedClusters/everstep/agentPools/t4"}},
    opts=pulumi.ResourceOptions(provider=provider, depends_on=[environment]),
)
"""


def program(cluster: Mapping[str, Any] = CLUSTER) -> str:
    """Return a program that declares an environment on Azure."""
    return PROGRAM.format(root=str(ROOT), cluster=dict(cluster), services=SERVICES)


def test_all_options_together_are_accepted_and_leave_nothing_behind(project: CloudProject) -> None:
    project.program(program())

    project.up()
    project.program(program(PINNED))
    assert "replace" not in project.pulumi("preview", "--diff"), "a snapshot replaces no pool"
    project.up()

    project.pulumi("preview", "--expect-no-changes")
    resources = project.resources()
    assert resources["aks-network-subnet"]["inputs"]["routeTable"]
    assert "aks-network-gateway" not in resources
    host = resources["aks-cluster-cluster"]["outputs"]["privateFQDN"]
    pool = resources["aks-cluster-pools-t4"]["outputs"]
    assert pool["creationData"]["sourceResourceId"] == f"{SERVICES}/snapshots/t4"
    assert host.partition(".")[2] == "privatelink.eastus.azmk8s.io", "a name in the hub's zone"
    project.program(program(CHEAPER))
    project.up()
    pool = project.resources()["aks-cluster-pools-t4"]["outputs"]
    assert pool["spotMaxPrice"] == 0.25, "the pool is replaced"
    project.destroy()
    assert project.account("azure-native") == []
