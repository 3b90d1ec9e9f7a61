"""The environment for pulumi and kubectl by hand: it reaches the cluster of the stack, not another one of the user."""

import os
from pathlib import Path

import pytest
import yaml

from everstep.cli.commands.env import env
from everstep.cli.engine.context import StackContext, open_stack
from everstep.cli.engine.driver import Engine
from tests.everstep.cli.projects import enter_project, shipped_stack


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter a project with a stack of a cloud, a job on it, a local stack and one on a cluster of the user's own."""
    stacks = {
        "eks-dev": yaml.safe_dump(shipped_stack("eks-dev")),
        "second": "config:\n  everstep:platformStack: {name: eks-dev}\n  everstep:job: {name: second}\n",
        "local": "config: {}",
        "team": "config: {everstep:cluster: {kind: existing, kubeconfig: /home/me/team}}",
    }
    enter_project(tmp_path / "project", monkeypatch, stacks)
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "twins"))
    monkeypatch.setenv("EVERSTEP_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("EVERSTEP_TWIN", raising=False)
    monkeypatch.setenv("KUBECONFIG", "/home/me/production")
    monkeypatch.setattr(
        StackContext,
        "engine",
        lambda stack, _: Engine(stack.workspace, Path("pulumi"), dict(os.environ)),
    )


def exports(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    lines = capsys.readouterr().out.splitlines()
    pairs = [line.removeprefix("export ").partition("=") for line in lines]
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize(
    ("stack", "twin"), [("eks-dev", True), ("second", True), ("local", False), ("team", False)]
)
def test_kubectl_reaches_the_cluster_of_the_stack(
    stack: str, twin: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    env(stack=stack, twin=twin)

    assert exports(capsys)["KUBECONFIG"] == str(open_stack(stack, twin=twin).kubeconfig())


def test_kubectl_reaches_the_twin_instead_of_the_users_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env(stack="eks-dev", twin=True)

    assert exports(capsys)["KUBECONFIG"].startswith(str(tmp_path / "twins" / "eks-dev"))


def test_the_users_kubeconfig_is_left_for_a_real_cloud(capsys: pytest.CaptureFixture[str]) -> None:
    env(stack="eks-dev")

    assert "KUBECONFIG" not in exports(capsys), "it is already in the environment"
