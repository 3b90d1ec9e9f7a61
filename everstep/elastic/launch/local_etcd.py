"""An etcd for one launcher, on 127.0.0.1 with its data in a temporary folder.

`etcd_supervisor` runs it: a separate process that ends etcd and removes the folder when this process has
ended, even by SIGKILL.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from everstep.elastic.launch import etcd_supervisor
from everstep.errors import EverstepError

PROGRAM_VARIABLE = "EVERSTEP_ETCD"  # path of the program; unset: `etcd` on PATH
HOST = "127.0.0.1"
START_SECONDS = 30.0  # timeout of one attempt, on a loaded machine
ATTEMPTS = 3  # another process may take a port between the choice and the start
POLL_SECONDS = 0.02
END_SECONDS = 10.0  # time for the supervisor to end before it is killed
LOG_LINES = 5  # log lines shown when etcd does not start

INSTALL = f"""\
Install it (Debian, Ubuntu: apt install etcd-server; others:
https://github.com/etcd-io/etcd/releases), set {PROGRAM_VARIABLE} to its path,
or use a running etcd: --rendezvous-endpoint HOST:PORT."""


class LocalEtcd:
    """Context manager of a single-member etcd that ends with this process; it returns the endpoint."""

    def __enter__(self) -> str:
        """Start etcd and wait until it accepts connections.

        Raises:
            EverstepError: there is no etcd program on this machine, or it does not start.
        """
        program = find_etcd()
        for _ in range(ATTEMPTS):
            self._folder = Path(tempfile.mkdtemp(prefix="everstep-etcd-"))
            client_port, peer_port = _free_ports(2)
            options = etcd_supervisor.etcd_options(self._folder, HOST, client_port, peer_port)
            command = [program, *options]
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", etcd_supervisor.__file__, self._folder, *command],
                stdin=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in a terminal must not end etcd before the workers
            )
            if self._wait_until_responsive(client_port):
                return f"{HOST}:{client_port}"
            log = self._last_lines()
            self._end()
        raise EverstepError(f"{program} does not start: {log}", INSTALL)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop etcd and remove its folder."""
        self._end()

    def _wait_until_responsive(self, port: int) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._supervisor.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _last_lines(self) -> str:
        with contextlib.suppress(OSError):
            text = (self._folder / etcd_supervisor.LOG).read_text(errors="replace")
            if lines := text.splitlines():
                return "\n".join(["its last lines:", *lines[-LOG_LINES:]])
        return "it printed nothing"

    def _end(self) -> None:
        assert self._supervisor.stdin is not None  # noqa: S101 - opened as a pipe
        self._supervisor.stdin.close()
        try:
            self._supervisor.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()  # etcd dies with it
            self._supervisor.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def find_etcd() -> str:
    """Return the path of the etcd program.

    Raises:
        EverstepError: there is no such program.
    """
    configured = os.environ.get(PROGRAM_VARIABLE)
    if configured and not shutil.which(configured):
        raise EverstepError(f"{PROGRAM_VARIABLE} is {configured}, which is not a program", INSTALL)
    if program := configured or shutil.which("etcd"):
        return program
    raise EverstepError(
        "there is no etcd on PATH to start, and no --rendezvous-endpoint is given", INSTALL
    )


def _free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
