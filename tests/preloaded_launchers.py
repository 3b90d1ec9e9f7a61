"""Launchers that start as forks of one process that has imported what a launcher imports, mostly torch.

A new interpreter spends almost five CPU seconds on these imports. A fork differs from it in three ways:
* Its variables have no effect on the interpreter and on imports. Tests that change the import path to other sources
  or set variables such as LD_LIBRARY_PATH therefore start a real interpreter.
* /proc/PID/cmdline and /proc/PID/environ are the server's.
* All launchers of a session of tests have one memory layout and one seed of hashes, so they iterate over sets in one
  order.
"""

import atexit
import contextlib
import ctypes
import functools
import importlib
import itertools
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from everstep.elastic.launch import launcher

REPOSITORY = Path(__file__).parents[1]
SERVER = "from tests.preloaded_launchers import serve; serve()"
MODULES = (
    "torch",
    *launcher.PRELOADED_MODULES,
    *("torchvision", "trainer.classifier"),  # trainer.launch preloads them
    *("torch.distributed.run", "everstep.elastic.launch.rendezvous"),  # the launcher's agent
    "everstep.elastic.membership.torchrun",
)
PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True)
class Command:
    """A launcher to start.

    Attributes:
        module: the module that runs as `__main__`.
        arguments: its command line.
        environment: all its environment variables.
        folder: its working folder.
        log: file to append its output to.
    """

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path


class PreloadedLauncher:
    """A running launcher, with the methods and return codes of `subprocess.Popen`.

    It has a session of its own, and it is killed when the process of the tests ends.
    """

    def __init__(self, command: Command) -> None:
        self.pid: int = _server().ask(command)
        self.returncode: int | None = None
        self._handle = os.pidfd_open(self.pid)  # a zombie has one, too; it stays until `poll`

    def poll(self) -> int | None:
        """Return the exit code, a negative number for a signal; None if the launcher is running."""
        return self._return_code(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the launcher and return its exit code."""
        if (code := self._return_code(timeout)) is None:
            raise subprocess.TimeoutExpired(f"launcher {self.pid}", timeout or 0)
        return code

    def _return_code(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            if poll.poll(None if seconds is None else seconds * 1000):
                self.returncode = _server().ask(self.pid)
                os.close(self._handle)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the launcher, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """Kill the launcher, but not its workers."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The process that launchers are forked from; it ends with this process."""

    def __init__(self) -> None:
        self._lock, self._numbers = threading.Lock(), itertools.count()
        self._connection, other_end = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            cwd=REPOSITORY,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(REPOSITORY),
                launcher.MALLOC_VARIABLE: launcher.HUGE_PAGES,  # else launchers would start again to set it
            },
            stdin=other_end.fileno(),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        other_end.close()
        atexit.register(self._end)

    def ask(self, request: Command | int) -> int:
        """Return the process ID of a new launcher, or the exit code of an ended launcher, given its process ID."""
        with self._lock:
            number = next(self._numbers)
            self._connection.send((number, request))
            while True:
                answered, answer = self._connection.recv()
                if answered == number:  # a test that was interrupted has left its answer
                    return int(answer)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    return _Server()


def serve() -> None:
    """Import what launchers import, then fork for each command that arrives on standard input.

    In a fork, this function returns or raises as the launcher does, so that the interpreter ends as usual.
    """
    initial_environment = dict(os.environ)
    launcher.set_variables("")  # imported libraries read some of them
    for module in MODULES:
        importlib.import_module(module)
    threads = [*Path("/proc/self/task").iterdir()]
    assert len(threads) == 1, "a lock that another thread holds would never be released in a fork"
    server, connection = os.getpid(), Connection(sys.stdin.fileno())
    tests = os.pidfd_open(os.getppid())
    while tests not in wait([connection, tests]):
        number, request = connection.recv()
        if isinstance(request, int):
            connection.send((number, os.waitstatus_to_exitcode(os.waitpid(request, 0)[1])))
        elif os.fork() == 0:
            os.close(tests)
            try:
                _leave_server(request, server)
            finally:
                connection.send((number, os.getpid()))
                connection.close()
            _run(request, initial_environment)
            return


def _leave_server(command: Command, server: int) -> None:
    """Give this fork a session and a log of its own; it ends with the server."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    os.setsid()
    os.chdir(command.folder)
    log = os.open(command.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    os.close(log)


def _run(command: Command, environment: Mapping[str, str]) -> None:
    """Turn this fork into what a new interpreter would be, and run the launcher.

    Args:
        command: the launcher.
        environment: the server's variables when it began.
    """
    import numpy  # with the variables of `serve`, it has no threads

    numpy.random.seed()
    os.open(os.devnull, os.O_RDONLY)  # it becomes standard input
    os.environ.clear()
    # The interpreter sets LC_CTYPE, and a launcher starts itself again to set the variable of malloc.
    os.environ.update({**environment, **command.environment})
    tempfile.tempdir = None  # an import has asked for it
    import_path = command.environment["PYTHONPATH"].split(os.pathsep)
    sys.path[:2] = [str(command.folder), *import_path]  # in place of "" and the repository
    sys.orig_argv = [sys.executable, "-m", command.module, *command.arguments]
    sys.argv = sys.orig_argv[2:]
    runpy.run_module(command.module, run_name="__main__", alter_sys=True)
