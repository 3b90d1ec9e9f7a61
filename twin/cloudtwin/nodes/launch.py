"""Add machines to a running twin without blocking other commands.

`up` locks the whole twin and waits for every Node. The capacity daemon starts machines at any time and must not
block other commands for that long: here only the copy of images and the assignment of addresses are locked.
"""

from collections.abc import Callable, Sequence

from cloudtwin.images import ImageStore
from cloudtwin.nodes import bring_up, lock, records
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.machine import image_copies
from cloudtwin.nodes.machine.machine import Machine
from cloudtwin.nodes.model import MachineSpec
from cloudtwin.progress import Progress

SLOTS_LOCK_SECONDS = 60.0  # another command may be copying images


def launch(
    layout: Layout,
    cgroups: CgroupHierarchies,
    specs: Sequence[MachineSpec],
    images: Callable[[Progress], ImageStore],
    progress: Progress,
) -> None:
    """Boot new machines; their Nodes are Ready seconds later. The caller holds the shared lock.

    Raises:
        TwinError: a machine is invalid, or did not start; then its record remains, without a process.
    """
    programs = bring_up.machine_tools(progress)
    with lock.held(layout.slots_lock, "address plan", "launch", timeout_seconds=SLOTS_LOCK_SECONDS):
        records.check_machines(layout, specs)
        store = image_copies.newest_copy(layout) or images(progress)
        image_copies.keep(store, layout)
        names = {spec.name for spec in specs}
        assigned = records.assign_slots(layout, specs, programs, store.key)
        new_records = [record for record in assigned if record.spec.name in names]
        for record in new_records:  # the record reserves the slot
            record.save(layout.machine(record.spec.name).record)
    machines = [Machine(layout, cgroups, record) for record in new_records]
    with progress.step(f"Booting {', '.join(machine.name for machine in machines)}"):
        bring_up.boot_machines(layout, machines)
