"""Logins to third-party registries: the Secrets, and the pods that name them."""

import base64
import json
from functools import cache

import pulumi
import pytest

from components.config.faults import ConfigurationError
from components.platform import image_pull
from tests.components.existing.existing_stack import declare_existing, pod_of
from tests.components.pulumi_config import pulumi_config
from tests.components.recorder import Graph

TRAINER = "registry.example.org/vision/trainer:1.0"
PULL_SECRETS = [{"name": "everstep-registries"}]
WORKLOADS = ("StatefulSet", "Deployment", "Job", "DaemonSet", "ElasticJob")
PLATFORM = {
    "registryLogins": {"registry.example.org": "robot", "docker.io": "vision"},
    "spot": {"enabled": True, "image": "registry.example.org/spot:1.0"},
    "metrics": {"enabled": True},
}


@cache
def stack_with_logins(controller: str = "torchelastic/kubernetes:0.1.0") -> Graph:
    return declare_existing(
        job={"name": "fashion", "image": TRAINER},
        controller={"kind": "upstream", "image": controller},
        platform=PLATFORM,
    )


def secret_use_by_workload(graph: Graph) -> dict[str, bool]:
    """Return for each workload whether its pods name the Secret; they may name no other."""
    uses_secret = {}
    for workload in (workload for kind in WORKLOADS for workload in graph.of_type(kind)):
        pull_secrets = pod_of(workload).get("imagePullSecrets")
        assert pull_secrets in (None, PULL_SECRETS)
        uses_secret[workload.name] = pull_secrets == PULL_SECRETS
    return uses_secret


def test_exactly_the_pods_that_pull_from_these_registries_name_the_secret() -> None:
    assert secret_use_by_workload(stack_with_logins()) == {
        "training-etcd-members": False,  # localhost
        "training-controller-deployment": True,  # docker.io, which its reference omits
        "training-data-fashion-mnist": True,  # the image of the job
        "training-job-fashion": True,  # the pods that its controller creates name it too
        "training-nodes-spot-watcher": True,
        "training-nodes-metrics-exporter": False,  # nvcr.io
    }


def test_an_image_of_an_init_container_counts() -> None:
    graph = declare_existing(
        job={"name": "fashion"},
        etcd={"persistence": "memory", "rejoinImage": "registry.example.org/rejoin:1.0"},
        platform={"registryLogins": {"registry.example.org": "robot"}},
    )

    assert secret_use_by_workload(graph)["training-etcd-members"]


def test_both_namespaces_have_the_logins_of_all_registries() -> None:
    secrets = stack_with_logins().of_type("Secret")

    assert {secret.inputs["metadata"]["namespace"] for secret in secrets} == {
        *("elastic-job", "everstep-system"),
    }
    for secret in secrets:
        assert secret.inputs["type"] == "kubernetes.io/dockerconfigjson"
        auths = json.loads(secret.inputs["stringData"][".dockerconfigjson"])["auths"]
        assert set(auths) == {"registry.example.org", "https://index.docker.io/v1/"}
        login = auths["registry.example.org"]
        assert base64.b64decode(login["auth"]) == b"robot:password of robot"


@pytest.mark.parametrize("name", ["training-etcd-members", "training-job-fashion"])
def test_the_secret_exists_before_the_pods_that_use_it(name: str) -> None:
    assert "training-registries-secret" in stack_with_logins().ancestors(name)


def test_the_secret_exists_before_the_pods_of_the_system_namespace() -> None:
    ancestors = stack_with_logins().ancestors("training-nodes-spot-watcher")

    assert "training-nodes-registries-secret" in ancestors


def test_without_logins_nothing_is_added() -> None:
    graph = declare_existing(job={"name": "fashion"})

    assert not graph.of_type("Secret")
    assert not any(secret_use_by_workload(graph).values())


def login_error(values: dict[str, str]) -> str:
    """Return the error about the login of a stack with this configuration."""
    with pulumi_config(values), pytest.raises(ConfigurationError) as error:
        image_pull.logins({"ghcr.io": "robot"}, pulumi.Config(image_pull.PASSWORDS))
    return str(error.value)


def test_a_missing_password_names_the_command_that_sets_it() -> None:
    assert "pulumi config set --secret registryPassword:ghcr.io" in login_error({})


def test_a_password_in_plaintext_is_refused_and_not_shown() -> None:
    error = login_error({"registryPassword:ghcr.io": "hunter2"})

    assert "in plaintext" in error
    assert "hunter2" not in error
