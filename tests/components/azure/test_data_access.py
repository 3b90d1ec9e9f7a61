"""The identity of pods that read a Blob container: its federated credential, its role, and which pods get it."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from components.interface import DATA_ACCOUNT
from tests.components.azure.aks_stack import declare_aks, declare_training, training_stack
from tests.components.existing.existing_stack import pod_of
from tests.components.recorder import Graph

SOURCE = "az://visiondata/photos/imagenet/2012"
CONTAINER = (
    "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/data/providers"
    "/Microsoft.Storage/storageAccounts/visiondata/blobServices/default/containers/photos"
)
READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
USES_IDENTITY = {"azure.workload.identity/use": "true"}
CLIENT_ID = "azure.workload.identity/client-id"


@cache
def source_stack() -> Graph:
    """Declare a stack that copies its data from a Blob container."""
    data = {"dataset": "imagefolder", "source": SOURCE, "sourceResourceGroup": "data"}
    return declare_training(data=data)


@cache
def cache_stack(protocol: str = "blobfuse2") -> Graph:
    """Declare a stack whose workers read shards from a Blob container."""
    cache_section = {"source": SOURCE, "sourceResourceGroup": "data"}
    return declare_training(
        data={"dataset": "imagefolder", "cache": cache_section}, storage={"protocol": protocol}
    )


def role(graph: Graph) -> dict[str, Any]:
    return dict(graph["aks-data-reader"].inputs)


def labels(graph: Graph, kind: str) -> dict[str, str]:
    spec = graph.one(kind).inputs["spec"]
    template = (spec.get("replicaSpecs", {}).get("Worker") or spec)["template"]
    return dict(template["metadata"]["labels"])


def ports(policy: dict[str, Any]) -> list[int]:
    (rule,) = policy["egress"]
    return [port["port"] for port in rule["ports"]]


@pytest.mark.parametrize("declare", [source_stack, cache_stack])
def test_the_role_only_reads_and_is_limited_to_the_blob_container(
    declare: Callable[[], Graph],
) -> None:
    inputs = role(declare())

    assert inputs["scope"] == CONTAINER, "the account may have containers of others"
    assert inputs["roleDefinitionId"].rpartition("/")[2] == READER


def test_the_identity_trusts_only_the_data_preparation() -> None:
    trust = source_stack()["aks-data-trust"].inputs

    assert trust["subject"] == f"system:serviceaccount:elastic-job:{DATA_ACCOUNT}"
    assert trust["issuer"] == "https://eastus.oic.test/everstep/"
    assert trust["audiences"] == ["api://AzureADTokenExchange"]
    assert trust["resourceName"] == "everstep-data"
    assert role(source_stack())["principalId"] == "everstep-data-principal"


def test_the_identity_that_mounts_the_volume_trusts_the_data_preparation_too() -> None:
    graph = source_stack()
    trust = graph[f"aks-blob-trust-{DATA_ACCOUNT}"].inputs

    assert trust["subject"] == f"system:serviceaccount:elastic-job:{DATA_ACCOUNT}"
    assert trust["resourceName"] == "everstep-trainer"
    assert "aks-blob-trust-trainer" in graph.ancestors(f"aks-blob-trust-{DATA_ACCOUNT}")
    assert f"aks-blob-trust-{DATA_ACCOUNT}" in graph.ancestors("training-data-imagefolder")


def test_without_a_source_only_workers_mount_the_volume() -> None:
    (trust,) = cache_stack().of_type("FederatedIdentityCredential")

    assert trust.name == "aks-blob-trust-trainer"


def test_only_the_pod_of_the_data_preparation_gets_a_token_of_the_identity() -> None:
    graph = source_stack()
    account = graph["training-data-account"].inputs["metadata"]

    assert (account["name"], account["annotations"]) == (
        DATA_ACCOUNT,
        {CLIENT_ID: "everstep-data-client"},
    )
    assert pod_of(graph.one("Job"))["serviceAccountName"] == DATA_ACCOUNT
    assert labels(graph, "Job").items() >= USES_IDENTITY.items()
    assert not labels(graph, "ElasticJob").keys() & USES_IDENTITY.keys()
    assert graph["training-storage-account"].inputs["metadata"]["annotations"] == {
        CLIENT_ID: "everstep-trainer-client"
    }, "workers read the volume, not the Blob container"


def test_the_identity_exists_before_the_first_pod_that_needs_it() -> None:
    assert {"aks-data-reader", "aks-data-trust", "aks-data-identity"} <= source_stack().ancestors(
        "training-data-imagefolder"
    )
    job = cache_stack().one("ElasticJob").name
    assert {"aks-data-reader", "aks-blob-trust-trainer"} <= cache_stack().ancestors(job)


def test_retries_last_longer_than_azure_needs_to_apply_a_role() -> None:
    retries = source_stack().one("Job").inputs["spec"]["backoffLimit"]
    # Kubernetes doubles the delay of 10 s with each retry, up to six minutes.
    delays = [min(10 * 2**retry, 360) for retry in range(retries)]

    assert sum(delays) > 600, "Azure documents up to ten minutes"


def test_workers_read_with_the_identity_that_mounts_their_volume() -> None:
    graph = cache_stack()

    assert role(graph)["principalId"] == "everstep-trainer-principal"
    assert graph["training-storage-account"].inputs["metadata"]["annotations"] == {
        CLIENT_ID: "everstep-trainer-client"
    }, "a ServiceAccount names one identity"
    assert labels(graph, "ElasticJob").items() >= USES_IDENTITY.items()
    assert not [name for name in graph.resources if name.startswith("aks-data-identity")]


def test_workers_whose_volume_needs_no_identity_get_one_for_the_data() -> None:
    graph = cache_stack("nfs")

    assert role(graph)["principalId"] == "everstep-data-principal"
    assert graph["aks-data-trust"].inputs["subject"] == "system:serviceaccount:elastic-job:trainer"
    assert graph["training-storage-account"].inputs["metadata"]["annotations"] == {
        CLIENT_ID: "everstep-data-client"
    }


def test_the_account_is_in_the_group_of_the_cluster_by_default() -> None:
    graph = declare_aks(
        cluster={"resourceGroup": "theirs"}, data={"dataset": "imagefolder", "source": SOURCE}
    )

    assert role(graph)["scope"] == CONTAINER.replace("/data/", "/theirs/")


@pytest.mark.parametrize(("declare", "name"), [(source_stack, "prepare"), (cache_stack, "worker")])
def test_only_pods_that_read_blobs_may_connect_to_port_443(
    declare: Callable[[], Graph], name: str
) -> None:
    policies = {
        policy.inputs["metadata"]["name"]: policy.inputs["spec"]
        for policy in declare().of_type("NetworkPolicy")
    }

    assert (
        policies["data-to-source"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == name
    )
    assert ports(policies["data-to-source"]) == [443]
    assert "data-to-identity-agent" not in policies, "only EKS has this agent"


def test_pods_that_read_blobs_may_also_connect_to_the_proxy_of_the_cluster() -> None:
    graph = declare_training(
        cluster={"network": {"proxy": {"http": "http://proxy.example.org:3128"}}},
        data={"dataset": "imagefolder", "source": SOURCE, "sourceResourceGroup": "data"},
    )
    (policy,) = [
        policy.inputs["spec"]
        for policy in graph.of_type("NetworkPolicy")
        if policy.inputs["metadata"]["name"] == "data-to-source"
    ]

    assert ports(policy) == [443, 3128], "AKS sets the variables of the proxy in all pods"


def archive_stack() -> Graph:
    """Declare a stack that unpacks an archive on the volume."""
    return declare_training(data={"dataset": "imagefolder", "source": "uploads/photos.tar"})


@pytest.mark.parametrize("declare", [training_stack, archive_stack])
def test_no_identity_is_created_where_no_blob_container_is_read(
    declare: Callable[[], Graph],
) -> None:
    graph = declare()

    assert not [name for name in graph.resources if "aks-data" in name]
    assert pod_of(graph.one("Job"))["serviceAccountName"] == "trainer"
    assert graph.one("Job").inputs["spec"]["backoffLimit"] == 3
