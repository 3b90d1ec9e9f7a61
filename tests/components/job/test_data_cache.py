"""Workers that read shards from an object store: their volume, identity, network and arguments."""

from base64 import b64decode
from functools import cache
from typing import Any

import pytest

from tests.components.aws.eks_stack import declare_training, policy_statements, training_stack
from tests.components.existing.existing_stack import declare_existing, pod_of
from tests.components.recorder import Graph

SOURCE = "s3://my-photos/imagenet/shards"
CACHE = {"source": SOURCE, "size": "100Gi"}
TEMPLATE = "eks-nodes-gpu-spot-template"


@cache
def cache_stack(storage_class: str = "") -> Graph:
    settings = {"storageClass": storage_class} if storage_class else {}
    return declare_training(data={"dataset": "imagefolder", "cache": {**CACHE, **settings}})


def worker(graph: Graph) -> dict[str, Any]:
    (container,) = pod_of(graph.one("ElasticJob"))["containers"]
    return dict(container)


def volume(graph: Graph) -> dict[str, Any]:
    (cache,) = (
        volume
        for volume in pod_of(graph.one("ElasticJob"))["volumes"]
        if volume["name"] == "data-cache"
    )
    return dict(cache)


def test_workers_read_the_store_through_their_own_volume() -> None:
    arguments = " ".join(worker(cache_stack())["args"])

    assert f"--dataset imagefolder --data /everstep-cache --data-store {SOURCE}" in arguments
    assert f"--data-cache-bytes {95 * 2**30}" in arguments, (
        "a larger cache would cause the eviction of the pod"
    )
    assert "--data-cache-free-percent 15" in arguments
    assert volume(cache_stack()) == {"name": "data-cache", "emptyDir": {"sizeLimit": "100Gi"}}
    assert {"name": "data-cache", "mountPath": "/everstep-cache"} in worker(cache_stack())[
        "volumeMounts"
    ]


def test_a_volume_of_a_storage_class_is_created_with_each_worker() -> None:
    (claim,) = volume(cache_stack("fast"))["ephemeral"].values()

    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"] == {"storage": "100Gi"}
    assert "--data-cache-free-percent" not in worker(cache_stack("fast"))["args"]


def test_nothing_is_prepared_on_the_volume() -> None:
    assert not cache_stack().of_type("Job")


def test_workers_have_the_identity_that_reads_the_prefix() -> None:
    _, reading = policy_statements(cache_stack()["eks-data-role-read"])

    assert reading["Resource"] == [
        "arn:aws:s3:::my-photos/imagenet/shards",
        "arn:aws:s3:::my-photos/imagenet/shards/*",
    ]
    assert cache_stack()["eks-data-identity"].inputs["serviceAccount"] == "trainer"
    assert pod_of(cache_stack().one("ElasticJob"))["serviceAccountName"] == "trainer"


def test_workers_get_the_region_of_the_store() -> None:
    assert {"name": "AWS_REGION", "value": "us-east-1"} in worker(cache_stack())["env"]


def test_the_identity_exists_before_the_workers() -> None:
    ancestors = cache_stack().ancestors(cache_stack().one("ElasticJob").name)

    assert {"eks-data-identity", "eks-data-role-read"} <= ancestors


@pytest.mark.parametrize("cloud", [True, False])
def test_only_workers_may_connect_to_the_store(*, cloud: bool) -> None:
    graph = (
        cache_stack()
        if cloud
        else declare_existing(data={"dataset": "imagefolder", "cache": CACHE})
    )

    policies = {
        policy.inputs["metadata"]["name"]: policy.inputs["spec"]
        for policy in graph.of_type("NetworkPolicy")
    }
    for name, port in (("data-to-source", 443), ("data-to-identity-agent", 80)):
        selector = policies[name]["podSelector"]["matchLabels"]
        assert selector["app.kubernetes.io/name"] == "worker"
        assert [rule["port"] for rule in policies[name]["egress"][0]["ports"]] == [port]


@pytest.mark.parametrize(("storage_class", "expected"), [("", True), ("fast", False)])
def test_nvme_disks_form_one_array_for_a_cache_on_the_node(
    *, storage_class: str, expected: bool
) -> None:
    encoded = cache_stack(storage_class)[TEMPLATE].inputs.get("userData", "")

    assert ("strategy: RAID0" in b64decode(encoded).decode()) is expected


def test_nvme_disks_and_huge_pages_are_parts_of_one_user_data() -> None:
    pool = {"instanceTypes": ["p4d.24xlarge"], "efa": True}
    graph = declare_training(
        data={"dataset": "imagefolder", "cache": CACHE}, cluster={"gpuPool": pool}
    )

    text = b64decode(graph[TEMPLATE].inputs["userData"]).decode()

    assert text.count("\n--everstep\nContent-Type: ") == 3
    assert text.endswith("\n--everstep--\n")
    assert "vm.nr_hugepages" in text
    assert text.count("kind: NodeConfig") == 2


def test_a_stack_without_a_cache_changes_neither_its_nodes_nor_its_workers() -> None:
    user_data = b64decode(training_stack()[TEMPLATE].inputs["userData"]).decode()
    assert "localStorage" not in user_data, "new user data replaces every node"
    assert "--data-store" not in worker(training_stack())["args"]
