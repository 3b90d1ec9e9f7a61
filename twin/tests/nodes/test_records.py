"""Records of machines: slots, and errors for invalid or changed machines."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.files import DamagedFileError
from cloudtwin.nodes import records
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.model import MachineSpec, Role
from cloudtwin.nodes.network.addressing import MAX_MACHINES
from cloudtwin.nodes.records import MachineRecord

TOOLS = {"kubelet": "/bin/kubelet", "kube-proxy": "/bin/kube-proxy"}


def gpu(name: str, gpus: int = 1) -> MachineSpec:
    return MachineSpec(name, Role.GPU, gpus)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "twin")


def save_record(layout: Layout, spec: MachineSpec, slot: int) -> MachineRecord:
    record = MachineRecord(spec, slot, TOOLS, "key")
    record.save(layout.machine(spec.name).record)
    return record


def test_a_saved_record_is_loaded_unchanged(layout: Layout) -> None:
    record = save_record(layout, gpu("gpu-0", 4), 3)

    assert records.all_of(layout) == [record]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"spec": 1, "slot": 1, "tools": {}, "images": ""}',
     json.dumps({"spec": {"name": "a", "role": "tpu", "gpus": 1}, "slot": 1, "tools": {}, "images": ""}),
     json.dumps({"spec": {"name": "a", "role": "gpu", "gpus": 1}, "slot": 99, "tools": {}, "images": ""})],
)  # fmt: skip
def test_an_incomplete_or_invalid_record_is_an_error_since_its_machine_may_run(
    layout: Layout, content: str
) -> None:
    path = layout.machine("a").record
    path.parent.mkdir(parents=True)
    path.write_text(content)

    with pytest.raises(DamagedFileError, match=re.escape(str(path))):
        records.assign_slots(layout, [gpu("b")], {}, "key")


def test_new_machines_take_free_slots_and_existing_machines_keep_theirs(layout: Layout) -> None:
    save_record(layout, gpu("gpu-0"), 2)

    machine_records = records.assign_slots(layout, [gpu("gpu-0"), gpu("a"), gpu("b")], {}, "key")

    assert {record.spec.name: record.slot for record in machine_records} == {
        "gpu-0": 2,
        "a": 1,
        "b": 3,
    }


def test_the_error_lists_all_problems(layout: Layout) -> None:
    save_record(layout, gpu("gpu-0"), 1)
    specs = [gpu("gpu-0", 2), gpu("Big_One"), gpu("x", 17), gpu("x", 16)]

    with pytest.raises(TwinError) as error:
        records.check_machines(layout, specs)

    assert error.value.problem.splitlines()[1:] == [
        "  'gpu-0' exists as gpu with 1 GPU(s); the request differs in gpus",
        "  'Big_One' is not a valid name: 1 to 40 lower-case letters, digits and hyphens, with no hyphen at either end",
        "  'x' requests 17 GPUs: 0 to 16 are possible",
        "  'x' is requested twice",
    ]


def test_more_machines_than_addresses_are_refused(layout: Layout) -> None:
    specs = [gpu(f"gpu-{number}") for number in range(MAX_MACHINES + 1)]

    records.check_machines(layout, specs[:-1])
    with pytest.raises(TwinError, match=f"more than {MAX_MACHINES} machines"):
        records.check_machines(layout, specs)


def test_an_unchanged_machine_is_accepted(layout: Layout) -> None:
    save_record(layout, gpu("gpu-0"), 1)

    records.check_machines(layout, [gpu("gpu-0")])


def test_the_error_names_the_fields_in_which_an_existing_machine_differs(layout: Layout) -> None:
    save_record(layout, gpu("gpu-0"), 1)
    changed = replace(gpu("gpu-0"), labels={"a": "b"}, zone="us-east-1a")

    with pytest.raises(TwinError, match="the request differs in labels, zone"):
        records.check_machines(layout, [changed])
