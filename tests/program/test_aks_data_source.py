"""A container with data on Azure: the real engine, and Azure's rules as checked by the twin."""

from collections.abc import Mapping

import pytest

from tests.program.conftest import ROOT
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

DATA = """
import sys
sys.path.insert(0, {root!r})
import pulumi
import pulumi_azure_native as azure
from components.azure.environment import AksEnvironment, AksEnvironmentArgs
from components.config import from_mapping

provider = azure.Provider("data", location="eastus")
opts = pulumi.ResourceOptions(provider=provider)
group = azure.resources.ResourceGroup("data-group", resource_group_name="data", opts=opts)
account = azure.storage.StorageAccount(
    "data-account", account_name="visiondata", resource_group_name=group.name, kind="StorageV2",
    sku={{"name": "Standard_LRS"}}, opts=opts,
)
azure.storage.BlobContainer(
    "data-container", container_name="photos", account_name=account.name, resource_group_name=group.name,
    opts=opts,
)
"""
STACK = """
tags = {{"owner": "vision", "costCenter": "4711", "environment": "dev"}}
pool = {{"vmSizes": [{{"name": "t4", "vmSize": "Standard_NC4as_T4_v3"}}]}}  # more sizes would need Kubernetes objects
cluster = {{"kind": "aks", "authorizedRanges": ["203.0.113.0/24"], "gpuPool": pool}}
config = from_mapping({{"tags": tags, "cluster": cluster, "data": {data!r}}})
AksEnvironment("aks", AksEnvironmentArgs(config=config, stack="aks-test"))
"""
PHOTOS = "az://visiondata/photos/imagenet"


def program(data: Mapping[str, object] | None) -> str:
    """Return a program that declares a container and, with `data`, a stack that reads it."""
    text = DATA.format(root=str(ROOT))
    return text + STACK.format(data=dict(data)) if data else text


def source(location: str = PHOTOS) -> dict[str, object]:
    return {"dataset": "imagefolder", "source": location, "sourceResourceGroup": "data"}


def test_a_role_on_a_container_outside_the_stack_is_created_and_deleted(
    project: CloudProject,
) -> None:
    project.program(program(None))
    project.up()
    project.program(program(source("az://visiondata/others")))
    assert "blobServices/default/containers/others" in project.pulumi("preview", fails=True)

    project.program(program(source()))
    project.up()

    project.pulumi("preview", "--expect-no-changes")
    resources = project.resources()
    role = resources["aks-data-reader"]["inputs"]
    assert role["scope"] == resources["data-container"]["id"]
    assert role["principalId"] == resources["aks-data-identity"]["outputs"]["principalId"]
    trust = resources["aks-data-trust"]["inputs"]
    assert trust["subject"] == "system:serviceaccount:elastic-job:data-preparation"

    cached = {"source": PHOTOS, "sourceResourceGroup": "data"}
    project.program(program({"dataset": "imagefolder", "cache": cached}))
    project.up()

    resources = project.resources()
    reader, writer = resources["aks-data-reader"], resources["aks-blob-data-contributor"]
    assert reader["inputs"]["principalId"] == writer["inputs"]["principalId"]
    assert "aks-data-identity" not in resources

    project.program(program(None))
    project.up()
    assert {resource["id"].rpartition("/")[2] for resource in project.account("azure-native")} == {
        "data", "visiondata", "photos"
    }  # fmt: skip
