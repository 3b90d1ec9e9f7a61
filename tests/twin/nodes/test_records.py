import json

import pytest

from everstep.errors import EverstepError
from twin.nodes import records
from twin.nodes.addressing import MAX_MACHINES
from twin.nodes.layout import Layout
from twin.nodes.model import MachineSpec, Role
from twin.nodes.records import MachineRecord

TOOLS = {"kubelet": "/bin/kubelet", "kube-proxy": "/bin/kube-proxy"}


def gpu(name, gpus=1):
    return MachineSpec(name, Role.GPU, gpus)


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path / "twin")


def remember(layout, spec, slot):
    record = MachineRecord(spec, slot, TOOLS, "key")
    record.save(layout.machine(spec.name).record)
    return record


def test_what_is_remembered_is_what_was_saved(layout):
    record = remember(layout, gpu("gpu-0", 4), 3)

    assert records.all_of(layout) == [record]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"spec": 1, "slot": 1, "tools": {}, "images": ""}',
     json.dumps({"spec": {"name": "a", "role": "tpu", "gpus": 1}, "slot": 1, "tools": {}, "images": ""}),
     json.dumps({"spec": {"name": "a", "role": "gpu", "gpus": 1}, "slot": 99, "tools": {}, "images": ""})],
)  # fmt: skip
def test_a_torn_or_foreign_record_is_no_machine(layout, content):
    path = layout.machine("a").record
    path.parent.mkdir(parents=True)
    path.write_text(content)

    assert records.all_of(layout) == []


def test_new_machines_take_free_slots_and_old_ones_keep_theirs(layout):
    remember(layout, gpu("gpu-0"), 2)

    assigned = records.assign_slots(layout, [gpu("gpu-0"), gpu("a"), gpu("b")], {}, "key")

    assert {record.spec.name: record.slot for record in assigned} == {"gpu-0": 2, "a": 1, "b": 3}


def test_everything_wrong_with_what_is_wanted_is_said_at_once(layout):
    remember(layout, gpu("gpu-0"), 1)
    wanted = [gpu("gpu-0", 2), gpu("Big_One"), gpu("x", 99), gpu("x", 99)]

    with pytest.raises(EverstepError) as caught:
        records.refuse_contradictions(layout, wanted)

    for part in ("'gpu-0' is there as gpu with 1", "'Big_One'", "99 GPUs", "'x' is wanted twice"):
        assert part in caught.value.what


def test_more_machines_than_addresses_are_refused(layout):
    with pytest.raises(EverstepError, match=str(MAX_MACHINES)):
        records.refuse_contradictions(layout, [gpu(f"gpu-{i}") for i in range(MAX_MACHINES + 1)])


def test_repeating_what_is_there_contradicts_nothing(layout):
    remember(layout, gpu("gpu-0"), 1)

    records.refuse_contradictions(layout, [gpu("gpu-0")])
