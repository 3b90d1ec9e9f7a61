"""Messages between a node's agent and its worker processes: a Unix socket, one JSON object per line.

Workers do not connect to etcd: eight of them on a node would need eight watches, and a worker could
outlive its agent. So the agent passes the relevant changes on, and a worker whose connection breaks ends.

Agent to worker: `form`, `stop`, `regroup`, `node_leaves`, `answer`, `ping`, `flush`, `end`. Worker to agent: `hello`,
`ready`, `pong`, `stalled`, `progressed`, `commit`, `flushed`, `finished`, `failed`, `incompatible`, `hung`,
`loop_over`. A worker's supervisor sends `ended`, to which the agent responds with `noted`, or `crashed`, to which it
responds with `again`.
"""

import contextlib
import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from everstep.catalog.names import AGENT_VARIABLE
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

Message = Mapping[str, Any]

MAX_PATH_BYTES = 107  # unix(7): the path of a socket has at most 108 bytes with its null terminator
RESPONSE_SECONDS = 30.0  # longest wait of a worker for its agent's response to a commit
SEND_SECONDS = 1.0
"""Longest wait of an agent for room in a worker's buffer, which holds minutes of messages.

A process that hangs in the kernel reads none, even after SIGKILL, and would block the agent's threads.
"""
ACCEPT_RETRY_SECONDS = 0.1  # pause after a connection that cannot be accepted
DEFAULT_FOLDER = "/tmp"  # noqa: S108 - the socket itself is private, mode 0600


class MessageStream:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Send one message.

        Raises:
            OSError: the other end is gone, or does not read its messages: then the connection ends.
        """
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            try:
                self._connection.sendall(data)
            except BlockingIOError:
                self._connection.shutdown(socket.SHUT_RDWR)  # a part of the message may be sent
                raise

    def receive(self) -> dict[str, Any] | None:
        """Return the next message; None if the connection is closed or the line is not a JSON object."""
        try:
            line = self._reader.readline()
            message = json.loads(line) if line.endswith(b"\n") else None
            return message if isinstance(message, dict) else None
        # ValueError: another thread has closed this end, or the line is not JSON.
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError, RuntimeError):  # another thread may still be reading
            self._reader.close()
        self._connection.close()


def connect(path: str) -> MessageStream:
    """Connect to the agent's socket.

    Raises:
        OSError: the agent is gone.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return MessageStream(connection)


class AgentServer:
    """The agent's end, which accepts workers and passes their messages to a callback.

    Args:
        path: path of the socket, which only this user can access.
        on_message: called with a worker's process ID and its message; the returned message is sent back.
        on_gone: called with the process ID of a worker as soon as its connection breaks.
    """

    def __init__(
        self,
        path: Path,
        on_message: Callable[[int, Message], Message | None],
        on_gone: Callable[[int], None] | None = None,
    ) -> None:
        self._path, self._on_message, self._on_gone = path, on_message, on_gone
        self._streams: dict[int, MessageStream] = {}
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._acceptor = threading.Thread(target=self._accept, name="everstep-workers", daemon=True)

    def start(self) -> None:
        """Start to listen.

        Raises:
            EverstepError: the path is too long for a socket, or the socket cannot be created there.
        """
        if (length := _bytes_of(self._path)) > MAX_PATH_BYTES:
            raise EverstepError(
                f"the path of the agent's socket, {self._path}, has {length} bytes; at most {MAX_PATH_BYTES} "
                "are possible",
                f"Set {AGENT_VARIABLE} to a shorter path.",
            )
        try:
            self._path.unlink(missing_ok=True)
            self._socket.bind(str(self._path))
            self._path.chmod(0o600)
        except OSError as error:
            raise EverstepError(
                f"the agent's socket, {self._path}, cannot be created: {error.strerror}",
                f"Set {AGENT_VARIABLE} to a path in an existing folder where this user can create files.",
            ) from None
        self._socket.listen(64)
        self._acceptor.start()

    def workers(self) -> list[int]:
        """Return the process IDs of the connected workers."""
        with self._lock:
            return list(self._streams)

    def broadcast(self, message: Message) -> None:
        """Send a message to every worker; skip workers that are gone or do not read their messages."""
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            with contextlib.suppress(OSError):
                stream.send(message)

    def send(self, pid: int, message: Message) -> None:
        """Send a message to one worker; do nothing if it is gone."""
        with self._lock:
            stream = self._streams.get(pid)
        if stream:
            with contextlib.suppress(OSError):
                stream.send(message)

    def close(self) -> None:
        """Stop listening and close all connections, which ends the workers.

        The thread that accepts ends before its descriptor is closed: the next socket of this process may get the
        same number, and the thread would take its connections.
        """
        self._closed.set()
        with contextlib.suppress(OSError):  # the socket does not listen yet
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._acceptor.is_alive():
            self._acceptor.join()
        self._socket.close()
        with self._lock:
            for stream in self._streams.values():
                stream.close()
        remove_socket(self._path)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                # If it is not closed, this process may have no free descriptor.
                if self._closed.wait(ACCEPT_RETRY_SECONDS):
                    return
                continue
            _limit_sending(connection, SEND_SECONDS)
            threading.Thread(
                target=self._serve, args=(MessageStream(connection),), daemon=True
            ).start()

    def _serve(self, stream: MessageStream) -> None:
        hello = stream.receive()
        pid = hello.get("hello") if hello else None
        if not isinstance(pid, int):
            stream.close()
            return
        with self._lock:
            self._streams[pid] = stream
        try:
            message: dict[str, Any] | None = hello
            while message is not None:
                response = self._on_message(pid, message)
                if response is not None:
                    stream.send(response)
                message = stream.receive()
        except OSError as error:
            log.debug("the connection to worker %d broke: %s", pid, error)
        finally:
            with self._lock:
                self._streams.pop(pid, None)
            stream.close()
            if self._on_gone:
                self._on_gone(pid)


def _limit_sending(connection: socket.socket, seconds: float) -> None:
    """Limit the time for which sending blocks; receiving still waits without a limit."""
    whole_seconds, fraction = divmod(seconds, 1)
    timeval = struct.pack("@ll", int(whole_seconds), int(fraction * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)


def default_socket_path() -> Path:
    """Return a path for this process's socket, in /tmp if the folder for temporary files has too long a path."""
    name = f"everstep-agent-{os.getpid()}.sock"
    path = Path(os.environ.get("TMPDIR", DEFAULT_FOLDER)) / name
    return path if _bytes_of(path) <= MAX_PATH_BYTES else Path(DEFAULT_FOLDER) / name


def agreements_path(socket_path: Path) -> Path:
    """Return the path of the file that the workers share which use this socket; see `recovery.node_agreements`."""
    return socket_path.with_name(f"{socket_path.name}.agreements")


def remove_socket(path: Path) -> None:
    """Remove a socket, and the file of its workers."""
    for file in (path, agreements_path(path)):
        with contextlib.suppress(OSError):  # it was not created
            file.unlink()


def _bytes_of(path: Path) -> int:
    return len(os.fsencode(path))
