"""Operations on a machine, without processes and without an API server."""

import json
from pathlib import Path

import pytest
from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.nodes import MachineSpec, Role, Twin, node_objects
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.machine.machine import Machine
from cloudtwin.nodes.records import MachineRecord


@pytest.fixture
def twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Twin:
    """Return a twin with a machine that is gone and an API server that does not respond."""
    layout = Layout(tmp_path / "twin")
    files.write_json(layout.settings, {"port": 1})
    MachineRecord(MachineSpec("gpu-0", Role.GPU), 1, {}, "key").save(layout.machine("gpu-0").record)
    monkeypatch.setattr(Machine, "halt", lambda _: None)
    return Twin(layout)


def test_a_removal_that_fails_can_be_repeated_until_the_node_is_deleted(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[str] = []

    for _ in range(2):
        with pytest.raises(TwinError, match="API server does not respond"):
            twin.remove("gpu-0")
    monkeypatch.setattr(node_objects, "delete", lambda _, name: deleted.append(name))
    twin.remove("gpu-0")

    assert deleted == ["gpu-0"], "the Node would stay, and its pods with it"
    assert not twin.layout.machine("gpu-0").folder.exists()
    events = [json.loads(line) for line in twin.events.read_text().splitlines()]
    assert [(event["kind"], event["node"]) for event in events] == [("remove", "gpu-0")]
