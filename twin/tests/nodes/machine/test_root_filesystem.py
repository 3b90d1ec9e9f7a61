"""The root file system of a machine, without mounts."""

from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.nodes.machine import root_filesystem


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a version 2 cgroup whose `memory` cannot be delegated."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    write = Path.write_text

    def refuse_memory(path: Path, text: str) -> int:
        if text == "+memory":
            raise OSError("Device or resource busy")
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", refuse_memory)
    return tmp_path


def test_a_controller_that_is_not_delegated_is_named(
    cgroup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_filesystem, "DELEGATE_SECONDS", 0.0)

    with pytest.raises(TwinError, match="did not delegate memory within"):
        root_filesystem.delegate_controllers(cgroup)


def test_only_paths_outside_bind_mounted_folders_of_the_host_are_mounted_separately() -> None:
    paths = [
        Path("/usr/bin/kubelet"),
        Path("/var/cache/kubelet"),
        Path("/tmp/build/kubelet"),
        Path("/home/a/b"),
    ]

    assert root_filesystem.paths_to_mount(paths) == [
        Path("/tmp/build/kubelet"),
        Path("/var/cache/kubelet"),
    ]
