"""Machine records, which a twin stores between commands."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.files import DamagedFileError
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.model import MachineSpec
from cloudtwin.nodes.network.addressing import MAX_MACHINES, Address, free_slot

MACHINE_PROGRAMS = ("kubelet", "kube-proxy")
MAX_GPUS = 16  # limit of the twin; current machines of AWS and Azure have at most 8
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class MachineRecord:
    """A machine that belongs to a twin, running or gone.

    Attributes:
        spec: its specification.
        slot: its number in the addressing plan, fixed while it belongs to the twin.
        tools: paths of the programs that it runs, by name.
        images: the key of its image store.
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
        """Write the record to a file."""
        files.write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> "MachineRecord | None":
        """Return the record in a file, or None if there is no such file.

        Raises:
            DamagedFileError: the file has no valid record. Without it, a new machine could get the address of a
                running machine.
        """
        document = files.read_json(path)
        try:
            return None if document is None else cls.parse(document)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(
                path, f"it contains no valid machine record: {error!r}"
            ) from None

    @classmethod
    def parse(cls, document: Mapping[str, object]) -> "MachineRecord":
        """Return the record that a JSON object describes.

        Raises:
            KeyError, TypeError, ValueError: the object does not describe a record.
        """
        spec, tools = document["spec"], document["tools"]
        if not isinstance(spec, Mapping) or not isinstance(tools, Mapping):
            raise TypeError("a machine's record has no spec or no tools")
        slot = Address(int(str(document["slot"]))).index
        paths = {str(name): str(path) for name, path in tools.items()}
        return cls(MachineSpec.parse(spec), slot, paths, str(document["images"]))


def all_of(layout: Layout) -> list[MachineRecord]:
    """Return the machines of a twin in the order of their slots.

    Raises:
        DamagedFileError: a record is damaged.
    """
    loaded_records = (MachineRecord.load(path) for path in layout.machines.glob("*/machine.json"))
    return sorted((record for record in loaded_records if record), key=lambda record: record.slot)


def check_machines(layout: Layout, requested: Sequence[MachineSpec]) -> None:
    """Refuse invalid machines, and machines that exist with another spec.

    Raises:
        TwinError: the message names all problems.
    """
    specs = {record.spec.name: record.spec for record in all_of(layout)}
    problems: list[str] = []
    for index, spec in enumerate(requested):
        if not NAME.fullmatch(spec.name):
            problems.append(
                f"{spec.name!r} is not a valid name: 1 to 40 lower-case letters, digits"
                " and hyphens, with no hyphen at either end"
            )
        if not 0 <= spec.gpus <= MAX_GPUS:
            problems.append(
                f"{spec.name!r} requests {spec.gpus} GPUs: 0 to {MAX_GPUS} are possible"
            )
        if any(spec.name == other.name for other in requested[:index]):
            problems.append(f"{spec.name!r} is requested twice")
        if (existing := specs.get(spec.name)) and existing != spec:
            problems.append(
                f"{spec.name!r} exists as {existing.role} with {existing.gpus} GPU(s);"
                f" the request differs in {', '.join(_differences(existing, spec))}"
            )
    if len(specs | {spec.name: spec for spec in requested}) > MAX_MACHINES:
        problems.append(f"more than {MAX_MACHINES} machines: the twin has no more addresses")
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise TwinError(
            f"These machines cannot be created:\n{lines}",
            "Change the request, or remove the existing machine first.",
        )


def _differences(existing: MachineSpec, requested: MachineSpec) -> list[str]:
    names = (field.name for field in fields(MachineSpec))
    return [name for name in names if getattr(existing, name) != getattr(requested, name)]


def assign_slots(
    layout: Layout, requested: Sequence[MachineSpec], tools: Mapping[str, Path], images: str
) -> list[MachineRecord]:
    """Return records of the existing and the requested machines with these images; new machines get free slots."""
    slots = {record.spec.name: record.slot for record in all_of(layout)}
    specs = {record.spec.name: record.spec for record in all_of(layout)}
    for spec in requested:
        if spec.name not in slots and (slot := free_slot(set(slots.values()))):
            slots[spec.name], specs[spec.name] = slot, spec
    paths = {name: str(tools[name]) for name in MACHINE_PROGRAMS if name in tools}
    return [MachineRecord(specs[name], slot, paths, images) for name, slot in slots.items()]
