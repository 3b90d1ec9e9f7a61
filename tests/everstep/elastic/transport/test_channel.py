"""The connection between an agent and its workers, over a real Unix socket."""

import contextlib
import os
import queue
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.elastic.transport import channel

WAIT_SECONDS = 100.0  # limit on a busy machine
MessageQueue = queue.SimpleQueue[tuple[int, channel.Message]]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # the path of a socket may have 107 characters; pytest's are longer
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


def test_no_thread_accepts_connections_after_the_end(server: channel.AgentServer) -> None:
    server.close()

    assert not server._acceptor.is_alive(), (
        "it would take the connections of the next server with the same descriptor"
    )


def test_a_server_that_does_not_listen_can_be_closed(path: Path) -> None:
    channel.AgentServer(path, lambda *_: None).close()

    assert not path.exists()


def test_a_client_that_sends_no_json_is_disconnected_and_workers_are_served(
    server: channel.AgentServer, path: Path, messages: MessageQueue
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.settimeout(WAIT_SECONDS)
        stranger.connect(str(path))
        stranger.sendall(b"GET / HTTP/1.1\r\n")
        assert stranger.recv(1) == b""

    with contextlib.closing(channel.connect(str(path))) as worker:
        worker.send({"hello": os.getpid()})
        assert messages.get(timeout=WAIT_SECONDS) == (os.getpid(), {"hello": os.getpid()})
