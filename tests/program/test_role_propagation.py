"""An AKS cluster whose role assignments have not propagated yet: the real engine, and a cloud that refuses it twice."""

import pytest

from tests.program.conftest import ROOT
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from components.azure import propagation
from components.azure.environment import AksEnvironment, AksEnvironmentArgs
from components.config import from_mapping

propagation.PAUSE_SECONDS, propagation.MAX_RETRIES = 0.1, 3
cluster = {{
    "kind": "aks",
    "authorizedRanges": ["203.0.113.0/24"],
    "gpuPool": {{"vmSizes": [{{"name": "t4", "vmSize": "Standard_NC4as_T4_v3"}}]}},
}}
tags = {{"owner": "vision", "costCenter": "4711", "environment": "dev"}}
config = from_mapping({{"tags": tags, "cluster": cluster}})
AksEnvironment("aks", AksEnvironmentArgs(config=config, stack="aks-test"))
"""
MISSING_ROLE = "CustomKubeletIdentityMissingPermissionError: the cluster must be granted a role"


def refuse(project: CloudProject, message: str, times: int) -> None:
    """Make the cloud refuse the cluster several times."""
    token = "azure-native:containerservice:ManagedCluster"
    project.faults({"kind": "error", "type": token, "times": times, "message": message})


def test_a_cluster_is_created_once_its_role_assignments_have_propagated(
    project: CloudProject,
) -> None:
    project.program(PROGRAM)
    refuse(project, MISSING_ROLE, times=2)

    output = project.up()

    assert "retrying create due to on-error hook request (2/" in output
    assert project.resources()["aks-cluster-cluster"]["id"].endswith("/managedClusters/everstep")
    project.destroy()
    assert project.account("azure-native") == [], "a deletion works without the program's hook"
