"""Configuration of all tests: the command line's cache of builds, its state folder, rarer garbage collections.

One control plane serves the tests of the program and those of the Kubernetes provider.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.cli.twin_settings import configure_twin

configure_twin()

# By default, Python searches for cycles after 700 new objects; with the classes of the clouds' SDKs, that was a
# quarter of the CPU time of the tests that declare stacks. The price is 30 MB of memory in each process.
gc.set_threshold(20_000, 20, 100)


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
