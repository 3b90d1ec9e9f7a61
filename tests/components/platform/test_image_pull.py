"""Logins of third-party registries: the Secrets, and the pods that name them."""

import base64
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pulumi
import pytest
from pulumi.runtime.config import CONFIG, set_all_config

from components.config import from_mapping
from components.config.faults import ConfigurationError
from components.platform import image_pull
from tests.components.existing.existing_stack import declared, pod_of
from tests.components.recorder import Graph

TRAINER = "registry.example.org/vision/trainer:1.0"
NAMED = [{"name": "everstep-registries"}]
WORKLOADS = ("StatefulSet", "Deployment", "Job", "DaemonSet", "ElasticJob")
PLATFORM = {
    "registryLogins": {"registry.example.org": "robot", "docker.io": "vision"},
    "spot": {"enabled": True, "image": "registry.example.org/spot:1.0"},
    "metrics": {"enabled": True},
}


@cache
def with_logins(controller: str = "torchelastic/kubernetes:0.1.0") -> Graph:
    return declared(
        job={"name": "fashion", "image": TRAINER},
        controller={"kind": "upstream", "image": controller},
        platform=PLATFORM,
    )


def names_secret(graph: Graph) -> dict[str, bool]:
    """Return whether the pods of each workload name the Secret, and no other."""
    uses_secret = {}
    for workload in (workload for kind in WORKLOADS for workload in graph.of(kind)):
        named = pod_of(workload).get("imagePullSecrets")
        assert named in (None, NAMED)
        uses_secret[workload.name] = named == NAMED
    return uses_secret


def test_exactly_the_pods_that_pull_from_these_registries_name_the_secret() -> None:
    assert names_secret(with_logins()) == {
        "training-etcd-members": False,  # localhost
        "training-controller-deployment": True,  # docker.io, which its reference leaves out
        "training-data-fashion-mnist": True,  # the image of the job
        "training-job-fashion": True,  # so do the pods that its controller creates
        "training-nodes-spot-watcher": True,
        "training-nodes-metrics-exporter": False,  # nvcr.io
    }


def test_an_image_of_an_init_container_counts() -> None:
    graph = declared(
        job={"name": "fashion"},
        etcd={"persistence": "memory", "rejoinImage": "registry.example.org/rejoin:1.0"},
        platform={"registryLogins": {"registry.example.org": "robot"}},
    )

    assert names_secret(graph)["training-etcd-members"]


def test_both_namespaces_have_the_logins_of_all_registries() -> None:
    secrets = with_logins().of("Secret")

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
    assert "training-registries-secret" in with_logins().ancestors(name)


def test_the_secret_exists_before_the_pods_of_the_system_namespace() -> None:
    before = with_logins().ancestors("training-nodes-spot-watcher")

    assert "training-nodes-registries-secret" in before


def test_without_logins_nothing_is_added() -> None:
    graph = declared(job={"name": "fashion"})

    assert not graph.of("Secret")
    assert not any(names_secret(graph).values())


def faults(**platform: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        from_mapping({"platform": platform})
    return str(refused.value)


def test_a_login_that_no_image_needs_is_refused() -> None:
    message = faults(registryLogins={"gchr.io": "robot"})

    assert "platform.registryLogins.gchr.io" in message
    assert "from which no image of the stack is pulled" in message


@pytest.fixture
def keys() -> Iterator[None]:
    """Restore the configuration of the program."""
    before = dict(CONFIG.get())
    yield
    set_all_config(before)


@pytest.mark.usefixtures("keys")
def test_a_missing_password_names_the_command_that_sets_it() -> None:
    set_all_config({})

    with pytest.raises(ConfigurationError) as refused:
        image_pull.logins({"ghcr.io": "robot"}, pulumi.Config(image_pull.PASSWORDS))
    assert "pulumi config set --secret registryPassword:ghcr.io" in str(refused.value)


@pytest.mark.usefixtures("keys")
def test_a_password_in_plaintext_is_refused_and_not_shown() -> None:
    set_all_config({"registryPassword:ghcr.io": "hunter2"})

    with pytest.raises(ConfigurationError) as refused:
        image_pull.logins({"ghcr.io": "robot"}, pulumi.Config(image_pull.PASSWORDS))
    assert "in plaintext" in str(refused.value)
    assert "hunter2" not in str(refused.value)
