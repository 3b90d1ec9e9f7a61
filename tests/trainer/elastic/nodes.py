"""Nodes without Kubernetes: agents as local processes on loopback addresses, with a real etcd."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cloudtwin.images.confine import KILLED_WITH_PARENT
from cloudtwin.toolchain import ensure_tools

from everstep.elastic.membership.etcd_client import Etcd
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.progress import Silent
from tests.journals import JournalReader
from tests.preloaded_launchers import Command, PreloadedLauncher
from tests.processes import free_port, processes_in_session, signal_all, start_ticks
from tests.trainer.data.fashion_mnist import write_source
from tests.waiting import wait_until
from trainer.prepare import prepare_fashion_mnist

REPOSITORY = Path(__file__).parents[3]
NAMES = ("w0", "w1", "w2")
LAUNCHER = "trainer.launch"
WAIT_SECONDS = 240.0
"""Time limit for an event on a machine that is slow and busy; typically a few seconds."""

LOG_CHARACTERS = 20_000
JournalEntry = Mapping[str, Any]
Result = TypeVar("Result")


@contextlib.contextmanager
def running_etcd(folder: Path) -> Iterator[str]:
    """Run an etcd with one member and yield its endpoint."""
    with etcd_process(folder) as (endpoint, _):
        yield endpoint


@contextlib.contextmanager
def etcd_process(
    folder: Path, *flags: str, scheme: str = "http"
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run an etcd with one member and yield its endpoint and its process, which tests may stop.

    EVERSTEP_TEST_ETCD replaces the program that the toolchain builds.
    """
    client, peer = free_port(), free_port()
    log = (folder / "etcd.log").open("wb")
    # A program named by EVERSTEP_TEST_ETCD may be etcd 3.4, which lacks the last flag.
    process = subprocess.Popen(
        [
            *KILLED_WITH_PARENT,
            os.environ.get("EVERSTEP_TEST_ETCD") or ensure_tools(["etcd"], Silent())["etcd"],
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={scheme}://127.0.0.1:{client}",
            f"--advertise-client-urls={scheme}://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            *flags,
            *(["--unsafe-no-fsync"] if "EVERSTEP_TEST_ETCD" not in os.environ else []),
        ],
        stdout=log,
        stderr=log,
    )
    try:
        wait_until(lambda: _accepts_connections(client), "etcd responds", 100)
        yield f"127.0.0.1:{client}", process
    finally:
        process.kill()
        process.wait()
        log.close()


def _accepts_connections(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Nodes:
    """Machines that each run one agent of a job.

    Args:
        folder: folder of the runs and logs.
        etcd: endpoint of etcd.
        options: options of the trainer.
        job: name of the job.
        workers: number of workers per node.
        max_members: maximum number of nodes in a group.
        flags: additional options of the agent.
        bounds_file: file with the bounds of the number of nodes, such as `1:3`; None: fixed bounds.
        program: the program of the workers, as arguments of the agent.
        preloaded: whether agents without variables of their own are preloaded launchers, which start in less time.
    """

    def __init__(
        self,
        folder: Path,
        etcd: str,
        options: list[str],
        *,
        job: str = "job",
        workers: int = 1,
        max_members: int = 3,
        flags: tuple[str, ...] = (),
        bounds_file: Path | None = None,
        program: tuple[str, ...] = ("-m", "trainer.train"),
        preloaded: bool = False,
    ) -> None:
        self._program, self._preloaded = program, preloaded
        self._workers, self._max_members, self._bounds_file = workers, max_members, bounds_file
        self._flags = flags
        self.run, self._folder, self._etcd, self._options = (
            folder / "runs" / job,
            folder,
            etcd,
            options,
        )
        self._job = job
        self._journal = JournalReader(self.run / "journal")
        self._agents: dict[str, subprocess.Popen[bytes] | PreloadedLauncher] = {}

    def start(
        self,
        name: str,
        *options: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a node's agent, with additional options of the trainer."""
        number = int(name[1:])
        address = f"127.0.0.{2 + number}"
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "POD_NAME": name,
            "POD_IP": address,
            "NODE_NAME": f"node-{name}",
            "TMPDIR": str(self._folder),
            **({"EVERSTEP_NNODES_FILE": str(self._bounds_file)} if self._bounds_file else {}),
            **(environment or {}),
        }
        agent_options = [
            "--rdzv_backend=etcd",
            f"--rdzv_endpoint={self._etcd}",
            f"--rdzv_id={self._job}",
            f"--nnodes=1:{self._max_members}",
            *self._flags,
        ]
        per_node = [f"--nproc_per_node={self._workers}"]
        program = [*self._program, "--run", str(self.run), *self._options, *options]
        if name in self._agents:
            self._agents[name].wait(WAIT_SECONDS)  # reap the previous agent
        arguments = [*agent_options, *per_node, *program]
        log_file = self._folder / f"{name}.log"
        if self._preloaded and not environment:
            self._agents[name] = PreloadedLauncher(
                Command(LAUNCHER, arguments, variables, self._folder, log_file)
            )
            return
        with log_file.open("ab") as log:
            self._agents[name] = subprocess.Popen(
                [*KILLED_WITH_PARENT, sys.executable, "-m", LAUNCHER, *arguments],
                cwd=self._folder,
                env=variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def signal_agent(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the agent only, as a kubelet does."""
        self._agents[name].send_signal(number)

    def signal_all(self, name: str, number: signal.Signals) -> None:
        """Send a signal to every process of a node, including processes that start meanwhile."""
        signal_all(lambda: self.processes(name), number)

    def worker(self, name: str) -> int:
        """Return the process ID of a node's worker: its newest process."""
        return max(self.processes(name), key=start_ticks)

    def exit_code(self, name: str, seconds: float) -> int:
        """Return the exit code of a node's agent, which must end within `seconds`."""
        return self._agents[name].wait(seconds)

    def close(self) -> None:
        """Kill all processes of all nodes."""
        for name, agent in self._agents.items():
            self.signal_all(name, signal.SIGKILL)
            agent.wait()

    def members(self) -> int:
        """Return the number of registered agents, including spares."""
        with contextlib.closing(Etcd(EtcdOptions(endpoints=(self._etcd,)))) as etcd:
            return len(etcd.get(f"/everstep/{self._job}/members/")[0])

    def journal(self, kind: str) -> list[JournalEntry]:
        """Return the journal entries of a kind, ordered by time."""
        return [entry for entry in self._journal.read() if entry["kind"] == kind]

    def next_step(
        self, after: float, world_size: int, seconds: float = WAIT_SECONDS
    ) -> JournalEntry:
        """Return the first step that a group of this size completed after a time."""
        return self.next_step_where(
            lambda step: step["at"] > after and step["world_size"] == world_size,
            seconds,
            f"{world_size} workers take a step",
        )

    def next_step_where(
        self, matches: Callable[[JournalEntry], bool], seconds: float, description: str
    ) -> JournalEntry:
        """Return the first step that matches."""
        return wait_until(
            lambda: next((step for step in self.journal("step") if matches(step)), None),
            description,
            seconds,
            details=self.logs,
        )

    def last_step_before(self, step: JournalEntry) -> int:
        """Return the last step that earlier groups completed before the group of this step.

        Groups are compared by generation, because each worker records a step at its own time.
        """
        earlier = (s["step"] for s in self.journal("step") if s["generation"] < step["generation"])
        return max(earlier, default=0)

    def logs(self) -> str:
        """Return the end of each log, long enough for all lines that a test looks for."""
        parts = [
            f"--- {path.name}\n{path.read_text(errors='replace')[-LOG_CHARACTERS:]}"
            for path in sorted(self._folder.glob("w*.log"))
        ]
        return "\n".join(parts)

    def processes(self, name: str) -> set[int]:
        """Return the IDs of all processes of a node."""
        return processes_in_session(self._agents[name].pid)


def small_data(folder: Path, samples: int, test_samples: int = 24) -> Path:
    """Prepare a data set of random images, small enough for steps of a fraction of a second."""
    source = write_source(folder / "source", train=samples, test=test_samples)
    prepare_fashion_mnist(source, folder / "data")
    return folder / "data"
