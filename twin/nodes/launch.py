"""Adds machines to a twin that stands, while others are changed.

`up` holds the whole twin and waits for every Node. Whoever makes machines by itself, all day, must not lock a
user's own verbs out for that long: here only the addresses are given out under a lock of their own.
"""

from collections.abc import Callable, Sequence

from everstep.progress import Progress
from twin.images import ImageStore
from twin.nodes import bring_up, lock, machine_images, records, tools
from twin.nodes.cgroups import Tree
from twin.nodes.layout import Layout
from twin.nodes.machine import Machine
from twin.nodes.model import MachineSpec
from twin.nodes.records import MachineRecord

SLOT_SECONDS = 60.0  # somebody else may be copying images


def launch(
    layout: Layout,
    tree: Tree,
    specs: Sequence[MachineSpec],
    images: Callable[[Progress], ImageStore],
    progress: Progress,
) -> list[Machine]:
    """Boot new machines and return them; their Nodes come seconds later. The caller holds the lock, shared.

    Raises:
        EverstepError: a machine cannot be had or did not start; of that one a record stays, and no process.
    """
    programs = tools.machine_tools(progress)
    with lock.held(layout.slots_lock, "address plan", "launch", patience_seconds=SLOT_SECONDS):
        records.refuse_contradictions(layout, specs)
        store = machine_images.in_use(layout) or images(progress)
        machine_images.keep(store, layout)
        names = {spec.name for spec in specs}
        wanted = [
            record
            for record in records.assign_slots(layout, specs, programs, store.key)
            if record.spec.name in names
        ]
        for record in wanted:  # it holds its slot from here on
            record.save(layout.machine(record.spec.name).record)
    return _boot(layout, tree, wanted, progress)


def _boot(
    layout: Layout, tree: Tree, wanted: Sequence[MachineRecord], progress: Progress
) -> list[Machine]:
    machines = [Machine(layout, tree, record) for record in wanted]
    with progress.step(f"Booting {', '.join(machine.name for machine in machines)}"):
        bring_up.boot_machines(layout, machines)
    return machines
