"""A job on local nodes, with a real etcd."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.elastic.nodes import NAMES, Nodes, etcd_process, running_etcd, small_data

StartNodes = Callable[..., Nodes]
PACED = ("-m", "tests.trainer.elastic.paced")
"""The program of nodes that train while a test waits for an event."""


def workers_started(nodes: Nodes, name: str) -> int:
    """Return the number of a node's worker processes that have joined a group, including replacements."""
    return sum(entry["node"] == f"node-{name}" for entry in nodes.journal("start"))


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the endpoint of an etcd with one member, shared by the tests of a module."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as address:
        yield address


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Yield the endpoint and the process of an etcd with one member."""
    with etcd_process(tmp_path) as server:
        yield server


@pytest.fixture
def start_nodes(tmp_path: Path, etcd: tuple[str, object]) -> Iterator[StartNodes]:
    """Yield a function that starts nodes of a long job, with additional options of the trainer.

    `names` are the names of the nodes; other keyword arguments are passed to `Nodes`.
    """
    data = small_data(tmp_path, samples=1200)
    defaults = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    defaults += ["--global-batch", "12", "--epochs", "1000", "--checkpoint-seconds", "2"]
    all_nodes: list[Nodes] = []

    def start_nodes(*options: str, names: tuple[str, ...] = NAMES, **arguments: Any) -> Nodes:
        nodes = Nodes(tmp_path, etcd[0], [*defaults, *options], preloaded=True, **arguments)
        all_nodes.append(nodes)
        for name in names:
            nodes.start(name)
        return nodes

    yield start_nodes
    for nodes in all_nodes:
        nodes.close()
