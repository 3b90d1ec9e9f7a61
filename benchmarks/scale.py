"""Measure the cost of membership for etcd and the agents, by the number of members.

    python -m benchmarks.scale --members 10 100
    python -m benchmarks.scale --members 10 100 300 1000 --json

It runs a real etcd of one member and the real agents in a few processes; only the workers are simulated. For
each number of members, in this order:

    formation  all members start and form the first group
    warm-up    the time after that, before the load is steady
    idle       a group that trains and does not change
    regroup    a member removes its key; the others form the next group
    straggler  the workers of all members wait for one worker; figures of the first seconds, with frequent probes, have
               the prefix `burst_`
    arrivals   --arrivals nodes arrive at the same time
    loss       a member vanishes without notice; the others form the next group when its lease has ended

The CPU time of etcd and of the agents' processes is read from /proc, the CPU time of each agent from the clocks of its
threads, and the requests from etcd's own metrics.
All processes share this machine's cores, so the wall-clock time includes the work of all agents; in a real run,
each agent has its own node. `separate_seconds` estimates that: etcd's CPU time on one core plus the busiest
agent's, as if they never worked at the same time, and without network delays. In a large run the busiest agent is
a coordinator.

With --extrapolate-to, a power law in the number of members is fitted to the two largest measurements. All agents then
have the lease of a run of that many members, because renewals are most of an idle etcd's work.
"""

import argparse
import json
import math
import multiprocessing
import os
import re
import resource
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.progress import track
from benchmarks.scale_agents import NodeGeneration, serve
from everstep.elastic.membership.generations import GroupLimits
from everstep.elastic.membership.own_key import lease_seconds
from tests.processes import stat_fields
from tests.trainer.elastic.nodes import etcd_process

MIN_PROCESSES = 4  # processes that share the agents
MEMBERS_PER_PROCESS = 60  # the threads of more agents would contend for one GIL
REMOVED_MEMBERS = 2  # members that `regroup` and `loss` remove; a group may begin without them
MIN_MEMBERS = 2 + REMOVED_MEMBERS
START_SECONDS = 300.0
START_TOGETHER = 24
STARTS_PER_SECOND = 25.0
REGROUP_SECONDS = 300.0
BURST_SECONDS = 8.0  # first part of a stall, with frequent probes
POLL_SECONDS = 0.05
TICKS = os.sysconf("SC_CLK_TCK")
REQUESTS_PATTERN = re.compile(
    r'^grpc_server_started_total\{[^}]*grpc_method="(\w+)"[^}]*\} (\S+)$', re.MULTILINE
)
WATCH_MESSAGES_PATTERN = re.compile(
    r'^grpc_server_msg_sent_total\{[^}]*grpc_method="Watch"[^}]*\} (\S+)$', re.MULTILINE
)


@dataclass(frozen=True)
class Usage:
    """Resource usage of etcd and the agents so far.

    Attributes:
        at: the time, in seconds of the monotonic clock.
        etcd: CPU time of etcd, in seconds.
        agents: CPU time of the processes that run the agents, in seconds.
        by_agent: CPU time of each agent, in seconds.
        requests: number of requests by gRPC method.
        watch_messages: number of messages that etcd has sent to watchers.
    """

    at: float
    etcd: float
    agents: float
    by_agent: dict[str, float]
    requests: dict[str, int]
    watch_messages: int


class Fleet:
    """An etcd and the processes of its agents."""

    def __init__(self, folder: Path, members: int, arrivals: int, lease: int) -> None:
        self._exit_stack = ExitStack()
        self._endpoint, etcd = self._exit_stack.enter_context(etcd_process(folder))
        self._etcd_pid = etcd.pid
        self._names = [f"node-{number:05}" for number in range(members)]
        limits = GroupLimits(min_members=members - REMOVED_MEMBERS, max_members=members + arrivals)
        context = multiprocessing.get_context("spawn")
        self._processes: list[tuple[Connection, int]] = []
        for _ in range(max(MIN_PROCESSES, -(-members // MEMBERS_PER_PROCESS))):
            parent_end, child_end = context.Pipe()
            arguments = (child_end, self._endpoint, "scale", limits, lease)
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            self._exit_stack.callback(process.kill)
            self._processes.append((parent_end, process.pid or 0))

    def close(self) -> None:
        """Stop all processes."""
        self._exit_stack.close()

    def start(self) -> None:
        """Start all members."""
        self._start(self._names)

    def arrive(self, count: int) -> None:
        """Start further nodes."""
        self._start([f"late-{number:05}" for number in range(count)])

    def _start(self, names: Sequence[str]) -> None:
        """Start nodes at a rate that these cores sustain: in a run, each has its own machine."""
        for first in range(0, len(names), START_TOGETHER):
            batch = range(first, min(first + START_TOGETHER, len(names)))
            for index, (connection, _) in enumerate(self._processes):
                own_names = [names[i] for i in batch if i % len(self._processes) == index]
                connection.send(("start", own_names))
            for connection, _ in self._processes:
                connection.recv()
            if first + START_TOGETHER < len(names):
                time.sleep(START_TOGETHER / STARTS_PER_SECOND)

    def remove(self, method: str, index: int) -> None:
        """Remove the member of this index by `close` or `vanish`."""
        connection, _ = self._processes[index % len(self._processes)]
        connection.send((method, self._names[index]))
        connection.recv()

    def stall(self, *, stalled: bool) -> None:
        """Make the workers wait for a straggler, or stop waiting."""
        self._all("stall", stalled)

    def wait_until_formed(self, size: int, last_number: int, seconds: float) -> NodeGeneration:
        """Wait until a generation above `last_number` has begun on all of its `size` members.

        Returns:
            The generation on the member on which it began last.

        Raises:
            TimeoutError: no such generation began in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            nodes: list[NodeGeneration] = [
                node for reply in self._all("generations") for node in reply
            ]
            generations = {(node.number, node.size) for node in nodes}
            is_formed = len(nodes) == size and len(generations) == 1 and nodes[0].size == size
            if is_formed and nodes[0].number > last_number:
                return max(nodes, key=lambda node: node.at)
            time.sleep(POLL_SECONDS)
        sizes = sorted({(node.number, node.size) for node in nodes})
        raise TimeoutError(f"no group of {size} formed in {seconds:.0f} s, but {sizes[-5:]}")

    def _all(self, *command: object) -> list[Any]:
        for connection, _ in self._processes:
            connection.send(command)
        return [connection.recv() for connection, _ in self._processes]

    def usage(self) -> Usage:
        """Return the usage so far."""
        with urllib.request.urlopen(f"http://{self._endpoint}/metrics", timeout=30) as response:
            metrics = response.read().decode()
        by_agent: dict[str, float] = {}
        for reply in self._all("cpu_seconds"):
            by_agent |= reply
        return Usage(
            time.monotonic(),
            cpu_seconds(self._etcd_pid),
            sum(cpu_seconds(pid) for _, pid in self._processes),
            by_agent,
            {method: round(float(count)) for method, count in REQUESTS_PATTERN.findall(metrics)},
            sum(round(float(count)) for count in WATCH_MESSAGES_PATTERN.findall(metrics)),
        )


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, in seconds."""
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, nargs="+", default=[10, 100])
    parser.add_argument(
        "--arrivals", type=int, default=10, help="number of simultaneous arrivals (%(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=20.0,
        help="duration of the idle and straggler measurements (%(default)s)",
    )
    parser.add_argument("--extrapolate-to", type=int, help="number of members")
    parser.add_argument(
        "--lease-seconds",
        type=int,
        help="duration of the leases (as in a run of the largest size)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    options = parser.parse_args()
    if min(options.members) < MIN_MEMBERS:
        parser.error(f"--members takes numbers of at least {MIN_MEMBERS}")
    sizes = sorted(options.members)
    if options.extrapolate_to and len(set(sizes[-2:])) < 2:
        parser.error("--extrapolate-to needs several --members, of which the two largest differ")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    lease = options.lease_seconds or lease_seconds(max(*sizes, options.extrapolate_to or 0))
    results = [measure(members, options.arrivals, options.seconds, lease) for members in sizes]
    if options.extrapolate_to:
        results.append(extrapolate(results, options.extrapolate_to))
    if options.json:
        print(json.dumps({"load": os.getloadavg(), "results": results}, indent=1))
        return
    for result in results:
        print_result(result)


def measure(members: int, arrivals: int, seconds: float, lease: int) -> dict[str, Any]:
    """Return the figures for a number of members with leases of `lease` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder), members, arrivals, lease)
        try:
            phases = list(_phases(fleet, members, arrivals, seconds))
            result: dict[str, Any] = {
                "members": members,
                "lease_seconds": lease,
                "load": os.getloadavg()[0],
            }
            for name, phase in track(phases, f"{members} members", len(phases)):
                result[name] = phase()
        finally:
            fleet.close()
    return result


def _phases(
    fleet: Fleet, members: int, arrivals: int, seconds: float
) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """Yield the names and functions of the measurements, in order."""
    newest = NodeGeneration()

    def change(action: Callable[[], None], size: int, limit: float) -> dict[str, float]:
        nonlocal newest
        number, before = newest.number, fleet.usage()
        action()
        newest = fleet.wait_until_formed(size, number, limit)
        after = fleet.usage()
        return {
            "wall_seconds": round(newest.at - before.at, 2),
            "generations": newest.number - number,
            **_difference(before, after),
            **_by_agent(before, after),
        }

    def rates(duration: float) -> dict[str, float]:
        before = fleet.usage()
        time.sleep(duration)
        return _rates(before, fleet.usage())

    def straggler() -> dict[str, float]:
        fleet.stall(stalled=True)
        burst = rates(BURST_SECONDS)
        steady = rates(seconds)
        fleet.stall(stalled=False)
        return steady | {f"burst_{name}": value for name, value in burst.items()}

    yield "formation", lambda: change(fleet.start, members, START_SECONDS)
    yield "warm-up", lambda: rates(seconds / 4)
    yield "idle", lambda: rates(seconds)
    yield (
        "regroup",
        lambda: change(lambda: fleet.remove("close", members - 1), members - 1, REGROUP_SECONDS),
    )
    yield "straggler", straggler
    yield (
        "arrivals",
        lambda: change(lambda: fleet.arrive(arrivals), members - 1 + arrivals, REGROUP_SECONDS),
    )
    yield (
        "loss",
        lambda: change(
            lambda: fleet.remove("vanish", members // 2), members - 2 + arrivals, REGROUP_SECONDS
        ),
    )


def _difference(before: Usage, after: Usage) -> dict[str, float]:
    return {
        "etcd_seconds": round(after.etcd - before.etcd, 2),
        "total_agent_seconds": round(after.agents - before.agents, 2),
        "requests": sum(after.requests.values()) - sum(before.requests.values()),
        "watch_messages": after.watch_messages - before.watch_messages,
    }


def _by_agent(before: Usage, after: Usage) -> dict[str, float]:
    """Return median and maximum CPU time of an agent, and the estimated duration with a machine for each agent."""
    seconds = [used - before.by_agent.get(name, 0.0) for name, used in after.by_agent.items()]
    return {
        "median_agent_seconds": round(statistics.median(seconds), 4),
        "busiest_agent_seconds": round(max(seconds), 4),
        "separate_seconds": round(after.etcd - before.etcd + max(seconds), 2),
    }


def _rates(before: Usage, after: Usage) -> dict[str, float]:
    elapsed = after.at - before.at
    methods = {
        f"{method}_per_second": round((count - before.requests.get(method, 0)) / elapsed, 1)
        for method, count in after.requests.items()
        if count > before.requests.get(method, 0)
    }
    difference = _difference(before, after)
    return {
        "etcd_cores": round(difference["etcd_seconds"] / elapsed, 3),
        "total_agent_cores": round(difference["total_agent_seconds"] / elapsed, 3),
        "requests_per_second": round(difference["requests"] / elapsed, 1),
        **methods,
    }


def extrapolate(results: Sequence[dict[str, Any]], members: int) -> dict[str, Any]:
    """Return the figures for `members` by the power law that fits the two largest measurements."""
    smaller, larger = results[-2:]
    result: dict[str, Any] = {
        "members": members,
        "lease_seconds": larger["lease_seconds"],
        "extrapolated": True,
    }
    for phase, figures in larger.items():
        if isinstance(figures, dict):
            result[phase] = {
                name: _extrapolate(smaller, larger, members, smaller[phase].get(name, 0), value)
                for name, value in figures.items()
            }
    return result


def _extrapolate(
    smaller: dict[str, Any], larger: dict[str, Any], members: int, low: float, high: float
) -> float:
    if low <= 0 or high <= 0:
        return high
    power = math.log(high / low) / math.log(larger["members"] / smaller["members"])
    return round(high * math.pow(members / larger["members"], power), 3)


def print_result(result: dict[str, Any]) -> None:
    """Print the figures of one number of members."""
    load = "extrapolated" if result.get("extrapolated") else f"load {result['load']:.1f}"
    print(f"{result['members']} members ({load}, leases of {result['lease_seconds']} s)")
    for phase, figures in result.items():
        if isinstance(figures, dict):
            figure_list = ", ".join(f"{name} {value:g}" for name, value in figures.items())
            print(f"  {phase:10} {figure_list}")


if __name__ == "__main__":
    main()
