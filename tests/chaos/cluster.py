"""A local cluster that a nemesis can act on: real launchers and workers, a real etcd, and a separate network."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtwin.images.confine import KILLED_WITH_PARENT

from tests.chaos import slow_sync
from tests.chaos.control_group import ControlGroup
from tests.chaos.etcd_members import EtcdMembers, log_tail
from tests.chaos.network import Network
from tests.chaos.recorder import Recorder
from tests.processes import start_ticks

REPOSITORY = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("program.py")
RUN = "chaos"
DISK_MEGABYTES = 160
GRACE_SECONDS = 10  # seconds after SIGTERM within which a node must leave
LEAVE_SECONDS = 60.0
FOREVER_MILLISECONDS = 10**9
CLOCK_FILE = "clock-hours"

SHIFTED_CLOCK = f"""\
import os, pathlib, time
_real_time, _file = time.time, pathlib.Path(os.environ["TMPDIR"]) / {CLOCK_FILE!r}
def _shifted_time():
    try:
        return _real_time() + 3600 * float(_file.read_text() or 0)
    except (OSError, ValueError):
        return _real_time()
time.time = _shifted_time
"""
"""Shifts `time.time` in a node's Python processes by the hours in a file, which may change at any moment."""


@dataclass
class NodeJournal:
    """An incremental reader of a node's journal file.

    Attributes:
        offset: number of bytes read.
        generation: generation that the node entered last.
        world_size: world size of that generation.
        applied_steps: number of steps that the node has applied since the beginning.
    """

    offset: int = 0
    generation: int = 0
    world_size: int = 0
    applied_steps: int = 0

    def read(self, path: Path) -> None:
        """Read the new lines."""
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(self.offset)
            complete_lines, newline, _ = file.read().rpartition(b"\n")
            self.offset += len(complete_lines) + len(newline)
            for line in complete_lines.splitlines():
                with contextlib.suppress(ValueError):
                    self._record(json.loads(line))

    def _record(self, entry: dict[str, Any]) -> None:
        if entry.get("kind") == "generation":
            self.generation = int(entry["generation"])
            self.world_size = int(entry["world_size"])
        elif entry.get("kind") == "applied":
            self.applied_steps += 1


class Cluster:
    """Nodes and etcd of one run.

    Args:
        folder: folder for everything that the run writes.
        nodes: names of the nodes, one worker each.
        etcd: names of etcd's members.
        options: options of the program.
    """

    def __init__(
        self, folder: Path, nodes: Sequence[str], etcd: Sequence[str], options: Sequence[str] = ()
    ) -> None:
        self.folder, self.nodes, self.run = folder, tuple(nodes), folder / "run"
        self._options = tuple(options)
        self._stack = contextlib.ExitStack()
        self._launchers: dict[str, subprocess.Popen[bytes]] = {}
        self._journals = {name: NodeJournal() for name in nodes}
        try:
            self._build(etcd)
        except BaseException:
            self.close()
            raise

    def _build(self, etcd: Sequence[str]) -> None:
        (self.folder / "clock").mkdir(parents=True)
        (self.folder / "clock" / "sitecustomize.py").write_text(SHIFTED_CLOCK)
        addresses = {name: f"10.77.0.{10 + index}" for index, name in enumerate(etcd)}
        addresses |= {name: f"10.77.0.{20 + index}" for index, name in enumerate(self.nodes)}
        self._mount_disk()
        self.network = Network(addresses)
        self._stack.callback(self.network.close)
        self.groups = {}
        for name in self.nodes:
            self.groups[name] = ControlGroup(f"everstep-chaos-{os.getpid()}-{name}")
            self._stack.callback(self.groups[name].close)
        self.etcd = EtcdMembers(self.network, etcd, self.folder)
        self._stack.callback(self.etcd.close)
        for name in etcd:
            self.etcd.start(name)
        self.etcd.wait_until_ready()
        self.recorder = Recorder(self.network, self.etcd, RUN, self.folder / "etcd.jsonl")
        self._stack.callback(self.recorder.close)

    def _mount_disk(self) -> None:
        """Mount a disk of a limited size at the folder of the checkpoints."""
        self.disk = self.run / "checkpoints"
        self.disk.mkdir(parents=True)
        size = f"size={DISK_MEGABYTES}m"
        command = ["mount", "-t", "tmpfs", "-o", size, "everstep-chaos", str(self.disk)]
        subprocess.run(command, check=True)
        self._stack.callback(subprocess.run, ["umount", "--lazy", str(self.disk)], check=True)

    # --- nodes ---

    def start(self, name: str) -> None:
        """Start a node's launcher; call this on the main thread: a program dies with the thread that started it."""
        temporary = self.folder / f"{name}.tmp"
        temporary.mkdir(exist_ok=True)
        arguments = ["--nnodes", f"1:{len(self.nodes)}", "--run-id", RUN]
        arguments += ["--rendezvous-endpoint", self.etcd.endpoints]
        arguments += [str(PROGRAM), str(self.run), *self._options]
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{self.folder / 'clock'}:{REPOSITORY}",
            "TMPDIR": str(temporary),
            "POD_NAME": name,
            "POD_IP": self.network.addresses[name],
            "NODE_NAME": name,
            "OMP_NUM_THREADS": "1",
            "EVERSTEP_GRACE_SECONDS": str(GRACE_SECONDS),
        }
        enter = (*self.groups[name].enter_command, *self.network.machines[name].enter_command)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._launchers[name] = subprocess.Popen(
                [
                    *KILLED_WITH_PARENT,
                    *enter,
                    *slow_sync.command(self._delay_file(name)),
                    sys.executable,
                    "-m",
                    "everstep.elastic.launch",
                    *arguments,
                ],
                cwd=self.folder,
                env=variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def is_running(self, name: str) -> bool:
        """Return whether a node's launcher is running."""
        return name in self._launchers and self._launchers[name].poll() is None

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a node's launcher; None if it is running or was never started."""
        return self._launchers[name].poll() if name in self._launchers else None

    def kill_agent(self, name: str) -> None:
        """Kill a node's agent; its workers notice it."""
        self._launchers[name].kill()
        self._launchers[name].wait()

    def kill_node(self, name: str) -> None:
        """Kill all processes of a node."""
        self.groups[name].kill()
        if name in self._launchers:
            self._launchers[name].wait()

    def drain(self, name: str) -> None:
        """Send SIGTERM to a node's agent, as a kubelet does."""
        with contextlib.suppress(ProcessLookupError):
            self._launchers[name].send_signal(signal.SIGTERM)

    def wait_for_exit(self, name: str) -> int:
        """Return the exit code of a drained node, -1 if it does not end in time; kill its remaining processes."""
        try:
            code = self._launchers[name].wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            code = -1
        self.kill_node(name)
        return code

    def worker(self, name: str) -> int | None:
        """Return the process ID of a node's worker, which is its newest process; None if there is none."""
        processes = self.groups[name].processes()
        return max(processes, key=start_ticks) if processes else None

    def signal_worker(self, name: str, number: signal.Signals) -> int | None:
        """Send a signal to a node's worker; return its process ID, None if there is none."""
        process = self.worker(name)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        return process

    # --- progress ---

    def applied_steps(self) -> dict[str, int]:
        """Return how many steps each node has applied; -1 if its newest group does not contain all nodes."""
        for name, journal in self._journals.items():
            journal.read(self.run / "journal" / f"{name}.jsonl")
        group_size = len(self.nodes)
        return {
            n: j.applied_steps if j.world_size == group_size else -1
            for n, j in self._journals.items()
        }

    def generation(self) -> int:
        """Return the newest generation that a node has entered, as of the last `applied_steps`."""
        return max(journal.generation for journal in self._journals.values())

    def logs(self) -> str:
        """Return the end of each log."""
        paths = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{log_tail(path)}" for path in paths)

    # --- disks and clocks ---

    def hang_disk(self, name: str, *, hangs: bool) -> None:
        """Block all syncs of a node's files, or unblock them."""
        self._delay_file(name).write_text(str(FOREVER_MILLISECONDS if hangs else 0))

    def _delay_file(self, name: str) -> Path:
        return self.folder / f"{name}.delay"

    def shift_clock(self, name: str, hours: int) -> None:
        """Set the wall clock of a node's Python processes this number of hours ahead."""
        (self.folder / f"{name}.tmp" / CLOCK_FILE).write_text(str(hours))

    def close_processes(self) -> None:
        """Stop all nodes; their files stay until `close`."""
        for name in self._launchers:
            self.groups[name].thaw()
            self.kill_node(name)

    def close(self) -> None:
        """Stop everything."""
        self.close_processes()
        self._stack.close()


def sleep_until(deadline: float) -> None:
    """Sleep until `deadline`, in seconds of the monotonic clock."""
    time.sleep(max(0.0, deadline - time.monotonic()))
