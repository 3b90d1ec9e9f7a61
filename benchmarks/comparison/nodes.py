"""Nodes of a compared system: sessions of processes on this machine that faults can be injected into."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from cloudtwin.images.confine import KILLED_WITH_PARENT

from tests.processes import processes_of, signal_all

PROJECT = Path(__file__).parents[2]


class Node:
    """One simulated node: a command and all processes that it starts.

    Args:
        name: name of the node, such as n0.
        folder: folder of journals and logs.
        command: command of the node's launcher.
        environment: variables to add to a minimal environment.
    """

    def __init__(
        self, name: str, folder: Path, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.name, self._folder, self._command = name, folder, list(command)
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path[1:]]),
            "OMP_NUM_THREADS": "1",
            "RUST_LOG": "error",  # read by torchft
            "COMPARISON_FOLDER": str(folder),
            "COMPARISON_NODE": name,
            **environment,
        }
        self._launcher: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the launcher, after the end of an earlier launcher, which must have received SIGTERM."""
        if self._launcher:
            self._launcher.wait(30)
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._launcher = subprocess.Popen(
                [*KILLED_WITH_PARENT, *self._command],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_worker(self) -> None:
        """Kill only the training process."""
        pid = (self._folder / f"{self.name}.pid").read_text(encoding="ascii")
        os.kill(int(pid), signal.SIGKILL)

    def drain(self) -> None:
        """Send SIGTERM to the launcher, as a kubelet does."""
        if self._launcher:
            self._launcher.terminate()

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to every process, including processes that start during the call."""
        if self._launcher:
            signal_all(partial(processes_of, self._launcher.pid), number)

    def close(self) -> None:
        """Kill all processes and wait for the launcher's end."""
        if self._launcher:
            self.signal_all(signal.SIGSTOP)  # a stopped process cannot start another
            self.signal_all(signal.SIGKILL)
            self._launcher.wait()
