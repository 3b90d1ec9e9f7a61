"""The line between a node's agent and its worker processes: a Unix socket, one JSON object a line.

Workers do not speak to etcd: eight of them on a node would be eight watches, and a worker that
lives on while its agent is gone would be nobody's. So the agent tells them what matters, and a
worker whose line breaks ends. Agent to worker: `welcome`, `stop`, `regroup`, `answer`, and in live
mode `form`, `end` and `ping`. Worker to agent: `hello`, `settling`, `progressed`, `commit`, `finished`,
`failed`, and in live mode `out`, `pong`, `stalled`, `unfit`; a worker's supervisor: `crashed`, answered with
`again`.
"""

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

SOCKET_VARIABLE = "EVERSTEP_AGENT"  # where a worker finds its agent's socket

Message = Mapping[str, Any]


class Line:
    """One end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Send one message whole; OSError where the other end is gone."""
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            self._connection.sendall(data)

    def receive(self) -> dict[str, Any] | None:
        """The next message, or None when the other end is gone."""
        try:
            line = self._reader.readline()
        except (OSError, ValueError):  # ValueError: another thread has closed this end
            return None
        return json.loads(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError, RuntimeError):  # another thread may be reading still
            self._reader.close()
        self._connection.close()


def connect(path: str) -> Line:
    """A worker's end."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return Line(connection)


class Exchange:
    """The agent's end: listens, keeps the workers that said hello, and passes their messages on.

    Args:
        path: of the socket; made readable by this user alone.
        on_message: called with a worker's process id and its message; what it returns is sent back.
        on_gone: called with the process id of a worker whose line broke, in the moment that it did.
    """

    def __init__(
        self,
        path: Path,
        on_message: Callable[[int, Message], Message | None],
        on_gone: Callable[[int], None] | None = None,
    ) -> None:
        self._path, self._on_message, self._on_gone = path, on_message, on_gone
        self._lines: dict[int, Line] = {}
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def start(self) -> None:
        """Begin to listen."""
        self._path.unlink(missing_ok=True)
        self._socket.bind(str(self._path))
        self._path.chmod(0o600)
        self._socket.listen(64)
        threading.Thread(target=self._accept, name="everstep-workers", daemon=True).start()

    def workers(self) -> list[int]:
        """Process ids of the workers whose lines are open."""
        with self._lock:
            return list(self._lines)

    def broadcast(self, message: Message) -> None:
        """Send to every worker; one that is gone is forgotten."""
        with self._lock:
            lines = list(self._lines.values())
        for line in lines:
            with contextlib.suppress(OSError):
                line.send(message)

    def send(self, pid: int, message: Message) -> None:
        """Send to one worker; nothing where it is gone."""
        with self._lock:
            line = self._lines.get(pid)
        if line:
            with contextlib.suppress(OSError):
                line.send(message)

    def close(self) -> None:
        """Stop listening; open lines break, and with them their workers end."""
        self._socket.close()
        with self._lock:
            for line in self._lines.values():
                line.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(Line(connection),), daemon=True).start()

    def _serve(self, line: Line) -> None:
        hello = line.receive()
        if not hello or "hello" not in hello:
            line.close()
            return
        pid = int(hello["hello"])
        with self._lock:
            self._lines[pid] = line
        try:
            message: dict[str, Any] | None = hello
            while message is not None:
                answer = self._on_message(pid, message)
                if answer is not None:
                    line.send(answer)
                message = line.receive()
        except OSError as error:
            log.debug("worker %d's line broke: %s", pid, error)
        finally:
            with self._lock:
                self._lines.pop(pid, None)
            line.close()
            if self._on_gone:
                self._on_gone(pid)


def default_socket_path() -> Path:
    """A path for this process's socket; short, since Unix sockets allow about 100 bytes."""
    folder = Path(os.environ.get("TMPDIR", "/tmp"))  # noqa: S108 - the socket itself is private, mode 0600
    return folder / f"everstep-agent-{os.getpid()}.sock"
