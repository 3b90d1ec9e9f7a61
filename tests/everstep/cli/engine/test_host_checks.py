"""Checks of this machine before `up`."""

from pathlib import Path

import pytest

from everstep.cli.engine.host_checks import HostCheck, disk, raise_for_failures
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
