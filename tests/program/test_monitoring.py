"""The monitoring services of a stack on each cloud: the real engine, and each cloud's rules as checked by the twin."""

import pytest

from tests.program.conftest import ROOT
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from components.{module}.environment import {name}Environment, {name}EnvironmentArgs
from components.config import from_mapping

tags = {{"owner": "vision", "costCenter": "4711", "environment": "dev"}}
config = from_mapping({{"tags": tags, "cluster": {cluster!r}}})
{name}Environment("env", {name}EnvironmentArgs(config=config, stack="test"))
"""


def test_container_insights_of_eks_leave_no_log_group_behind(project: CloudProject) -> None:
    cluster = {
        "kind": "eks",
        "publicAccess": ["203.0.113.0/24"],
        "autoscaling": {"enabled": False},  # objects in the cluster, which does not run here
        "gpuPool": {"nodes": 3},
        "monitoring": {"containerInsights": True},
    }
    project.program(PROGRAM.format(root=str(ROOT), module="aws", name="Eks", cluster=cluster))

    project.up()

    project.pulumi("preview", "--expect-no-changes")
    groups = {
        resource["inputs"]["name"]
        for resource in project.resources().values()
        if resource["type"] == "aws:cloudwatch/logGroup:LogGroup"
    }
    assert "/aws/containerinsights/everstep/application" in groups
    project.destroy()
    assert project.account("aws") == []


def test_the_metrics_and_logs_of_aks_go_to_workspaces_of_the_stack(project: CloudProject) -> None:
    cluster = {
        "kind": "aks",
        "authorizedRanges": ["203.0.113.0/24"],
        "gpuPool": {"vmSizes": [{"name": "t4", "vmSize": "Standard_NC4as_T4_v3"}]},
        "monitoring": {"containerInsights": True, "managedPrometheus": True},
    }
    project.program(PROGRAM.format(root=str(ROOT), module="azure", name="Aks", cluster=cluster))

    project.up()

    project.pulumi("preview", "--expect-no-changes")
    kinds = {resource["type"] for resource in project.resources().values()}
    assert "azure-native:monitor:AzureMonitorWorkspace" in kinds
    assert "azure-native:operationalinsights:Workspace" in kinds
    project.destroy()
    assert project.account("azure-native") == []
