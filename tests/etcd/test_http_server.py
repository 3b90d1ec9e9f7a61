"""The addresses on which a member's HTTP servers respond."""

import json
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler

import pytest

from etcd.gateway import NO_DATA_PATH
from etcd.http_server import MemberHttpServer
from etcd.no_data_server import NoDataServer
from etcd.users import Readiness
from tests.http_servers import serving
from tests.ipv6 import needs_ipv6

BOTH_FAMILIES = ["127.0.0.1", pytest.param("[::1]", marks=needs_ipv6)]


@pytest.mark.parametrize("host", BOTH_FAMILIES)
def test_the_readiness_probe_of_the_etcd_users_succeeds_at_a_pods_address_of_either_family(
    host: str,
) -> None:
    with (
        serving(Readiness(ready=True).server(0)) as port,
        urllib.request.urlopen(f"http://{host}:{port}/") as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize("host", BOTH_FAMILIES)
@pytest.mark.parametrize("listen", ["0.0.0.0", "::", ""])
def test_a_peer_reaches_a_member_without_data_at_either_family(listen: str, host: str) -> None:
    server = NoDataServer("etcd-0", listen, 0)
    url = f"http://{host}:{server.port}{NO_DATA_PATH}"
    with server.serve(), urllib.request.urlopen(url, data=b"{}") as response:
        assert json.load(response) == {"no_data": "etcd-0"}


@pytest.mark.parametrize(
    ("listen", "other"), [("127.0.0.1", "127.0.0.2"), ("localhost", "127.0.0.2")]
)
def test_a_server_at_one_address_responds_at_no_other(listen: str, other: str) -> None:
    with (
        serving(MemberHttpServer(listen, 0, BaseHTTPRequestHandler)) as port,
        pytest.raises(urllib.error.URLError, match="refused"),
    ):
        urllib.request.urlopen(f"http://{other}:{port}/")
