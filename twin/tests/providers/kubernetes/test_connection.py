"""Connections to API servers: kubeconfigs by content and by path, and damaged ones."""

from pathlib import Path

import pytest
from cloudtwin.providers.kubernetes.config import KubernetesConfig
from cloudtwin.providers.kubernetes.connection import POOL_SIZE, connect
from cloudtwin.providers.protocol.errors import ProviderError

from twin.tests.providers.kubernetes.kubeconfigs import kubeconfig

SERVER = "https://127.0.0.1:1"
TOKEN = "a-token"


@pytest.mark.parametrize("by_path", [False, True])
def test_a_client_has_the_server_and_a_pool_for_parallel_requests(
    tmp_path: Path, by_path: bool
) -> None:
    text = kubeconfig(SERVER, TOKEN)
    if by_path:
        (tmp_path / "config").write_text(text)
        text = str(tmp_path / "config")

    connection = connect(KubernetesConfig(text))

    assert connection.client.configuration.host == SERVER
    pool = connection.client.rest_client.pool_manager.connection_from_url(SERVER).pool
    assert pool is not None
    assert pool.maxsize == POOL_SIZE


@pytest.mark.parametrize("damage", ["users:\n  {", "]", "\n- a list"])
def test_the_error_about_damaged_content_does_not_contain_it(damage: str) -> None:
    text = f"users:\n- name: u\n  user: {{token: {TOKEN}\n{damage}"

    with pytest.raises(ProviderError, match="no cluster to connect to: the kubeconfig: ") as error:
        connect(KubernetesConfig(text))

    assert TOKEN not in str(error.value)


@pytest.mark.parametrize("text", ["{", "a: b: c", "", "[]"])
def test_an_unusable_file_is_an_error_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(ProviderError, match="no cluster to connect to: ") as error:
        connect(KubernetesConfig(str(path)))

    assert str(path) in str(error.value)
