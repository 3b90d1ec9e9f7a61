"""Cases of faults for the doctor of each cloud, and assertions on its results."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from everstep.cli.account.checks import AccountCheck

Doctor = Callable[..., list[AccountCheck]]
Case = tuple[dict[str, Any], dict[str, Any], str, tuple[str, ...], bool]
"""The stack's keys, the account's facts, the field, parts of the message, and whether the failed check is fatal."""


def failed_checks(checks: Sequence[AccountCheck]) -> list[AccountCheck]:
    return [check for check in checks if not check.passed]


def only_failed_check(checks: Sequence[AccountCheck]) -> AccountCheck:
    """Return the only check that did not pass."""
    (check,) = failed_checks(checks)
    return check


def check_named(checks: Sequence[AccountCheck], name: str) -> AccountCheck:
    """Return the only check with this name."""
    (check,) = [check for check in checks if check.name == name]
    return check


def check_case(doctor: Doctor, case: Case) -> list[AccountCheck]:
    """Check that the result for a fault has its field, its message and a fix; return all failed checks."""
    keys, facts, field, message, fatal = case
    checks = failed_checks(doctor(**keys, **facts))
    (check,) = [check for check in checks if check.field == field]
    for part in message:
        assert part in f"{check.observed}\n{check.fix}"
    assert check.fatal is fatal
    assert check.fix, "a user needs a fix"
    return checks


def check_plain_values(checks: Sequence[AccountCheck]) -> None:
    """Check that results can be printed as JSON."""
    values = [asdict(check) for check in checks]
    assert values
    assert json.loads(json.dumps(values)) == values
