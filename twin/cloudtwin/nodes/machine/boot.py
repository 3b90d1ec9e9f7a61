"""Boot a machine: enter its namespaces, one after another, and fork its first process.

Started as `python -m cloudtwin.nodes.machine.boot STATE MACHINE`; ends as soon as the machine's first process
runs. It is a separate process, so that the command that boots the machine stays in its own namespaces.
"""

import os
import sys
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.nodes import options
from cloudtwin.nodes.control_plane.components import process_in_network
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import syscalls
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.linux.processes import Process
from cloudtwin.nodes.linux.syscalls import Namespace
from cloudtwin.nodes.machine import image_aliases, init
from cloudtwin.nodes.network import links
from cloudtwin.nodes.records import MachineRecord

OTHER_NAMESPACES = Namespace.CGROUP | Namespace.UTS | Namespace.IPC | Namespace.PID


def main(state: Path, name: str) -> None:
    """Boot a prepared machine."""
    layout, cgroups = Layout(state), CgroupHierarchies.detect()
    machine = layout.machine(name)
    record, network_holder = MachineRecord.load(machine.record), process_in_network(layout)
    if record is None or network_holder is None:
        sys.exit(f"machine {name!r} is not prepared, or the switch is not running")
    cgroups.add(layout.machine_cgroup(name), os.getpid())
    images = layout.images / record.images
    plan = init.BootPlan(
        record=record,
        machine=machine,
        shared=layout.shared,
        shared_mount=options.load(layout).shared_mount,
        images=images,
        cgroups=cgroups,
        tools=record.tools,
        aliases=image_aliases.all_of(layout),
        cloud=layout.cloud,
    )
    syscalls.unshare(Namespace.NETWORK)
    links.connect(network_holder.pid, os.getpid(), record.address)
    if record.spec.cloud:
        links.add_metadata_address()
    # After the last subprocess: the next child is the first process of the PID namespace.
    syscalls.unshare(OTHER_NAMESPACES)
    child = os.fork()
    if child == 0:
        # Only in the child: the parent still writes a file outside the machine.
        syscalls.unshare(Namespace.MOUNT)
        init.main(plan)
    process = Process.of(child)
    if process is None:
        sys.exit("the machine's first process ended immediately")
    process.save(machine.process)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except TwinError as error:
        sys.exit(str(error))
