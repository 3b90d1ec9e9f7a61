"""The etcd client where no etcd is; all else is tested against a real one."""

import pytest

from everstep.elastic.etcd import Etcd, EtcdOptions, EtcdUnreachableError


def test_a_reset_before_tls_is_told_and_leaves_no_socket_open(reset_before_tls):
    endpoint = f"127.0.0.1:{reset_before_tls}"
    client = Etcd(EtcdOptions(endpoints=(endpoint,), tls=True, patience_seconds=0))

    with pytest.raises(EtcdUnreachableError, match="reset"):  # a socket left open fails it, too
        client.get("/")
