"""Contexts of stacks: the warning before a deployment, and separate logs of moves."""

from pathlib import Path

import pytest
import yaml

from everstep.cli.engine.context import open_stack, open_stack_to_deploy
from everstep.cli.report.moves import MoveLog
from tests.everstep.cli.projects import enter_project, shipped_stack


@pytest.mark.parametrize(("max_price", "warned"), [(0.01, True), (-1, False), (0.2, False)])
def test_a_pool_above_its_price_ceiling_is_reported_before_anything_is_bought(
    max_price: float,
    warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = shipped_stack("aks-prod")
    content["config"]["everstep:cluster"]["gpuPool"] |= {
        "vmSizes": [{"name": "t4", "vmSize": "Standard_NC4as_T4_v3"}],
        "maxPrice": max_price,
    }
    enter_project(tmp_path, monkeypatch, {"capped": yaml.safe_dump(content)})

    open_stack_to_deploy("capped", twin=True)

    message = " ".join(capsys.readouterr().err.split())
    assert ("the pool t4 gets no machine" in message) is warned


def test_jobs_on_one_platform_have_separate_records_of_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs share the state of the platform, but each report has only the moves of its job."""
    job = "config:\n  everstep:platformStack: {name: eks-dev}\n  everstep:job: {name: second}\n"
    stack = yaml.safe_dump(shipped_stack("eks-dev"))
    enter_project(tmp_path, monkeypatch, {"eks-dev": stack, "second": job})
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "twins"))
    first, second = (open_stack(name, twin=True) for name in ("eks-dev", "second"))
    move = {"began": "2026-11-23T12:00:00Z", "from": "zone-a", "to": "zone-b"}

    MoveLog(first.moves).add({"placement": {"moves": [move]}})

    assert second.workspace.home == first.workspace.home
    assert MoveLog(first.moves).observed
    assert not MoveLog(second.moves).observed
