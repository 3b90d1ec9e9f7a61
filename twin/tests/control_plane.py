"""A control plane that the tests of several folders share: to start an API server costs eight seconds of CPU time."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Path]:
    """Yield the kubeconfig of a control plane without machines; tests leave nothing of their own in it."""
    from cloudtwin.nodes import Twin  # few sessions need it
    from cloudtwin.progress import Lines

    twin = Twin.open(f"tests-{os.getpid()}")
    try:
        twin.up([], Lines())
        yield twin.kubeconfig
    finally:
        twin.down(Lines())
