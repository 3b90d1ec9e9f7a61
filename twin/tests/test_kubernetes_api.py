"""Requests to an API server behind a relay that may end at any time."""

from pathlib import Path

import pytest
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes.control_plane import pki


def test_a_reset_before_tls_is_an_error_and_leaves_no_socket_open(
    tmp_path: Path, reset_before_tls: int
) -> None:
    authority = pki.new_authority("test")
    authority.save(tmp_path, "ca")
    authority.save(tmp_path, "admin")

    with pytest.raises(OSError, match="reset"):  # an open socket fails the test as well
        KubernetesClient(tmp_path, "admin", "127.0.0.1", reset_before_tls).get("/readyz")
