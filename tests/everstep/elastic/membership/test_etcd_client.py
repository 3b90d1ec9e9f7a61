"""The etcd client without an etcd; other behavior is tested with a real one."""

import base64
import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from everstep.elastic.membership import etcd_client
from everstep.elastic.membership.etcd_client import REQUEST_SECONDS, Etcd, EtcdUnreachableError
from everstep.elastic.membership.etcd_connection import EtcdAddress, EtcdOptions


def test_a_reset_before_tls_is_reported_and_leaves_no_socket_open(reset_before_tls: int) -> None:
    endpoint = f"127.0.0.1:{reset_before_tls}"
    client = Etcd(EtcdOptions(endpoints=(endpoint,), tls=True, retry_seconds=0))

    with pytest.raises(
        EtcdUnreachableError, match="reset"
    ):  # an unclosed socket would fail the test, too
        client.get("/")


@contextlib.contextmanager
def gateway(*responses: tuple[int, bytes]) -> Iterator[str]:
    """Run a server that sends these responses in turn, then the last one again, and yield its endpoint."""
    remaining_responses = list(responses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = remaining_responses[0]
            del remaining_responses[: len(remaining_responses) > 1]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base class
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server, running(server) as endpoint:
        yield endpoint


@contextlib.contextmanager
def running(server: socketserver.TCPServer) -> Iterator[str]:
    """Run a server in a thread, and yield its endpoint."""
    # `shutdown` waits for up to one poll interval.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "error"), [(502, "refused the watch with status 502"), (200, "JSONDecodeError")]
)
def test_an_error_page_of_a_proxy_ends_a_watch_like_a_lost_connection(
    status: int, error: str
) -> None:
    with gateway((status, b"<html>Bad Gateway</html>\n")) as endpoint:
        client = Etcd(EtcdOptions(endpoints=(endpoint,)))

        with pytest.raises(ConnectionError, match=error):
            list(client.watch("/", 1, idle_seconds=5))


NO_LEADER = b'{"error": "etcdserver: no leader", "code": 14, "message": "etcdserver: no leader"}'
NOTHING = b'{"header": {"cluster_id": "1", "revision": "5"}}'


def user_options(endpoint: str, folder: Path) -> EtcdOptions:
    password_file = folder / "password"
    password_file.write_text("trout")
    return EtcdOptions(
        endpoints=(endpoint,), user="worker", password_file=str(password_file), retry_seconds=30
    )


@pytest.mark.parametrize("was_accepted", [False, True])
def test_an_etcd_without_a_leader_does_not_reject_a_password(
    tmp_path: Path, was_accepted: bool
) -> None:
    """Otherwise an election that takes a second would end agents, like a wrong password, or let their leases lapse."""
    accepted = [(200, b'{"token": "t"}'), (200, NOTHING)] if was_accepted else []
    election = [(503, NO_LEADER), (503, NO_LEADER)]
    with gateway(*accepted, *election, (200, b'{"token": "u"}'), (200, NOTHING)) as endpoint:
        options = user_options(endpoint, tmp_path)
        with contextlib.closing(Etcd(options)) as client:
            for _ in range(1 + was_accepted):
                client._token = None
                assert client.get("/") == ([], 5)
                client.close()


def test_a_renewal_during_an_election_does_not_count_as_a_lapsed_lease(tmp_path: Path) -> None:
    with gateway((503, NO_LEADER)) as endpoint:
        client = Etcd(user_options(endpoint, tmp_path))

        with pytest.raises(EtcdUnreachableError, match="no leader"):
            client.keep_alive(1, request_seconds=5, retry_seconds=0)


NO_SPACE = b'{"error": "etcdserver: mvcc: database space exceeded", "code": 8}'


@pytest.mark.parametrize(
    ("refusal", "repair"),
    [((429, NO_SPACE), "etcdctl alarm disarm"), ((503, NO_LEADER), "most of its members run")],
)
def test_an_etcd_that_responds_but_cannot_serve_is_not_called_silent(
    refusal: tuple[int, bytes], repair: str
) -> None:
    with gateway(refusal) as endpoint:
        client = Etcd(EtcdOptions(endpoints=(endpoint,), retry_seconds=0))

        with (
            contextlib.closing(client),
            pytest.raises(EtcdUnreachableError, match="has refused requests") as failure,
        ):
            client.put("/key", "value")

    assert repair in failure.value.fix


INVALID_TOKEN = b'{"error": "etcdserver: invalid auth token", "code": 16}'


def test_a_token_that_another_thread_has_discarded_already_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that restarts refuses the token of all threads; the second refusal must not end the agent."""
    responses = [
        *((200, b'{"token": "t"}'), (200, NOTHING)),
        (401, INVALID_TOKEN),
        *((200, b'{"token": "u"}'), (200, NOTHING)),
    ]
    with (
        gateway(*responses) as endpoint,
        contextlib.closing(Etcd(user_options(endpoint, tmp_path))) as client,
    ):
        client.get("/")
        connection = client._connection(client._target(), REQUEST_SECONDS)
        read_response = connection.getresponse

        def discard_token_and_read() -> HTTPResponse:
            client._token = None
            return read_response()

        monkeypatch.setattr(connection, "getresponse", discard_token_and_read)
        assert client.get("/") == ([], 5)


def watch_created(cluster: str, revision: int) -> tuple[int, bytes]:
    """Return the first message of a watch, which then ends."""
    header = {"cluster_id": cluster, "revision": str(revision)}
    return 200, json.dumps({"result": {"header": header, "created": True}}).encode() + b"\n"


@pytest.mark.parametrize(
    ("cluster", "revision", "end"),
    [
        ("1", 10, "etcd closed the watch"),
        ("1", 11, "etcd closed the watch"),
        ("2", 11, "etcd is another cluster, 2 instead of 1"),
        ("1", 9, "etcd has gone back from revision 10 to 9"),
    ],
)
def test_only_a_watch_whose_revision_is_from_another_store_ends_with_that_reason(
    cluster: str, revision: int, end: str
) -> None:
    with gateway(watch_created(cluster, revision)) as endpoint:
        client = Etcd(EtcdOptions(endpoints=(endpoint,)))

        with pytest.raises(ConnectionError, match=end):
            list(client.watch("/", 11, idle_seconds=5, cluster="1"))


def test_the_client_names_the_cluster_of_the_last_response() -> None:
    renewal = b'{"result": {"header": {"cluster_id": "2"}, "ID": "7", "TTL": "2"}}'
    with gateway((200, NOTHING), (200, renewal)) as endpoint:
        client = Etcd(EtcdOptions(endpoints=(endpoint,)))
        assert client.cluster == ""

        with contextlib.closing(client):
            assert client.read("/").cluster == "1"
            assert client.keep_alive(7, request_seconds=5, retry_seconds=0)

    assert client.cluster == "2"


def test_bytes_that_are_not_utf_8_are_read_as_a_value_that_no_agent_writes() -> None:
    key, value = (base64.b64encode(content).decode() for content in (b"/a", b'"\xff"'))
    body = json.dumps({"header": {"revision": "5"}, "kvs": [{"key": key, "value": value}]})
    with gateway((200, body.encode())) as endpoint:
        client = Etcd(EtcdOptions(endpoints=(endpoint,)))

        with contextlib.closing(client):
            [entry] = client.read("/").entries

    assert entry.value == r'"\xff"'
    with pytest.raises(json.JSONDecodeError):
        json.loads(entry.value)


@contextlib.contextmanager
def tcp_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Run a server that passes each connection, in a thread, to `serve`, and yield its endpoint."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            serve(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server, running(server) as endpoint:
        yield endpoint


def wait_for(end: threading.Event | threading.Barrier) -> None:
    """Keep a connection to a server open until an event occurs or a barrier is passed."""
    end.wait(60)


def test_threads_that_fail_at_the_same_member_all_continue_at_the_next_one() -> None:
    """If each thread switched to the next of two members, the second switch would lead back to the failing one."""
    both_have_asked = threading.Barrier(2)
    with (
        tcp_server(lambda _: wait_for(both_have_asked)) as failing_endpoint,
        gateway((200, NOTHING)) as endpoint,
        ThreadPoolExecutor(2) as pool,
    ):
        client = Etcd(EtcdOptions(endpoints=(failing_endpoint, endpoint), retry_seconds=0))
        client._preferred = 0

        for attempt in [pool.submit(client.get, "/") for _ in range(2)]:
            assert isinstance(attempt.exception(), EtcdUnreachableError)

        with contextlib.closing(client):
            assert client.get("/") == ([], 5)


def test_a_watch_without_changes_does_not_switch_to_another_member() -> None:
    """The other member may be lost: every few seconds, the agent would send its requests there and wait."""
    status, created = watch_created("1", 5)
    is_over = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.0 %d OK\r\n\r\n%s" % (status, created))
        is_over.wait()

    with tcp_server(serve) as endpoint:
        client = Etcd(EtcdOptions(endpoints=(endpoint, "127.0.0.1:1")))
        client._preferred = 0
        try:
            with pytest.raises(TimeoutError):
                list(client.watch("/", 6, idle_seconds=0.1, cluster="1"))
        finally:
            is_over.set()

        assert client._target().port != 1


def test_a_watch_requires_a_member_with_a_leader() -> None:
    """Otherwise a member that is cut off from the others would accept the watch and report no change for minutes."""
    requests: list[bytes] = []
    with tcp_server(lambda connection: requests.append(connection.recv(4096))) as endpoint:
        client = Etcd(EtcdOptions(endpoints=(endpoint,)))

        with pytest.raises(ConnectionError):
            list(client.watch("/", 6, idle_seconds=5))

    assert b"\r\nGrpc-Metadata-Hasleader: true\r\n" in requests[0]


def test_opening_a_watch_has_a_shorter_timeout_than_the_wait_for_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(etcd_client, "REQUEST_SECONDS", 0.1)
    is_over = threading.Event()
    with tcp_server(lambda _: wait_for(is_over)) as endpoint:
        client = Etcd(EtcdOptions(endpoints=(endpoint, "127.0.0.1:1")))
        client._preferred = 0
        try:
            with pytest.raises(TimeoutError):
                list(client.watch("/", 6, idle_seconds=60))
        finally:
            is_over.set()

        assert client._target().port == 1, "another member is next"


class LateEtcd(Etcd):
    """A client whose first attempt of each put gets no response; the transaction is carried out later, or twice.

    Attributes:
        value: value of the only key.
        mod_revision: revision of its last change.
        late_attempts: attempts that were not carried out yet.
        loses_response: True if the first attempt of a put is carried out and only its response is lost.
    """

    def __init__(self, *, loses_response: bool = False) -> None:
        super().__init__(EtcdOptions(endpoints=("127.0.0.1:1",), retry_seconds=60))
        self.value, self.mod_revision, self.loses_response = "", 0, loses_response
        self.late_attempts: list[Mapping[str, Any]] = []
        self._bodies: list[Mapping[str, Any]] = []

    def _attempt(
        self, target: EtcdAddress, path: str, body: Mapping[str, Any], request_seconds: float
    ) -> dict[str, Any]:
        assert path == "kv/txn"
        if body not in self._bodies:
            self._bodies.append(body)
            if self.loses_response:
                self.execute(body)
            else:
                self.late_attempts.append(body)
            raise TimeoutError("timed out")
        return self.execute(body)

    def execute(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if int(body["compare"][0]["mod_revision"]) == self.mod_revision:
            self.mod_revision += 1
            self.value = body["success"][0]["request_put"]["value"]
            return {"succeeded": True, "header": {"revision": str(self.mod_revision)}}
        assert body["failure"][0]["request_range"]["key"] == base64.b64encode(b"/a").decode()
        entry = {"value": self.value, "mod_revision": str(self.mod_revision), "lease": "7"}
        return {"responses": [{"response_range": {"kvs": [entry] if self.value else []}}]}

    def decoded_value(self) -> str:
        return base64.b64decode(self.value).decode()


def test_a_put_that_a_suspended_member_carries_out_late_does_not_undo_a_later_one() -> None:
    """Otherwise a node that waits for the next group would count as training, and the others would wait 30 s for it."""
    client = LateEtcd()
    revision = client.put("/a", "1", 7)
    client.put("/a", "2", 7, mod_revision=revision)

    for attempt in client.late_attempts:
        client.execute(attempt)

    assert client.decoded_value() == "2"


def test_a_put_whose_response_was_lost_is_not_repeated() -> None:
    client = LateEtcd(loses_response=True)

    assert client.put("/a", "1", 7) == 1
    assert (client.decoded_value(), client.mod_revision) == ("1", 1)


def test_a_put_replaces_a_value_that_its_client_has_not_observed() -> None:
    client = LateEtcd()
    client.put("/a", "1", 7)

    assert client.put("/a", "2", 7, mod_revision=0) == 2
    assert client.decoded_value() == "2"
