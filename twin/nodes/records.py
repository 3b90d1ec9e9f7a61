"""What a twin remembers of a machine between two commands."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from everstep.errors import EverstepError
from twin.nodes import files
from twin.nodes.addressing import MAX_MACHINES, Address, free_slot
from twin.nodes.layout import Layout
from twin.nodes.model import MachineSpec

MACHINE_PROGRAMS = ("kubelet", "kube-proxy")
MAX_GPUS = 16  # ours; the largest cloud machines have 8
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class MachineRecord:
    """A machine that belongs to a twin, running or gone.

    Attributes:
        spec: what was wanted.
        slot: where it is in the addressing plan, for as long as it belongs to the twin.
        tools: the programs it runs, by name.
        images: the key of the images it boots with.
    """

    spec: MachineSpec
    slot: int
    tools: Mapping[str, str]
    images: str

    @property
    def address(self) -> Address:
        """Its address."""
        return Address(self.slot)

    def save(self, path: Path) -> None:
        """Remember it."""
        files.write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> "MachineRecord | None":
        """Return what a file remembers; None where it is not there or not whole."""
        stored = files.read_json(path)
        try:
            return cls.parse(stored) if stored else None
        except (KeyError, TypeError, ValueError):
            return None

    @classmethod
    def parse(cls, stored: Mapping[str, object]) -> "MachineRecord":
        """Return the record that JSON stands for.

        Raises:
            KeyError, TypeError, ValueError: it stands for none.
        """
        spec, tools = stored["spec"], stored["tools"]
        if not isinstance(spec, Mapping) or not isinstance(tools, Mapping):
            raise TypeError("a machine's record has no spec or no tools")
        wanted = MachineSpec.parse(spec)
        slot = Address(int(str(stored["slot"]))).index
        programs = {str(name): str(path) for name, path in tools.items()}
        return cls(wanted, slot, programs, str(stored["images"]))


def all_of(layout: Layout) -> list[MachineRecord]:
    """Return the machines of a twin in the order of their slots."""
    loaded = (MachineRecord.load(path) for path in layout.machines.glob("*/machine.json"))
    return sorted((record for record in loaded if record), key=lambda record: record.slot)


def refuse_contradictions(layout: Layout, wanted: Sequence[MachineSpec]) -> None:
    """Refuse machines that cannot be, or that are there already as something else.

    Raises:
        EverstepError: naming all that is wrong.
    """
    known = {record.spec.name: record.spec for record in all_of(layout)}
    faults: list[str] = []
    for index, spec in enumerate(wanted):
        if not NAME.fullmatch(spec.name):
            faults.append(f"{spec.name!r} is no name: 1 to 40 lower-case letters, digits, hyphens")
        if not 0 <= spec.gpus <= MAX_GPUS:
            faults.append(f"{spec.name!r} wants {spec.gpus} GPUs: 0 to {MAX_GPUS} can be offered")
        if any(spec.name == other.name for other in wanted[:index]):
            faults.append(f"{spec.name!r} is wanted twice")
        if (there := known.get(spec.name)) and there != spec:
            faults.append(f"{spec.name!r} is there as {there.role} with {there.gpus} GPU(s)")
    if len(known | {spec.name: spec for spec in wanted}) > MAX_MACHINES:
        faults.append(
            f"more than {MAX_MACHINES} machines, the most that the twin has addresses for"
        )
    if faults:
        lines = "\n".join(f"  {fault}" for fault in faults)
        raise EverstepError(
            f"These machines cannot be had:\n{lines}",
            "Change what is wanted, or remove the machine that is there first.",
        )


def assign_slots(
    layout: Layout, wanted: Sequence[MachineSpec], programs: Mapping[str, Path], images: str
) -> list[MachineRecord]:
    """Return the machines there are and those wanted, new ones in free slots, all to boot with these images."""
    there = {record.spec.name: record.slot for record in all_of(layout)}
    specs = {record.spec.name: record.spec for record in all_of(layout)}
    for spec in wanted:
        if spec.name not in there and (slot := free_slot(set(there.values()))):
            there[spec.name], specs[spec.name] = slot, spec
    tools = {name: str(programs[name]) for name in MACHINE_PROGRAMS if name in programs}
    return [MachineRecord(specs[name], slot, tools, images) for name, slot in there.items()]
