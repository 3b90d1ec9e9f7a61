"""Reclaiming of several machines, and the capacity that remains for their pools."""

import os
from pathlib import Path

import pytest
from cloudtwin import files
from cloudtwin.capacity.reclaiming import reclaim, remaining_machines
from cloudtwin.errors import TwinError
from cloudtwin.nodes import MachineSpec, Role, Twin
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux.processes import Process
from cloudtwin.nodes.model import Cloud
from cloudtwin.nodes.records import MachineRecord

POOLS = {"t4-0": "t4", "t4-1": "t4", "a10-0": "a10", "system-0": "system", "mine": ""}


def test_a_pool_that_loses_machines_keeps_capacity_for_the_others_only() -> None:
    assert remaining_machines(POOLS, ["t4-0"]) == {"t4": 1}
    assert remaining_machines(POOLS, ["t4-0", "t4-1", "a10-0"]) == {"a10": 0, "t4": 0}


def test_a_machine_without_a_pool_limits_no_capacity() -> None:
    assert remaining_machines(POOLS, ["mine"]) == {}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Return the folder of a twin with two running machines and a machine that is gone."""
    layout = Layout(tmp_path / "twin")
    files.write_json(layout.settings, {"port": 1})
    clouds: dict[str, Cloud] = {"spot-0": "aws", "local": "", "gone": "aws"}
    for slot, (name, cloud) in enumerate(clouds.items(), start=1):
        folder, spec = layout.machine(name), MachineSpec(name, Role.GPU, cloud=cloud)
        MachineRecord(spec, slot, {}, "key").save(folder.record)
        if name != "gone" and (process := Process.of(os.getpid())):
            process.save(folder.process)
    return layout


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("spot-9", "has no machine 'spot-9'"),
        ("local", "belongs to no cloud"),
        ("gone", "cannot be reclaimed"),
    ],
)
def test_no_machine_gets_a_notice_if_one_of_them_cannot_be_reclaimed(
    layout: Layout, name: str, problem: str
) -> None:
    with pytest.raises(TwinError, match=problem):
        reclaim(layout.state, ["spot-0", name], 60)

    assert not layout.machine("spot-0").notice.exists(), "its workers would drain for nothing"


def test_a_machine_that_is_named_twice_is_reclaimed_once(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    reclaimed: list[str] = []
    monkeypatch.setattr(Twin, "reclaim", lambda _, name, *__: reclaimed.append(name))

    reclaim(layout.state, ["spot-0", "spot-0"], 60)

    assert reclaimed == ["spot-0"], "a second reclamation would fail while the first is in progress"
