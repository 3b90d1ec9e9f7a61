"""Twins of their own for tests, in a state root of their own, gone when the tests are done."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everstep.progress import Lines
from twin.nodes import Twin, leftovers
from twin.nodes.api import Api
from twin.nodes.bring_up import admin_api
from twin.nodes.cgroups import Tree


@pytest.fixture(scope="module")
def state_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("twins")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVERSTEP_STATE", str(root))
        yield root


@pytest.fixture(scope="module")
def nodes_twin(state_root: Path) -> Iterator[Twin]:
    """A twin that the tests of one module share; whoever breaks it repairs it."""
    twin = Twin.open("nodes-test")
    try:
        yield twin
    finally:
        twin.down(Lines())


def api_of(twin: Twin) -> Api:
    return admin_api(twin.layout)


def eventually(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def kill_everything(twin: Twin) -> None:
    """What an out-of-memory killer in a bad mood would do: SIGKILL to all that the twin started."""
    tree = Tree.here()
    while pids := tree.processes(twin.layout.identity):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it went with its machine
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def left_of(twin: Twin) -> list[str]:
    """Return what is left of this twin; the host may hold others."""
    traces = (twin.layout.identity, str(twin.state))
    return [entry.what for entry in leftovers() if any(trace in entry.what for trace in traces)]
