"""Fixtures for the tests of capacity."""

from pathlib import Path

import pytest
from cloudtwin.capacity.__main__ import Daemon
from cloudtwin.capacity.pod_identity import PodIdentityInjector, PodIdentityStore
from cloudtwin.capacity.scaler import Scaler
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout


@pytest.fixture
def pool_daemon(tmp_path: Path) -> Daemon:
    """Return the daemon of a twin without machines; it does not run."""
    api = KubernetesClient(tmp_path, "admin", "127.0.0.1", 1)  # nothing listens there
    injector = PodIdentityInjector(api, PodIdentityStore(tmp_path))
    return Daemon(Twin(Layout(tmp_path)), Scaler(api), injector)
