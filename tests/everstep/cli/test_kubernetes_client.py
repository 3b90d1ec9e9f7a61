"""A client of a cluster that accepts connections and never responds."""

import socket
from pathlib import Path

import pytest

from everstep.cli import kubernetes_client
from everstep.cli.kubernetes_client import KubernetesClient
from everstep.errors import EverstepError

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: silent, cluster: {server: "http://127.0.0.1:PORT"}}]
users: [{name: me, user: {token: not-a-secret}}]
contexts: [{name: silent, context: {cluster: silent, user: me}}]
current-context: silent
"""


def test_a_cluster_that_does_not_respond_gets_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kubernetes_client.CONNECT_SECONDS + kubernetes_client.READ_SECONDS <= 10
    monkeypatch.setattr(kubernetes_client, "READ_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (tmp_path / "kubeconfig").write_text(KUBECONFIG.replace("PORT", str(port)))
        client = KubernetesClient.connect(tmp_path / "kubeconfig")

        with pytest.raises(EverstepError, match=f"{port} does not respond"):
            client.get("/version")

        server.accept()[0].close()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # a second attempt would double the wait of a user
            server.accept()
