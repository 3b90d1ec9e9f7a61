"""Requests to an API server behind a relay that may end at any moment."""

import pytest

from twin.nodes import pki
from twin.nodes.api import Api


def test_a_reset_before_tls_is_an_error_and_leaves_no_socket_open(tmp_path, reset_before_tls):
    authority = pki.new_authority("test")
    authority.save(tmp_path, "ca")
    authority.save(tmp_path, "admin")

    with pytest.raises(OSError, match="reset"):  # a socket left open fails the test, too
        Api(tmp_path, "admin", "127.0.0.1", reset_before_tls).get("/readyz")
