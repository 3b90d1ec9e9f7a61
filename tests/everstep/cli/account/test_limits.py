"""The checks of a job's deadline and budget by `everstep doctor --stack`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.config import StackConfig, from_mapping
from everstep.cli.account import doctor
from everstep.cli.account.limits import limit_checks
from tests.everstep.cli.account.cases import check_named, check_plain_values, failed_checks
from tests.everstep.cli.projects import enter_project, shipped_stack


def stack_with(**job: Any) -> StackConfig:
    """Return the configuration of eks-prod with these job keys and the on-demand fallback set."""
    config = shipped_stack("eks-prod")["config"]
    keys = {key.removeprefix("everstep:"): value for key, value in config.items()}
    keys["job"] |= {"onDemand": "fallback", **job}
    return from_mapping(keys)


def test_a_job_without_limits_has_no_checks_and_a_job_within_them_passes() -> None:
    assert list(limit_checks(stack_with(), "eks-prod")) == []

    checks = list(limit_checks(stack_with(deadline="24h", budgetUsd=500), "eks-prod"))

    assert failed_checks(checks) == []
    assert check_named(checks, "deadline").observed.startswith(
        "24h; 72 machine-hours on 6 machines"
    )
    assert "an hour" in check_named(checks, "budgetUsd").observed
    check_plain_values(checks)


@pytest.mark.parametrize(
    ("limits", "field", "message", "fix"),
    [
        (
            {"deadline": "6h", "budgetUsd": 500},
            "job.deadline",
            "take at least 12.1 h",
            "everstep plan --stack eks-prod --work HOURS",
        ),
        (
            {"deadline": "24h", "budgetUsd": 7},
            "job.budgetUsd",
            "below the cost of one hour",
            "or more",
        ),
        ({"deadline": "2020-01-01T00:00:00Z"}, "job.deadline", "not within the next", "Change"),
    ],
)
def test_a_limit_that_no_policy_can_meet_is_a_warning_with_a_fix(
    limits: dict[str, Any], field: str, message: str, fix: str
) -> None:
    (check,) = failed_checks(list(limit_checks(stack_with(**limits), "eks-prod")))

    assert (check.field, check.fatal) == (field, False)
    assert message in check.observed
    assert fix in check.fix


def test_doctor_checks_the_limits_of_a_stack(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = shipped_stack("eks-prod")
    content["config"]["everstep:job"] |= {"budgetUsd": 7}
    enter_project(tmp_path, monkeypatch, {"limited": yaml.safe_dump(content)})
    monkeypatch.setattr(doctor, "account_checks", lambda *_: [])

    doctor.run("limited", as_json=True)

    assert '"name": "budgetUsd"' in capsys.readouterr().out
