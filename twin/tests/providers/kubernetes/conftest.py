"""A Pulumi project on a separate cluster: real engine, stand-in plugins, real API server."""

import os
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch

from twin.tests.project import Project, plugins, pulumi_program

__all__ = ["plugins", "pulumi_program"]


class ClusterProject(Project):
    """A project that manages the objects of a cluster."""

    head = """
import os
import pulumi
import pulumi_kubernetes as k8s
from pulumi import ResourceOptions as Opts
namespace = os.environ["NAMESPACE"]
"""


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """Return the kubeconfig of a real API server; CLOUDTWIN_TEST_KUBECONFIG selects an existing one."""
    if path := os.environ.get("CLOUDTWIN_TEST_KUBECONFIG"):
        return Path(path)
    shared: Path = request.getfixturevalue("control_plane")
    return shared


@pytest.fixture
def project(
    tmp_path: Path, pulumi_program: Path, plugins: dict[str, str], kubeconfig: Path, namespace: str
) -> ClusterProject:
    """Return a project whose default provider uses the cluster; NAMESPACE is the namespace of the test."""
    environment = {**plugins, "KUBECONFIG": str(kubeconfig), "NAMESPACE": namespace}
    return ClusterProject(tmp_path, pulumi_program, environment)


def wait_for_object(
    list_objects: Callable[..., object], namespace: str, timeout_seconds: int
) -> bool:
    """Return True once the namespace has an object of this kind, False after the timeout."""
    watcher: Any = watch.Watch()  # type: ignore[no-untyped-call]  # the client has no types
    return any(
        True for _ in watcher.stream(list_objects, namespace, timeout_seconds=timeout_seconds)
    )


def metadata_of(kubernetes_object: Any) -> client.V1ObjectMeta:
    """Return the metadata of an object from the API server; its type there is optional."""
    assert isinstance(kubernetes_object.metadata, client.V1ObjectMeta)
    return kubernetes_object.metadata


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    """Yield a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def address_of(server: socket.socket) -> str:
    return f"https://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> client.CoreV1Api:
    """Return a client of the cluster, independent of Pulumi."""
    connection = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]  # the client has no types
    return client.CoreV1Api(connection)


@pytest.fixture
def namespace(api: client.CoreV1Api) -> Iterator[str]:
    """Yield a namespace for one test; it is deleted in the background."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    # Wait until a controller has created its ConfigMap kube-root-ca.crt, which a test reads.
    wait_for_object(api.list_namespaced_config_map, name, timeout_seconds=100)
    yield name
    api.delete_namespace(name)
