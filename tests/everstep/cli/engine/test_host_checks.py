"""Checks of this machine before `up`."""

import pytest

from everstep.cli.engine.host_checks import HostCheck, raise_for_failures
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
