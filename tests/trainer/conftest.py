"""A job on nodes of this machine, with a real etcd."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainer.nodes import NAMES, Nodes, etcd_process, running_etcd, small_data

Start = Callable[..., Nodes]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where an etcd of one member answers, the same for all tests of a file."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as where:
        yield where


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """An etcd of one member: its endpoint and its process."""
    with etcd_process(tmp_path) as server:
        yield server


@pytest.fixture
def start(tmp_path: Path, etcd: tuple[str, object]) -> Iterator[Start]:
    """Starts nodes of a job that has no end, with these more options of the trainer.

    `names` are the nodes; everything else that is named is for `Nodes`.
    """
    data = small_data(tmp_path, samples=1200)
    usual = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    usual += ["--global-batch", "12", "--epochs", "1000", "--checkpoint-seconds", "2"]
    started: list[Nodes] = []

    def begin(*options: str, names: tuple[str, ...] = NAMES, **more: object) -> Nodes:
        nodes = Nodes(tmp_path, etcd[0], [*usual, *options], **more)
        started.append(nodes)
        for name in names:
            nodes.start(name)
        return nodes

    yield begin
    for nodes in started:
        nodes.close()
