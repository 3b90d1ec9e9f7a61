"""Checks of this machine before `up`."""

import os
from pathlib import Path

import pytest

from everstep.cli.engine.host_checks import (
    HostCheck,
    control_groups,
    disk,
    memory,
    namespaces,
    raise_for_failures,
)
from everstep.errors import EverstepError


def test_all_missing_prerequisites_are_reported_together() -> None:
    checks = [
        HostCheck("root", passed=False, observed="uid 1000", fix="Use sudo."),
        HostCheck("cgroups", passed=False, observed="none", fix="Mount them."),
        HostCheck("disk", passed=False, observed="1 GiB free", fix="Free some.", fatal=False),
    ]

    with pytest.raises(EverstepError, match=r"root \(uid 1000\); cgroups \(none\)") as error:
        raise_for_failures(checks)
    assert error.value.fix == "Use sudo.\nMount them."
    assert raise_for_failures(checks[2:]) == checks[2:], "low disk space is a warning, not an error"


def test_a_state_path_below_a_file_stops_up_and_is_a_fault_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path in (tmp_path / "file", tmp_path / "file" / "default"):
        check = disk(path)
        assert (check.passed, check.fatal) == (False, True)
        assert "is not a folder that this user can write to" in check.observed
    assert "GiB free" in disk(tmp_path / "new" / "default").observed


@pytest.mark.parametrize("flag", ["access", "mount"])
def test_read_only_control_groups_stop_up_and_the_fix_makes_them_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    (tmp_path / "cgroup.controllers").touch()
    assert control_groups(tmp_path).passed
    if flag == "access":
        monkeypatch.setattr(os, "access", lambda *_arguments: False)
    else:  # root may pass the check of access
        flags = os.statvfs_result((0,) * 8 + (os.ST_RDONLY, 255))
        monkeypatch.setattr(os, "statvfs", lambda _path: flags)

    check = control_groups(tmp_path)

    assert (check.passed, check.fatal) == (False, True)
    assert check.observed == f"read-only cgroups: {tmp_path}"
    assert "--privileged" in check.fix


def test_missing_control_groups_stop_up(tmp_path: Path) -> None:
    for name in ("memory", "pids"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()

    assert "freezer" in control_groups(tmp_path).observed
    assert not control_groups(tmp_path).passed
    assert not control_groups(tmp_path / "none").passed


def test_no_fix_names_capabilities_with_which_control_groups_stay_read_only() -> None:
    assert "CAP_" not in namespaces().fix


def test_the_memory_of_a_container_is_limited_by_its_control_group(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "memory.max").write_text(str(2 << 30))
    (tmp_path / "memory.current").write_text(str(1 << 30))

    check = memory(tmp_path, tmp_path)

    assert (check.passed, check.observed) == (False, "1 GiB available")
    assert "memory limit" in check.fix
