"""Twins for the tests of one module, in a separate state root; they are removed after the tests."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes import Twin, leftovers
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.progress import Lines

from twin.tests import waiting
from twin.tests.nodes.pods import OPTIONS

BUSY_FACTOR = 5.0


@pytest.fixture(scope="module")
def state_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("twins")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDTWIN_STATE", str(root))
        yield root


@pytest.fixture(scope="module")
def nodes_twin(state_root: Path) -> Iterator[Twin]:
    """Yield a twin that the tests of one module share; a test that breaks it repairs it."""
    twin = Twin.open("nodes-test", OPTIONS)
    try:
        yield twin
    finally:
        twin.down(Lines())


def api_of(twin: Twin) -> KubernetesClient:
    return admin_client(twin.layout)


def wait_until(condition: Callable[[], object], seconds: float, description: str) -> None:
    """Wait until a condition is true, for at most five times these seconds, since the machine may be busy."""
    waiting.wait_until(condition, description, seconds * BUSY_FACTOR)


def kill_everything(twin: Twin) -> None:
    """Send SIGKILL to every process of the twin."""
    cgroups = CgroupHierarchies.detect()
    while pids := cgroups.processes(twin.layout.identity):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it ended with its machine
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def leftovers_of(twin: Twin) -> list[str]:
    """Return the leftovers of this twin; the host may have others."""
    traces = (twin.layout.identity, str(twin.state))
    return [entry.name for entry in leftovers() if any(trace in entry.name for trace in traces)]
