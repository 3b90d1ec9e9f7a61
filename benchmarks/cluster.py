"""Measure the start-up time, the memory and the idle CPU time of a twin.

    sudo .venv/bin/python benchmarks/cluster.py [--gpu-machines 3] [--idle-seconds 60]

Starts a separate twin and removes it at the end. No other program should run on the machine at the same time; its load
is printed with the figures.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from cloudtwin.images import ensure_images
from cloudtwin.nodes import MachineSpec, Twin
from cloudtwin.nodes.bring_up import machine_tools
from cloudtwin.nodes.control_plane.components import PROGRAMS
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.toolchain import ensure_tools

from everstep.cli.images import OPTIONS
from everstep.cli.twin_settings import configure_twin, gpu_machine, system_machine
from everstep.progress import Lines, Silent
from tests.processes import pss_kibibytes, stat_fields

SETTLE_SECONDS = 30  # caches fill and informers sync for some time after everything is ready
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description="Measure a twin; prints JSON.")
    parser.add_argument("--gpu-machines", type=int, default=3)
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    configure_twin()
    machines = [system_machine("system-0")]
    machines += [gpu_machine(f"gpu-{i}") for i in range(arguments.gpu_machines)]
    twin = Twin.open("benchmark", OPTIONS)
    ensure_tools(PROGRAMS, Lines())
    machine_tools(Lines())
    ensure_images(Lines(), OPTIONS.recipes)
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
    before = cpu_seconds(twin)
    time.sleep(idle_seconds)
    usage = cpu_seconds(twin)
    by_program = {name: usage[name] - before.get(name, 0.0) for name in usage}
    figures["idle_cores"] = round(sum(by_program.values()) / idle_seconds, 3)
    figures["idle_cores_by_program"] = shares(by_program, idle_seconds)
    figures |= memory(twin)
    name = machines[-1].name
    figures["vanish_seconds"] = timed(lambda: twin.vanish(name))
    figures["return_seconds"] = timed(lambda: twin.return_node(name))
    figures["down_seconds"] = timed(lambda: twin.down(Silent()))
    return figures


def timed(action: Callable[[], object]) -> float:
    """Return the duration of an action in seconds."""
    started_at = time.monotonic()
    action()
    return round(time.monotonic() - started_at, 2)


def cpu_seconds(twin: Twin) -> dict[str, float]:
    """Return the CPU time of the twin's running processes, in seconds, by program."""
    seconds: dict[str, float] = {}
    for pid, name in programs(twin).items():
        fields = stat_fields(pid)[11:15]  # none if the process has ended
        # User and system time of the process and of its ended children, such as iptables.
        seconds[name] = seconds.get(name, 0.0) + sum(map(int, fields)) / TICKS
    return seconds


def memory(twin: Twin) -> dict[str, object]:
    """Return the proportional set size (PSS) of the twin's processes in megabytes, in all and by program."""
    resident: dict[str, float] = {}
    for pid, name in programs(twin).items():
        resident[name] = resident.get(name, 0.0) + pss_kibibytes(pid) * 1024 / 1e6
    by_program = {name: round(megabytes) for name, megabytes in largest_first(resident).items()}
    return {
        "resident_megabytes": round(sum(resident.values())),
        "resident_megabytes_by_program": by_program,
    }


def programs(twin: Twin) -> dict[int, str]:
    """Return the twin's processes and the program of each."""
    names = {}
    for pid in CgroupHierarchies.detect().processes(twin.layout.identity):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        names[pid] = words[2] if words[1:2] == ["-m"] else Path(words[0]).name
    return names


def shares(seconds_by_program: dict[str, float], seconds: float) -> dict[str, float]:
    """Return CPU time as cores, in descending order."""
    return {
        name: round(cpu_seconds / seconds, 4)
        for name, cpu_seconds in largest_first(seconds_by_program).items()
    }


def largest_first(values: dict[str, float]) -> dict[str, float]:
    """Sort by value in descending order."""
    return dict(sorted(values.items(), key=lambda item: -item[1]))


if __name__ == "__main__":
    main()
