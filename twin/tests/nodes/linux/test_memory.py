"""Memory within the limits of cgroups, versions 1 and 2, in temporary folders."""

from pathlib import Path

import pytest
from cloudtwin.capacity import scaler
from cloudtwin.nodes.linux import memory
from cloudtwin.nodes.machine import machine

from twin.tests.capacity.builders import pool

GIBIBYTE = 1 << 30


def write(folder: Path, version: int, limit: int | str, used: int = 0, cache: int = 0) -> None:
    """Write the files of a memory cgroup."""
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }[version]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{names[2]} {cache}\n")


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, tmp_path: Path) -> int:
    if request.param == 2:
        (tmp_path / "cgroup.controllers").write_text("memory\n")
    (tmp_path / "meminfo").write_text("MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n")
    version: int = request.param
    return version


def top(root: Path, version: int) -> Path:
    return root if version == 2 else root / "memory"


def set_cgroup(root: Path, path: str) -> None:
    (root / "cgroup").write_text(f"5:cpu,memory:{path}\n1:name=systemd:/\n0::{path}\n")


def available(root: Path) -> int | None:
    return memory.available_bytes(root, root, root / "meminfo")


@pytest.mark.parametrize("limited", ["a/b", "a", ""])
def test_the_lowest_limit_up_to_the_root_applies(
    tmp_path: Path, version: int, limited: str
) -> None:
    set_cgroup(tmp_path, "/a/b")
    write(top(tmp_path, version) / limited, version, 2 * GIBIBYTE, used=GIBIBYTE)

    assert available(tmp_path) == GIBIBYTE
    assert memory.usable_bytes(tmp_path, tmp_path) == min(2 * GIBIBYTE, memory.physical_bytes())


def test_the_root_is_the_containers_cgroup_if_its_path_is_not_visible(
    tmp_path: Path, version: int
) -> None:
    set_cgroup(tmp_path, "/docker/0123")
    write(top(tmp_path, version), version, 2 * GIBIBYTE)

    assert available(tmp_path) == 2 * GIBIBYTE


def test_cached_files_count_as_available(tmp_path: Path, version: int) -> None:
    set_cgroup(tmp_path, "/")
    write(top(tmp_path, version), version, 2 * GIBIBYTE, used=2 * GIBIBYTE, cache=GIBIBYTE)

    assert available(tmp_path) == GIBIBYTE


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_without_a_limit_the_memory_is_the_hosts(tmp_path: Path, version: int, limit: str) -> None:
    set_cgroup(tmp_path, "/")
    write(top(tmp_path, version), version, limit)

    assert available(tmp_path) == 32 * GIBIBYTE
    assert memory.usable_bytes(tmp_path, tmp_path) == memory.physical_bytes()


def test_without_any_file_the_memory_is_unknown(tmp_path: Path) -> None:
    assert memory.available_bytes(tmp_path, tmp_path, tmp_path / "meminfo") is None
    assert memory.usable_bytes(tmp_path, tmp_path) == memory.physical_bytes()


def test_machines_and_the_autoscaler_use_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bridge").touch()
    monkeypatch.setattr(machine, "CNI_FOLDERS", (tmp_path,))
    monkeypatch.setattr(memory, "usable_bytes", lambda: 4 * GIBIBYTE)

    assert machine.this_host().usable_bytes == 4 * GIBIBYTE
    assert scaler.nominal_resources(pool()).memory == 2 * GIBIBYTE
