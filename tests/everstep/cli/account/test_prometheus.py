"""The check of `everstep doctor --stack` that the cluster has a Prometheus operator."""

import json
from pathlib import Path

import pytest
import typer
import yaml

from components.platform.operator_objects import KINDS
from everstep.cli.account import doctor
from everstep.cli.errors import FAILED
from everstep.errors import EverstepError
from tests.components.existing.api_server import api_server
from tests.everstep.cli.projects import enter_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter an empty project; return the path of its stack file, which a test writes."""
    enter_project(tmp_path, monkeypatch, {})
    return tmp_path / "stacks/Pulumi.own.yaml"


def write(project: Path, kubeconfig: str, kind: str = "operator") -> None:
    file = project.with_name("kubeconfig")
    file.write_text(kubeconfig)
    config = {
        "everstep:cluster": {"kind": "existing", "kubeconfig": str(file)},
        "everstep:platform": {"monitoring": {"kind": kind}},
    }
    project.write_text(yaml.safe_dump({"config": config}))


def check(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    (result,) = json.loads(capsys.readouterr().out)["checks"]
    assert isinstance(result, dict)
    return result


def test_a_missing_operator_is_a_fatal_result(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with api_server(404) as (kubeconfig, _):
        write(project, kubeconfig)
        with pytest.raises(typer.Exit) as end:
            doctor.run("own", as_json=True)
    assert end.value.exit_code == FAILED

    result = check(capsys)
    assert (result["passed"], result["fatal"]) == (False, True)
    assert "PodMonitor" in str(result["observed"])
    assert "install one first" in str(result["fix"])


def test_an_operator_passes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with api_server(200, *KINDS) as (kubeconfig, _):
        write(project, kubeconfig)
        doctor.run("own", as_json=True)

    assert check(capsys)["passed"] is True


def test_a_cluster_that_denies_access_is_a_warning(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with api_server(403) as (kubeconfig, _):
        write(project, kubeconfig)
        doctor.run("own", as_json=True)

    result = check(capsys)
    assert (result["passed"], result["fatal"]) == (False, False)
    assert "not checked" in str(result["observed"])


def test_a_stack_without_an_account_or_an_operator_has_nothing_to_check(project: Path) -> None:
    write(project, "contexts: []", kind="none")

    with pytest.raises(EverstepError, match="no account that can be checked"):
        doctor.run("own", as_json=True)
