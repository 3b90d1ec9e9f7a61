"""Starts a machine: takes its namespaces one after another and forks its first process.

Started as `python -m twin.nodes.boot <state folder> <machine>`; ends as soon as the machine is born. A
process of its own, since entering a namespace cannot be undone, least of all for a program with threads.
"""

import os
import sys
from pathlib import Path

from twin.nodes import image_aliases, init, linux, network
from twin.nodes.cgroups import Tree
from twin.nodes.components import holder
from twin.nodes.layout import Layout
from twin.nodes.linux import Namespace
from twin.nodes.processes import Process
from twin.nodes.records import MachineRecord

OTHERS = Namespace.CGROUP | Namespace.UTS | Namespace.IPC | Namespace.PID


def main(state: Path, name: str) -> None:
    """Boot the machine of this name, which has been prepared."""
    layout, tree = Layout(state), Tree.here()
    machine = layout.machine(name)
    record, switch = MachineRecord.load(machine.record), holder(layout)
    if record is None or switch is None:
        sys.exit(f"no machine {name!r} has been prepared, or there is no switch for it")
    tree.add(layout.machine_cgroup(name), os.getpid())
    images = layout.images / record.images
    plan = init.Plan(
        record=record,
        machine=machine,
        shared=layout.shared,
        images=images,
        tree=tree,
        tools=record.tools,
        aliases=image_aliases.all_of(layout),
        cloud=layout.cloud,
    )
    linux.unshare(Namespace.NETWORK)
    network.plug(switch.pid, os.getpid(), record.address)
    if record.spec.cloud:
        network.add_metadata_address()
    linux.unshare(
        OTHERS
    )  # after the last program: the next child is the first of the PID namespace
    child = os.fork()
    if child == 0:
        linux.unshare(
            Namespace.MOUNT
        )  # not before: the parent has a file to write outside the machine
        init.main(plan)
    process = Process.of(child)
    if process is None:
        sys.exit("the machine's first process ended at once")
    process.save(machine.process)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
