"""The options of AKS that a platform team needs, together: the real engine, and Azure's rules by the twin."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.program.conftest import ROOT
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

CLUSTER = {
    "kind": "aks",
    "authorizedRanges": ["203.0.113.0/24"],
    "gpuPool": {"vmSizes": [{"name": "t4", "vmSize": "Standard_NC4as_T4_v3"}]},
    "network": {"egress": "userDefinedRouting", "firewallIp": "10.100.0.4"},
}
PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from components.azure.environment import AksEnvironment, AksEnvironmentArgs
from components.config import from_mapping

tags = {{"owner": "vision", "costCenter": "4711", "environment": "dev"}}
config = from_mapping({{"tags": tags, "cluster": {cluster!r}}})
AksEnvironment("aks", AksEnvironmentArgs(config=config, stack="aks-test"))
"""


def program(cluster: Mapping[str, Any] = CLUSTER) -> str:
    """Return a program that declares an environment on Azure."""
    return PROGRAM.format(root=str(ROOT), cluster=dict(cluster))


def test_all_options_together_are_accepted_and_leave_nothing_behind(project: CloudProject) -> None:
    project.program(program())

    project.up()

    project.pulumi("preview", "--expect-no-changes")
    resources = project.resources()
    assert resources["aks-network-subnet"]["inputs"]["routeTable"]
    assert "aks-network-gateway" not in resources
    project.destroy()
    assert project.account("azure-native") == []
