"""The etcd client without an etcd; other behaviour is tested with a real one."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from everstep.elastic.membership.etcd_client import Etcd, EtcdUnreachableError
from everstep.elastic.membership.etcd_connection import EtcdOptions


def test_a_reset_before_tls_is_reported_and_leaves_no_socket_open(reset_before_tls: int) -> None:
    endpoint = f"127.0.0.1:{reset_before_tls}"
    client = Etcd(EtcdOptions(endpoints=(endpoint,), tls=True, retry_seconds=0))

    with pytest.raises(EtcdUnreachableError, match="reset"):  # a socket left open fails it, too
        client.get("/")


@pytest.fixture
def proxy(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a proxy that responds to every request with an error status and an HTML page."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b"<html>Bad Gateway</html>\n"
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(request.param)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base class
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("proxy", [502, 200], indirect=True)
def test_an_error_page_of_a_proxy_ends_a_watch_like_a_lost_connection(proxy: str) -> None:
    client = Etcd(EtcdOptions(endpoints=(proxy,), retry_seconds=0))

    with pytest.raises(ConnectionError):
        list(client.watch("/", 1, idle_seconds=5))
