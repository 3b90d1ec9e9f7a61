"""Many real agents in one process, for `benchmarks.scale`.

The agents, their threads and their etcd client are real. Only the workers are simulated: they
take a step as soon as their generation begins, and are ready again as soon as they are stopped.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from everstep.elastic.membership.agent import Agent
from everstep.elastic.membership.etcd_client import Etcd
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.generations import GroupLimits
from everstep.elastic.membership.own_key import AgentIdentity
from everstep.errors import EverstepError

STACK_BYTES = 512 * 1024  # stack of a thread; each agent has about seven
STALL_INTERVAL_SECONDS = 0.1  # interval between two reports of workers that wait
AGENT_THREADS = frozenset(
    f"everstep-{name}" for name in ("decide", "lease", "probes", "suspects", "watch")
)
"""Names of the threads that live as long as their agent."""


@dataclass(frozen=True)
class NodeGeneration:
    """The newest generation of one agent's workers.

    Attributes:
        number: number of the generation.
        size: number of its members.
        at: time at which it began, in seconds of the monotonic clock.
    """

    number: int = 0
    size: int = 0
    at: float = 0.0


class SimulatedNode:
    """An agent with simulated workers."""

    def __init__(
        self, name: str, endpoint: str, run: str, limits: GroupLimits, lease_seconds: int
    ) -> None:
        self._threads: list[threading.Thread] = []
        self.generation = NodeGeneration()
        self.agent = Agent(
            Etcd(EtcdOptions(endpoints=(endpoint,))),
            run,
            AgentIdentity(name, "127.0.0.1"),
            limits,
            open_store=lambda: "127.0.0.1:1",
            on_stop=self._leave_group,
            on_regroup=self._leave_group,
            on_ended=lambda _: None,
            ttl_seconds=lease_seconds,
            heartbeats=False,  # dozens of agents share one interpreter: heartbeats would be late
        )

    def start(self) -> None:
        """Start the agent and its workers.

        All nodes of a process must be started by one thread: new threads are attributed to the agent being started.
        """
        earlier = set(threading.enumerate())
        self.agent.start()
        started = set(threading.enumerate()) - earlier
        self._threads = [thread for thread in started if thread.name in AGENT_THREADS]
        threading.Thread(target=self._follow, daemon=True).start()
        self.agent.report_ready()

    def cpu_seconds(self) -> float:
        """Return the CPU time of the agent's threads so far."""
        return sum(
            time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            for thread in self._threads
            if thread.ident and thread.is_alive()
        )

    def vanish(self) -> None:
        """Stop all threads without notice: only the end of the lease shows the loss."""
        self.agent._stop_threads()

    def _leave_group(self, reason: str) -> None:
        del reason
        self.agent.report_ready()

    def _follow(self) -> None:
        try:
            while True:
                group = self.agent.next_assignment().generation
                self.generation = NodeGeneration(group.number, len(group.members), time.monotonic())
                self.agent.report_progress(group.number)
        except EverstepError:  # the agent failed or left
            return


class AgentHost:
    """The agents of one process."""

    def __init__(self, endpoint: str, run: str, limits: GroupLimits, lease_seconds: int) -> None:
        self._arguments = endpoint, run, limits, lease_seconds
        self._nodes: dict[str, SimulatedNode] = {}
        self._stalled = threading.Event()
        threading.Thread(target=self._report_stalls, daemon=True).start()

    def start(self, names: list[str]) -> None:
        """Start agents."""
        for name in names:
            self._nodes[name] = SimulatedNode(name, *self._arguments)
            self._nodes[name].start()

    def close(self, name: str) -> None:
        """Deregister a node immediately: its key is removed."""
        self._nodes.pop(name).agent.close()

    def vanish(self, name: str) -> None:
        """Stop a node without notice."""
        self._nodes.pop(name).vanish()

    def stall(self, stalled: bool) -> None:  # noqa: FBT001 - the value of a command
        """Make all workers wait for a straggler, or stop waiting."""
        if stalled:
            self._stalled.set()
        else:
            self._stalled.clear()

    def generations(self) -> list[NodeGeneration]:
        """Return the newest generation of each node."""
        return [node.generation for node in self._nodes.values()]

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time of each node's agent so far."""
        return {name: node.cpu_seconds() for name, node in self._nodes.items()}

    def _report_stalls(self) -> None:
        while self._stalled.wait():
            for node in list(self._nodes.values()):
                node.agent.report_stall()
            time.sleep(STALL_INTERVAL_SECONDS)


def serve(
    commands: Connection, endpoint: str, run: str, limits: GroupLimits, lease_seconds: int
) -> None:
    """Execute the commands of the parent process until it closes the connection."""
    threading.stack_size(STACK_BYTES)
    host = AgentHost(endpoint, run, limits, lease_seconds)
    actions: dict[str, Callable[..., Any]] = {
        "start": host.start,
        "close": host.close,
        "vanish": host.vanish,
        "stall": host.stall,
        "generations": host.generations,
        "cpu_seconds": host.cpu_seconds,
    }
    while True:
        try:
            name, *arguments = commands.recv()
        except EOFError:
            return
        commands.send(actions[name](*arguments))
