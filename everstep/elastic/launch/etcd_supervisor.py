"""Supervisor of an etcd that runs as long as its launcher: `python3 etcd_supervisor.py FOLDER ETCD [OPTION ...]`.

Its standard input is a pipe whose other end only the launcher has open. When the launcher ends, even by
SIGKILL, the kernel closes that end; then this process kills etcd and removes the folder. If this
process is killed, the kernel kills etcd. If etcd ends first, this process restarts it, unless it has never run for some
seconds: then its options or its folder are wrong.

Standard library only: it runs without site packages, to start in a few milliseconds.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

LOG = "etcd.log"  # file name in the data folder
MIN_RUN_SECONDS = 5.0  # an etcd whose first run ends sooner is not restarted
PAUSE_SECONDS = 0.2  # pause before a restart
MAX_PAUSE_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1  # prctl(2); also in membership/supervisor.py, which this file cannot import


def etcd_options(folder: Path, host: str, client_port: int, peer_port: int) -> list[str]:
    """Return the options of a single-member etcd with its data in this folder."""
    client_url, peer_url = f"http://{host}:{client_port}", f"http://{host}:{peer_port}"
    return [
        f"--data-dir={folder / 'data'}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
    ]


class EtcdSupervisor:
    """Supervisor of one etcd, which ends with the launcher.

    Args:
        folder: folder of etcd's data and log, removed at the end.
        command: etcd and its options.
    """

    def __init__(self, folder: Path, command: list[str]) -> None:
        self._folder, self._command = folder, command
        self._etcd: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # held while etcd starts, and after the launcher's end

    def run(self) -> int:
        """Run etcd and restart it after a crash; return its exit code if its first run ends too soon."""
        has_run, pause = False, PAUSE_SECONDS
        threading.Thread(target=self._end_after_launcher, daemon=True).start()
        while True:
            started_at = time.monotonic()
            code = self._start().wait()
            # After the launcher's end, the other thread keeps the lock and ends this process.
            with self._lock:
                pass
            if time.monotonic() - started_at >= MIN_RUN_SECONDS:
                has_run, pause = True, PAUSE_SECONDS
            elif not has_run:
                return code or 1
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _start(self) -> subprocess.Popen[bytes]:
        supervisor_pid = os.getpid()
        with self._lock, (self._folder / LOG).open("ab") as log:
            self._etcd = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: _end_with(supervisor_pid),  # noqa: PLW1509  the other thread holds no lock
            )
        return self._etcd

    def _end_after_launcher(self) -> None:
        """Wait until the launcher has ended, then end etcd and this process."""
        while os.read(0, 1):
            pass
        self._lock.acquire()
        if self._etcd:
            self._etcd.kill()
            self._etcd.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(0)


def _end_with(supervisor_pid: int) -> None:
    """Make the kernel kill this process when the supervisor ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        os._exit(1)


if __name__ == "__main__":
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)  # the launcher decides when etcd ends
    sys.exit(EtcdSupervisor(Path(sys.argv[1]), sys.argv[2:]).run())
