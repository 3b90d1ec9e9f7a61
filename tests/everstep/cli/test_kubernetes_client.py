"""A client of a cluster that does not respond, or refuses requests."""

import base64
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from kubernetes.stream import ws_client

from everstep.cli import kubernetes_client
from everstep.cli.kubernetes_client import (
    ClusterUnreachableError,
    KubernetesClient,
    PodCommandError,
    RequestRefusedError,
)
from everstep.errors import EverstepError
from tests.http_servers import serving

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
        with pytest.raises(BlockingIOError):  # a second attempt would double the user's wait
            server.accept()


@pytest.mark.parametrize(
    "content",
    [b"contexts: [", b"- a list", b"a text", b"\xff"],
    ids=["YAML", "list", "text", "bytes"],
)
def test_a_file_that_is_not_a_kubeconfig_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kubeconfig").write_bytes(content)

    with pytest.raises(EverstepError, match=f"{tmp_path}/kubeconfig cannot be used: ") as error:
        KubernetesClient.connect(tmp_path / "kubeconfig")

    assert "everstep:cluster" in error.value.fix


@pytest.fixture
def client_of(tmp_path: Path) -> Callable[[int], KubernetesClient]:
    """Return a function that connects a client to a port of this machine."""

    def make(port: int) -> KubernetesClient:
        (tmp_path / "kubeconfig").write_text(KUBECONFIG.replace("PORT", str(port)))
        return KubernetesClient.connect(tmp_path / "kubeconfig")

    return make


@contextmanager
def api_server(status: int) -> Iterator[int]:
    """Yield the port of an API server that answers every request with one status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"a text")

        def log_message(self, *args: object) -> None:
            """Print nothing."""

    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield port


@pytest.mark.parametrize("status", [404, 500])
def test_a_pod_that_ended_runs_no_command(
    client_of: Callable[[int], KubernetesClient], status: int
) -> None:
    with api_server(status) as port, pytest.raises(PodCommandError) as raised:
        client_of(port).shell("w0", "true")

    start = f"the command could not run in the pod w0: Handshake status {status} "
    assert raised.value.problem.startswith(start)
    assert "-+-+-" not in raised.value.problem, "the headers of the response are not shown"


@pytest.mark.parametrize("status", [401, 403])
def test_a_user_who_may_not_run_commands_learns_which_permission_is_missing(
    client_of: Callable[[int], KubernetesClient], status: int
) -> None:
    with api_server(status) as port, pytest.raises(EverstepError, match="pods/exec") as raised:
        client_of(port).shell("w0", "true")

    assert not isinstance(raised.value, PodCommandError), "it would hide the missing permission"


def test_a_command_without_a_connection_reports_an_unreachable_cluster(
    client_of: Callable[[int], KubernetesClient], refusing_port: int
) -> None:
    with pytest.raises(ClusterUnreachableError, match="does not respond: "):
        client_of(refusing_port).shell("w0", "true")


def test_a_command_on_a_server_that_does_not_respond_ends(
    client_of: Callable[[int], KubernetesClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_client, "READ_SECONDS", 0.2)
    outcome: list[BaseException] = []

    def run_command(client: KubernetesClient) -> None:
        try:
            client.shell("w0", "true")
        except EverstepError as error:
            outcome.append(error)

    with socket.create_server(("127.0.0.1", 0)) as server:
        client = client_of(server.getsockname()[1])
        command = threading.Thread(target=run_command, args=[client], daemon=True)
        command.start()
        command.join(timeout=10)
        assert [type(error) for error in outcome] == [ClusterUnreachableError]


def frame(opcode: int, content: bytes = b"") -> bytes:
    """Return a WebSocket frame."""
    return bytes([0x80 | opcode, len(content)]) + content


@contextmanager
def pod_that_prints(parts: list[str], seconds: float, *, ends: bool = True) -> Iterator[int]:
    """Yield the port of an API server whose pod prints a part after each pause."""
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            key = f"{self.headers['Sec-WebSocket-Key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            digest = hashlib.sha1(key.encode(), usedforsecurity=False).digest()
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
            self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
            self.end_headers()
            for part in parts:
                stopped.wait(seconds)
                self.wfile.write(frame(2, b"\x01" + part.encode()))
            if ends:
                self.wfile.write(frame(8))
            else:
                stopped.wait(60)
            self.close_connection = True

        def log_message(self, *args: object) -> None:
            """Print nothing."""

    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        try:
            yield port
        finally:
            stopped.set()


def test_a_long_output_is_complete(
    client_of: Callable[[int], KubernetesClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of a truncated journal would be silently wrong."""
    monkeypatch.setattr(kubernetes_client, "READ_SECONDS", 0.5)

    with pod_that_prints(["a", "b", "c", "d"], seconds=0.2) as port:
        assert client_of(port).shell("w0", "true") == "abcd"


def test_a_command_that_does_not_end_reports_an_unreachable_cluster(
    client_of: Callable[[int], KubernetesClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_client, "READ_SECONDS", 0.2)

    with (
        pod_that_prints(["a"], seconds=0.0, ends=False) as port,
        pytest.raises(ClusterUnreachableError, match="printed nothing"),
    ):
        client_of(port).shell("w0", "true")


def test_ctrl_c_during_a_command_is_not_an_error_of_the_pod(
    client_of: Callable[[int], KubernetesClient],
    refusing_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ws_client, "WSClient", interrupt)

    with pytest.raises(KeyboardInterrupt):
        client_of(refusing_port).shell("w0", "true")


@pytest.mark.parametrize("status", [401, 403])
def test_a_user_who_may_not_read_logs_gets_an_error(
    client_of: Callable[[int], KubernetesClient], status: int
) -> None:
    with api_server(status) as port:
        client = client_of(port)
        with pytest.raises(EverstepError, match=f"refused GET /log: {status} "):
            client.text("/log")
        assert client.newest_line("w0") == "", (
            "the live view shows everything else without this line"
        )


@pytest.mark.parametrize(("status", "text"), [(200, "a text"), (400, ""), (404, ""), (500, "")])
def test_a_log_that_the_api_server_does_not_return_is_empty(
    client_of: Callable[[int], KubernetesClient], status: int, text: str
) -> None:
    with api_server(status) as port:
        assert client_of(port).text("/log") == text


@pytest.mark.parametrize(
    ("status", "error", "fix"),
    [(403, RequestRefusedError, "Allow the kubeconfig's user"), (503, EverstepError, "/readyz")],
)
def test_only_a_missing_permission_suggests_granting_one(
    client_of: Callable[[int], KubernetesClient],
    status: int,
    error: type[EverstepError],
    fix: str,
) -> None:
    with api_server(status) as port, pytest.raises(error, match=f"GET /api.* {status} ") as raised:
        client_of(port).get("/api")

    assert fix in raised.value.fix


def test_a_server_that_is_not_an_api_server_is_an_error(
    client_of: Callable[[int], KubernetesClient],
) -> None:
    with api_server(200) as port, pytest.raises(EverstepError, match="is not JSON") as error:
        client_of(port).get("/version")

    assert "kubeconfig" in error.value.fix
