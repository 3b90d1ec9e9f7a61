"""A program process that is started before its run, so that its imports overlap the engine's start.

The SDK of a cloud takes more than a second to import, and the engine needs about as long until it asks the
language host to run the program. A command that knows the program's modules calls `prestarted_program`,
which starts the process and lets it import them. The language host, a process of the engine, reaches it
through a Unix socket (`connect`) and passes it the run. If the process cannot accept the run, the host
starts the program as usual.

A process runs one program, once: each run has its own module cache and event loop, as with the official host.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SOCKET_VARIABLE = "CLOUDTWIN_PROGRAM_SOCKET"
STANDARD_OUTPUT_AND_ERROR = (1, 2)
MAX_PATH_BYTES = 107  # unix(7): a socket's path has 108 bytes, including the terminating null
ACCEPTED = b"+"
"""Response of a process that accepts a run."""


@contextmanager
def prestarted_program(directory: Path, modules: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """Start a program's process, and end it on exit; yield the variables by which the host finds it.

    There are no variables if the path of the temporary folder is too long for a socket; the run then starts as
    usual.

    Args:
        directory: folder of the program.
        modules: modules to import before the run. They must not depend on the run's configuration or working
            directory. If one cannot be imported, the run starts as usual and reports the error.
    """
    with tempfile.TemporaryDirectory(prefix="cloudtwin-") as folder:  # private to the user
        path = Path(folder) / "run"
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            yield {}
            return
        alive, kept_open = os.pipe()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(1)
            process = _start(listener.fileno(), alive, directory, modules)
        os.close(alive)
        try:
            yield {SOCKET_VARIABLE: str(path)}
        finally:
            os.close(kept_open)
            process.kill()
            process.wait()


def _start(
    listener: int, alive: int, directory: Path, modules: Sequence[str]
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [
            *(sys.executable, "-u", "-P", "-m", "cloudtwin.pulumi.waiting_program"),
            *(str(listener), str(alive), str(directory), *modules),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(listener, alive),
        start_new_session=True,  # the engine, not the terminal, interrupts the program
    )


class PrestartedProgram:
    """A prestarted process that has accepted its run, with the interface of a `Popen` that the host uses."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def wait(self) -> int | None:
        """Return the exit code when the program ends; None if it ended without reporting one."""
        with self._connection, self._connection.makefile() as lines:
            try:
                code = lines.readline().strip()
            except OSError:
                return None
        return int(code) if code else None

    def terminate(self) -> None:
        """End the process: it exits when its connection is closed."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended


def connect(
    python: str, arguments: Sequence[str], directory: str, environment: Mapping[str, str]
) -> PrestartedProgram | None:
    """Pass a run to the prestarted process; return None if there is none that can accept it.

    Args:
        python: interpreter of the program. A process of another interpreter refuses the run.
        arguments: path of the program, and its arguments.
        directory: working directory of the run.
        environment: all environment variables of the run.
    """
    path = os.environ.get(SOCKET_VARIABLE)
    if not path:
        return None
    run = {
        "python": python,
        "arguments": list(arguments),
        "directory": directory,
        "environment": dict(environment),
    }
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        socket.send_fds(connection, [b"\n"], STANDARD_OUTPUT_AND_ERROR)
        connection.sendall(json.dumps(run).encode() + b"\n")
        accepted = connection.recv(len(ACCEPTED)) == ACCEPTED
    except OSError:
        accepted = False
    if not accepted:
        connection.close()
        return None
    return PrestartedProgram(connection)
