"""The provider's client of a cluster that does not respond."""

import socket

import pytest
from cloudtwin.providers.kubernetes.client import ClusterClient
from cloudtwin.providers.kubernetes.config import KubernetesConfig
from cloudtwin.providers.kubernetes.errors import UnreachableError

from twin.tests.providers.kubernetes.conftest import address_of
from twin.tests.providers.kubernetes.kubeconfigs import kubeconfig


def probe_ten_times(server: str) -> None:
    cluster = ClusterClient(KubernetesConfig(kubeconfig=kubeconfig(server)))
    for _ in range(10):
        with pytest.raises(UnreachableError, match=server):
            cluster.probe()


def test_an_unreachable_cluster_is_probed_once(
    silent_server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CONNECT_SECONDS", "API_PROBE_SECONDS"):
        monkeypatch.setattr(f"cloudtwin.providers.kubernetes.client.{name}", 0.1)

    probe_ten_times("https://127.0.0.1:1")
    probe_ten_times(address_of(silent_server))

    silent_server.accept()[0].close()
    silent_server.setblocking(False)
    with pytest.raises(BlockingIOError):  # ten resources wait no longer than one
        silent_server.accept()
