"""`storage.keep` in a monitored stack: a destroy leaves only data and images, and the next `up` uses them.

The engine is real, and the clouds are the twin's.
"""

from typing import Any

import pytest

from tests.program.conftest import ROOT
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

EKS: dict[str, Any] = {
    "cluster": {
        "kind": "eks",
        "publicAccess": ["203.0.113.0/24"],
        "autoscaling": {"enabled": False},  # objects in the cluster, which does not run here
        "gpuPool": {"nodes": 3},
        "monitoring": {"containerInsights": True},
    },
    "storage": {"kind": "fsx", "keep": True},
    "registry": {"kind": "ecr"},
}
AKS: dict[str, Any] = {
    "cluster": {
        "kind": "aks",
        "authorizedRanges": ["203.0.113.0/24"],
        "gpuPool": {"vmSizes": [{"name": "t4", "vmSize": "Standard_NC4as_T4_v3"}]},
        "monitoring": {"containerInsights": True, "managedPrometheus": True},
    },
    "storage": {"kind": "blob", "keep": True},
    "registry": {"kind": "acr", "name": "everstepimages"},
}
PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from components.{cloud}.environment import {kind}Environment, {kind}EnvironmentArgs
from components.config import from_mapping

tags = {{"owner": "vision", "costCenter": "4711", "environment": "dev"}}
config = from_mapping({{"tags": tags, **{sections!r}}})
{kind}Environment("c", {kind}EnvironmentArgs(config=config, stack="test"))
"""


def eks_program() -> str:
    """Return a program that declares the resources of a stack on EKS."""
    return PROGRAM.format(root=str(ROOT), cloud="aws", kind="Eks", sections=EKS)


def aks_program() -> str:
    """Return a program that declares the resources of a stack on AKS."""
    return PROGRAM.format(root=str(ROOT), cloud="azure", kind="Aks", sections=AKS)


def kinds(project: CloudProject, package: str) -> set[str]:
    """Return the types of a cloud's resources in the state."""
    types = {str(item["type"]) for item in project.resources().values()}
    return {name.rpartition(":")[2] for name in types if name.startswith(f"{package}:")}


def identity(project: CloudProject, kind: str) -> str:
    """Return the id of the only resource of a type in the state; components have none."""
    resources = project.resources().values()
    (value,) = [
        item["id"] for item in resources if item["type"].endswith(f":{kind}") and "id" in item
    ]
    return str(value)


def check_next_up(project: CloudProject, kind: str) -> set[str]:
    """Destroy a stack except its data and create it again; return the types that remained in between.

    Args:
        project: a project whose stack is up.
        kind: type of the resource with the data.
    """
    original_id = identity(project, kind)
    assert "protected" in project.destroy(fails=True), "only --exclude-protected leaves the data"

    project.pulumi("destroy", "--yes", "--skip-preview", "--exclude-protected")
    package = "aws" if kind == "Bucket" else "azure-native"
    remaining = kinds(project, package)
    tokens = {str(item["token"]) for item in project.account(package)}
    assert {token.rpartition(":")[2] for token in tokens} <= remaining

    project.up()
    assert identity(project, kind) == original_id
    project.pulumi("preview", "--expect-no-changes")
    return remaining


def test_a_destroy_keeps_the_bucket_without_log_groups_and_the_next_up_uses_it(
    project: CloudProject,
) -> None:
    project.program(eks_program())
    project.up()

    groups = {
        resource["inputs"]["name"]
        for resource in project.resources().values()
        if resource["type"] == "aws:cloudwatch/logGroup:LogGroup"
    }
    assert "/aws/containerinsights/everstep/application" in groups
    assert check_next_up(project, "Bucket") == {
        "Bucket",
        "BucketLifecycleConfiguration",
        "BucketObjectv2",
        "BucketPolicy",
        "BucketPublicAccessBlock",
        "BucketServerSideEncryptionConfiguration",
        "BucketVersioning",
        "Repository",
    }


def test_a_destroy_keeps_the_storage_account_without_workspaces_and_the_next_up_uses_it(
    project: CloudProject,
) -> None:
    project.program(aks_program())
    project.up()

    assert {"AzureMonitorWorkspace", "Workspace"} <= kinds(project, "azure-native")
    remaining = check_next_up(project, "StorageAccount")
    assert remaining >= {"StorageAccount", "BlobContainer", "Registry", "ResourceGroup"}
    assert remaining <= {
        *("StorageAccount", "BlobContainer", "BlobServiceProperties", "Registry"),
        *("ResourceGroup", "VirtualNetwork", "Subnet", "NatGateway", "PublicIPAddress"),
    }, "the rules of the account name the subnet; nothing else is needed"
