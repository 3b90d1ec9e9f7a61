"""The start of the twin's registry, without its program."""

import os
from pathlib import Path

import pytest
from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.nodes.control_plane import registry
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.linux.processes import Process
from cloudtwin.progress import Silent

ENDED = Process(4194305, 0)  # above the largest possible PID


def test_a_registry_that_ends_while_starting_is_an_error_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(tmp_path / "twin")
    files.write_json(layout.settings, {"registry_port": 1})
    monkeypatch.setattr(registry, "ensure_tools", lambda *_: {"registry": Path("/bin/registry")})
    monkeypatch.setattr(registry, "process_in_network", lambda _: Process.of(os.getpid()))
    monkeypatch.setattr(registry, "start_component", lambda *_: ENDED)

    with pytest.raises(TwinError, match="registry does not respond") as error:
        registry.ensure(layout, CgroupHierarchies(tmp_path, 2), Silent())

    assert str(layout.log("registry")) in error.value.fix
