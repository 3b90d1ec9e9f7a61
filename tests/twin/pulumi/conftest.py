"""A Pulumi project on a cluster of its own: the real engine, our plugins, a real API server without machines."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from everstep.progress import Lines
from tests.twin.project import Project, pulumi_program
from twin.pulumi import install_plugins

__all__ = ["pulumi_program"]


class ClusterProject(Project):
    """A project about the objects of a cluster."""

    head = """
import os
import pulumi
import pulumi_kubernetes as k8s
from pulumi import ResourceOptions as Opts
namespace = os.environ["NAMESPACE"]
"""


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory) -> Iterator[Path]:
    """A real API server with its controllers; EVERSTEP_TEST_KUBECONFIG names one that stands already."""
    if given := os.environ.get("EVERSTEP_TEST_KUBECONFIG"):
        yield Path(given)
        return
    from twin.nodes import Twin

    twin = Twin.open(f"pulumi-test-{os.getpid()}")
    try:
        twin.up([], Lines())
        yield twin.kubeconfig
    finally:
        twin.down(Lines())


@pytest.fixture(scope="session")
def plugins(pulumi_program, tmp_path_factory) -> dict[str, str]:
    return install_plugins(tmp_path_factory.mktemp("pulumi-home"), pulumi_program)


@pytest.fixture
def project(tmp_path, pulumi_program, plugins, kubeconfig, namespace) -> ClusterProject:
    """A project whose default provider is the cluster, in the test's own namespace."""
    state = tmp_path / "state"
    state.mkdir()
    folder = tmp_path / "project"
    folder.mkdir()
    return ClusterProject(
        folder,
        pulumi_program,
        {
            **plugins,
            "PULUMI_BACKEND_URL": f"file://{state}",
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "KUBECONFIG": str(kubeconfig),
            "NAMESPACE": namespace,
        },
    )


@pytest.fixture(scope="session")
def api(kubeconfig) -> client.CoreV1Api:
    """The cluster as somebody other than Pulumi sees it."""
    return client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))


@pytest.fixture
def namespace(api) -> Iterator[str]:
    """A namespace for one test; its contents go with it, in the background."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api.create_namespace({"metadata": {"name": name}})
    deadline = time.monotonic() + 10
    while not api.list_namespaced_config_map(name).items and time.monotonic() < deadline:
        time.sleep(
            0.05
        )  # until the controllers have filled it, or the first refresh would see them do so
    yield name
    api.delete_namespace(name)
