"""The stack whose account `everstep doctor --stack` checks."""

from pathlib import Path

import pytest

from components.config import StackConfig
from everstep.cli.account import doctor
from everstep.cli.account.checks import AccountCheck
from tests.everstep.cli.projects import enter_project

PLATFORM = """config:
  everstep:tags: {owner: me, costCenter: "1", environment: dev}
  everstep:cluster: {kind: eks, publicAccess: [192.0.2.0/24]}
"""
JOB = """config:
  everstep:platformStack: {name: eks-dev}
  everstep:job: {name: second}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter a project with a stack that has a platform, and a stack with only a job on it."""
    enter_project(tmp_path, monkeypatch, {"eks-dev": PLATFORM, "second": JOB})


@pytest.mark.parametrize("stack", ["eks-dev", "second"])
def test_a_job_is_checked_with_the_cluster_of_its_platform(
    stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[tuple[str, str]] = []

    def record(config: StackConfig, stack: str, _secrets_provider: str) -> list[AccountCheck]:
        checked.append((config.cluster.kind, stack))
        return []

    monkeypatch.setattr(doctor, "account_checks", record)

    doctor.run(stack, as_json=True)

    assert checked == [("eks", "eks-dev")], "resources are named after the stack of the platform"
