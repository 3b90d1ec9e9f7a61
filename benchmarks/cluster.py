"""Measure a twin: how fast it stands, how much memory it holds, how much processor time it takes to do nothing.

    sudo .venv/bin/python benchmarks/cluster.py [--gpu-machines 3] [--idle-seconds 60]

Starts a twin of its own and takes it down again. Nothing else should run on the machine meanwhile; the load
that was there is printed beside the figures.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from everstep.progress import Lines, Silent
from twin.images import ensure_images
from twin.nodes import MachineSpec, Role, Twin
from twin.nodes.cgroups import Tree
from twin.nodes.tools import control_plane_tools, machine_tools

SETTLE_SECONDS = 30  # caches fill and informers sync for some time after everything is ready
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description="Measure a twin; prints JSON.")
    parser.add_argument("--gpu-machines", type=int, default=3)
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    machines = [MachineSpec("system-0", Role.SYSTEM)]
    machines += [MachineSpec(f"gpu-{i}", Role.GPU) for i in range(arguments.gpu_machines)]
    twin = Twin.open("benchmark")
    control_plane_tools(Lines())
    machine_tools(Lines())
    ensure_images(Lines())
    try:
        print(json.dumps(measure(twin, machines, arguments.idle_seconds), indent=1))
    finally:
        twin.down(Silent())


def measure(twin: Twin, machines: list[MachineSpec], idle_seconds: float) -> dict[str, object]:
    """Bring the twin up in two steps, let it idle, and lose and regain a machine."""
    load = os.getloadavg()[0]
    figures: dict[str, object] = {"machines": len(machines), "load_before": round(load, 2)}
    figures["control_plane_ready_seconds"] = timed(lambda: twin.up([], Silent()))
    figures["machines_ready_seconds"] = timed(lambda: twin.up(machines, Silent()))
    figures["up_again_seconds"] = timed(lambda: twin.up(machines, Silent()))
    time.sleep(SETTLE_SECONDS)
    before = processor_seconds(twin)
    time.sleep(idle_seconds)
    spent = processor_seconds(twin)
    by_program = {name: spent[name] - before.get(name, 0.0) for name in spent}
    figures["idle_cores"] = round(sum(by_program.values()) / idle_seconds, 3)
    figures["idle_cores_by_program"] = shares(by_program, idle_seconds)
    figures |= memory(twin)
    name = machines[-1].name
    figures["vanish_seconds"] = timed(lambda: twin.vanish(name))
    figures["return_seconds"] = timed(lambda: twin.come_back(name))
    figures["down_seconds"] = timed(lambda: twin.down(Silent()))
    return figures


def timed(action: Callable[[], object]) -> float:
    """Return how many seconds an action takes."""
    began = time.monotonic()
    action()
    return round(time.monotonic() - began, 2)


def processor_seconds(twin: Twin) -> dict[str, float]:
    """Return the processor time of the twin's living processes, in seconds, by program."""
    spent: dict[str, float] = {}
    for pid, name in programs(twin).items():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # User and system time, its own and that of its children which ended, such as iptables.
        spent[name] = spent.get(name, 0.0) + sum(map(int, fields[11:15])) / TICKS
    return spent


def memory(twin: Twin) -> dict[str, object]:
    """Return what the twin's processes hold resident, in megabytes; what several share is counted once."""
    held: dict[str, float] = {}
    unshared = 0
    for pid, name in programs(twin).items():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        kibibytes = {line.split()[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
        held[name] = held.get(name, 0.0) + kibibytes["Pss:"] * 1024 / 1e6
        unshared += kibibytes["Rss:"]
    by_program = {name: round(megabytes) for name, megabytes in largest_first(held).items()}
    return {
        "resident_megabytes": round(sum(held.values())),
        "resident_megabytes_by_program": by_program,
    }


def programs(twin: Twin) -> dict[int, str]:
    """Return the twin's processes and what each is."""
    found = {}
    for pid in Tree.here().processes(twin.layout.identity):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        found[pid] = words[2] if words[1:2] == ["-m"] else Path(words[0]).name
    return found


def shares(spent: dict[str, float], seconds: float) -> dict[str, float]:
    """Return processor time as cores, the hungriest first."""
    return {name: round(used / seconds, 4) for name, used in largest_first(spent).items()}


def largest_first(values: dict[str, float]) -> dict[str, float]:
    """Sort by value."""
    return dict(sorted(values.items(), key=lambda item: -item[1]))


if __name__ == "__main__":
    main()
