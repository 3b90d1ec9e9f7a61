"""The confirmation prompt of `everstep down`, and what it reports as left."""

from pathlib import Path
from typing import Any

import pytest
import typer

from components.config import from_mapping
from everstep.cli.commands import down
from everstep.cli.engine.context import StackContext
from everstep.cli.engine.stack_file import default_config
from everstep.cli.engine.target import Target
from everstep.cli.engine.workspace import Workspace
from tests.components.config.bad_stacks import AKS, EKS

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def cloud_stack(tmp_path: Path) -> StackContext:
    workspace = Workspace(tmp_path, "eks-dev", "test", tmp_path / "state")
    return StackContext(workspace, default_config(workspace), Target.CLOUD)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the questions that a user at a terminal answered with no."""
    questions: list[str] = []

    def refuse(question: str, **_: object) -> None:
        questions.append(question)
        raise typer.Abort

    monkeypatch.setattr(typer, "confirm", refuse)
    monkeypatch.setattr(down, "can_ask", lambda: True)
    return questions


def test_a_stack_in_a_real_cloud_is_destroyed_only_after_a_question(
    cloud_stack: StackContext, refusals: list[str]
) -> None:
    with pytest.raises(typer.Abort):
        down._keep_or_confirm(cloud_stack, None, yes=False)
    assert refusals == ["This destroys stack eks-dev on a real cloud. Continue?"]


def test_yes_skips_the_question(cloud_stack: StackContext, refusals: list[str]) -> None:
    down._keep_or_confirm(cloud_stack, None, yes=True)

    assert refusals == []


def cloud_context(folder: Path, target: Target, config: dict[str, Any]) -> StackContext:
    workspace = Workspace(folder, "mine", "test", folder / "state")
    return StackContext(workspace, from_mapping(config), target)


@pytest.mark.parametrize(("base", "page"), [(AKS, "docs/aks.md"), (EKS, "docs/eks.md")])
def test_what_a_real_cloud_keeps_of_a_destroyed_stack_is_not_denied(
    base: dict[str, Any], page: str, tmp_path: Path
) -> None:
    result = down._result(cloud_context(tmp_path, Target.CLOUD, base))

    assert result == f"the stack is destroyed; {page}, 'Teardown', lists what the cloud can keep"
    assert "\n## Teardown\n" in (ROOT / page).read_text(encoding="utf-8")


def test_nothing_is_left_of_a_twin(tmp_path: Path) -> None:
    assert down._result(cloud_context(tmp_path, Target.TWIN_CLOUD, AKS)) == "nothing is left"
