"""The connection between an agent and its workers, over a real Unix socket."""

import contextlib
import gc
import os
import queue
import socket
import stat
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.elastic.transport import channel
from everstep.errors import EverstepError
from tests.everstep.elastic.descriptors import no_descriptors_left

WAIT_SECONDS = 100.0  # limit on a busy machine
MessageQueue = queue.SimpleQueue[tuple[int, channel.Message]]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The path of a socket has at most 107 bytes; pytest's may be longer.
    monkeypatch.chdir(tmp_path)
    return Path("agent.sock")


@pytest.fixture
def messages() -> MessageQueue:
    return queue.SimpleQueue()


@pytest.fixture
def server(path: Path, messages: MessageQueue) -> Iterator[channel.AgentServer]:
    server = channel.AgentServer(path, lambda *message: messages.put(message))
    server.start()
    yield server
    server.close()


def test_a_refused_connection_leaves_no_socket_open(path: Path) -> None:
    with warnings.catch_warnings(record=True) as leaks:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(FileNotFoundError):
            channel.connect(str(path))
        gc.collect()

    assert not leaks


def test_no_thread_accepts_connections_after_the_server_is_closed(
    server: channel.AgentServer,
) -> None:
    server.close()

    assert not server._acceptor.is_alive(), (
        "it would take the connections of the next server with the same descriptor"
    )


def test_a_worker_that_connects_while_its_agent_has_no_free_descriptor_is_served_later(
    server: channel.AgentServer, path: Path, messages: MessageQueue
) -> None:
    """Otherwise a worker that is started again would wait forever for the agent, and its node for the worker."""
    with contextlib.ExitStack() as stack:
        # The accepting thread, which waits in accept(), has already reserved a descriptor for one connection.
        other, worker = (
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(2)
        )
        with no_descriptors_left():
            other.connect(str(path))
            worker.connect(str(path))
            server._acceptor.join(0.3)
        worker.sendall(b'{"hello": 41}\n')

        assert messages.get(timeout=WAIT_SECONDS) == (41, {"hello": 41})


@pytest.mark.usefixtures("server")
def test_only_this_user_can_connect(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_socket_that_a_killed_agent_left_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_socket:
        left_socket.bind(str(path))

    with contextlib.closing(channel.AgentServer(path, lambda *_: None)) as server:
        server.start()
        channel.connect(str(path)).close()


def test_the_end_of_a_worker_is_reported_with_its_process_id(path: Path) -> None:
    ended_workers: queue.SimpleQueue[int] = queue.SimpleQueue()
    server = channel.AgentServer(path, lambda *_: None, ended_workers.put)
    with contextlib.closing(server):
        server.start()
        with contextlib.closing(channel.connect(str(path))) as worker:
            worker.send({"hello": 41})

        assert ended_workers.get(timeout=WAIT_SECONDS) == 41
        assert server.workers() == []


def test_a_message_to_all_workers_skips_a_worker_that_is_gone(
    server: channel.AgentServer, path: Path, messages: MessageQueue
) -> None:
    """An error would end the agent's thread that sends it, and with it the node."""
    with contextlib.ExitStack() as stack:
        gone, worker = (
            stack.enter_context(contextlib.closing(channel.connect(str(path)))) for _ in range(2)
        )
        for pid, stream in ((1, gone), (2, worker)):
            stream.send({"hello": pid})
            messages.get(timeout=WAIT_SECONDS)
        server._streams[1]._connection.shutdown(socket.SHUT_WR)  # its end is not noticed yet

        server.broadcast({"ping": 1})

        assert worker.receive() == {"ping": 1}


def test_a_worker_that_reads_no_messages_is_disconnected_and_does_not_block_the_agent(
    server: channel.AgentServer,
    path: Path,
    messages: MessageQueue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that hangs in the kernel ends only later; SIGTERM must end the agent in the meantime."""
    monkeypatch.setattr(channel, "SEND_SECONDS", 0.1)
    with contextlib.ExitStack() as stack:
        hanging, worker = (
            stack.enter_context(contextlib.closing(channel.connect(str(path)))) for _ in range(2)
        )
        for pid, stream in ((1, hanging), (2, worker)):
            stream.send({"hello": pid})
            messages.get(timeout=WAIT_SECONDS)

        def fill_buffer() -> None:
            while 1 in server.workers():
                server.broadcast({"ping": 1.0})
                worker.receive()

        pings = threading.Thread(target=fill_buffer, daemon=True)
        pings.start()
        pings.join(10)
        assert not pings.is_alive(), "the agent's thread would wait until the process ends"

        server.broadcast({"node_leaves": True})

        assert worker.receive() == {"node_leaves": True}


def test_a_server_that_does_not_listen_can_be_closed(path: Path) -> None:
    channel.AgentServer(path, lambda *_: None).close()

    assert not path.exists()


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1\r\n", b"[]\n", b'{"pid": 1}\n', b'{"hello": "there"}\n']
)
def test_a_client_that_does_not_introduce_itself_is_disconnected_and_workers_are_served(
    server: channel.AgentServer, path: Path, messages: MessageQueue, line: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.settimeout(WAIT_SECONDS)
        stranger.connect(str(path))
        stranger.sendall(line)
        assert stranger.recv(1) == b""

    with contextlib.closing(channel.connect(str(path))) as worker:
        worker.send({"hello": os.getpid()})
        assert messages.get(timeout=WAIT_SECONDS) == (os.getpid(), {"hello": os.getpid()})


def test_a_path_that_is_too_long_for_a_socket_is_an_error_with_its_length(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    server = channel.AgentServer(folder / "agent.sock", lambda *_: None)

    with pytest.raises(EverstepError, match=r"agent\.sock, has \d{3} bytes; at most 107") as error:
        server.start()
    assert "EVERSTEP_AGENT" in error.value.fix
    server.close()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing/agent.sock", "No such file"),
        ("file/agent.sock", "Not a directory"),
        ("folder", "Is a directory"),
    ],
)
def test_a_path_where_no_socket_can_be_created_is_an_error_with_the_reason(
    path: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder").mkdir()

    with (
        contextlib.closing(channel.AgentServer(Path(path), lambda *_: None)) as server,
        pytest.raises(
            EverstepError, match=f"socket, {path}, cannot be created: .*{reason}"
        ) as error,
    ):
        server.start()

    assert "EVERSTEP_AGENT" in error.value.fix


@pytest.mark.parametrize(("bytes_more", "is_default"), [(0, False), (1, True)])
def test_the_default_path_of_the_socket_fits_for_any_folder_of_temporary_files(
    bytes_more: int, is_default: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"everstep-agent-{os.getpid()}.sock"
    folder = "/" + "x" * (channel.MAX_PATH_BYTES - len(f"//{name}") + bytes_more)
    monkeypatch.setenv("TMPDIR", folder)

    path = channel.default_socket_path()

    assert path == Path("/tmp" if is_default else folder) / name
    assert len(os.fsencode(path)) <= channel.MAX_PATH_BYTES
