"""Launchers that run as processes on this machine, each as a separate node."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from cloudtwin.images.confine import KILLED_WITH_PARENT
from cloudtwin.toolchain import ensure_tools

from everstep.progress import Silent
from tests.preloaded_launchers import Command, PreloadedLauncher
from tests.processes import all_processes, processes_in_session, signal_all, start_ticks
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[4]
WAIT_SECONDS = 300  # time for a launcher to start and end on a loaded machine
LAUNCHER = (sys.executable, "-m", "everstep.elastic.launch")
Result = TypeVar("Result")


class LauncherProcess:
    """A launcher that runs as a process, with its log in a folder; it does not outlive the tests.

    Args:
        folder: working folder, which several launchers may share.
        arguments: command line of the launcher.
        name: name of the node.
        program: the launcher's command, such as `LAUNCHER`; empty: a preloaded launcher.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        name: str = "node",
        program: Sequence[str] = (),
    ) -> None:
        self._log = folder / f"{name}.log"
        self.etcd_folder = folder / f"{name}.tmp"
        self.etcd_folder.mkdir(exist_ok=True)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH") or str(REPOSITORY),
            "TMPDIR": str(self.etcd_folder),
            "POD_NAME": name,
            "OMP_NUM_THREADS": "1",
            "EVERSTEP_ETCD": str(ensure_tools(["etcd"], Silent())["etcd"]),
        }
        self.process: subprocess.Popen[bytes] | PreloadedLauncher
        if not program:
            module = LAUNCHER[-1]
            self.process = PreloadedLauncher(
                Command(module, arguments, environment, folder, self._log)
            )
            return
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*KILLED_WITH_PARENT, *program, *arguments],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """Output of the launcher and its workers."""
        return self._log.read_text(errors="replace")  # the log may end in the middle of a character

    def wait(self) -> int:
        """Wait for the end of the launcher; return the exit code."""
        return self.process.wait(WAIT_SECONDS)

    def wait_for(self, text: str) -> None:
        """Wait until a text is in the log."""
        self.wait_until(lambda: text in self.log, f"{text!r} is in the log")

    def wait_until(self, condition: Callable[[], Result | None], description: str) -> Result:
        """Wait until a condition holds while the launcher runs; return its value."""

        def check() -> Result | None:
            if not (result := condition()):
                assert self.process.poll() is None, (
                    f"{description}: the launcher has ended\n{self.log}"
                )
            return result

        return wait_until(
            check, description, WAIT_SECONDS, details=lambda: self.log, interval_seconds=0.05
        )

    def kill_worker(self) -> None:
        """Kill the youngest process of this node, which is a worker."""
        os.kill(max(processes_in_session(self.process.pid), key=start_ticks), signal.SIGKILL)

    def kill(self) -> None:
        """Kill the launcher and all its workers, as the loss of a machine does."""
        signal_all(partial(processes_in_session, self.process.pid), signal.SIGKILL)
        self.process.wait()

    def etcd_processes(self) -> list[int]:
        """Return the process IDs of this launcher's etcd and its supervisor, whose command lines contain its folder."""
        return [
            process
            for process in all_processes()
            if str(self.etcd_folder) in _read_proc_file(process, "cmdline")
        ]

    def wait_until_etcd_is_removed(self) -> None:
        """Wait until etcd has ended and its folder is removed."""
        wait_until(
            lambda: not self.etcd_processes() and not any(self.etcd_folder.glob("everstep-etcd-*")),
            "etcd and its folder are removed",
            WAIT_SECONDS,
            details=self.etcd_processes,
            interval_seconds=0.05,
        )


def _read_proc_file(process: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/{name}").read_text()
    return ""


@contextlib.contextmanager
def run_launcher(
    folder: Path, *arguments: str, name: str = "node", program: Sequence[str] = ()
) -> Iterator[LauncherProcess]:
    """Yield a running launcher; kill it at the end."""
    launcher = LauncherProcess(folder, *arguments, name=name, program=program)
    try:
        yield launcher
    finally:
        launcher.kill()
