"""Operations on a machine, without processes and without an API server."""

import errno
import json
from pathlib import Path

import pytest
from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.nodes import MachineSpec, Role, Twin, node_objects
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.machine.machine import Machine
from cloudtwin.nodes.records import MachineRecord
from cloudtwin.nodes.twin import api_errors


@pytest.fixture
def twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Twin:
    """Return a twin with a machine that is gone."""
    layout = Layout(tmp_path / "twin")
    files.write_json(layout.settings, {"port": 1})
    MachineRecord(MachineSpec("gpu-0", Role.GPU), 1, {}, "key").save(layout.machine("gpu-0").record)
    monkeypatch.setattr(Machine, "halt", lambda _: None)
    return Twin(layout)


def test_a_removal_that_fails_can_be_repeated_until_the_node_is_deleted(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionRefusedError("Connection refused")

    deleted: list[str] = []
    monkeypatch.setattr(node_objects, "delete", refuse)

    for _ in range(2):
        with pytest.raises(TwinError, match="API server does not respond"):
            twin.remove("gpu-0")
    monkeypatch.setattr(node_objects, "delete", lambda _, name: deleted.append(name))
    twin.remove("gpu-0")

    assert deleted == ["gpu-0"], "the Node would stay, and its pods with it"
    assert not twin.layout.machine("gpu-0").folder.exists()
    events = [json.loads(line) for line in twin.events.read_text().splitlines()]
    assert [(event["kind"], event["node"]) for event in events] == [("remove", "gpu-0")]


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("timed out")])
def test_an_api_server_that_does_not_respond_is_named(error: OSError) -> None:
    with pytest.raises(TwinError, match=f"API server does not respond: {error}"), api_errors():
        raise error


def test_a_full_disk_is_not_reported_as_an_api_server_that_does_not_respond() -> None:
    with pytest.raises(OSError, match="No space left"), api_errors():
        raise OSError(errno.ENOSPC, "No space left on device")
