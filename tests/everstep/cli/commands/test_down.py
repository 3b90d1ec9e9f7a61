"""The confirmation prompt of `everstep down`."""

from pathlib import Path

import pytest
import typer

from everstep.cli.commands import down
from everstep.cli.engine.context import StackContext
from everstep.cli.engine.stack_file import default_config
from everstep.cli.engine.target import Target
from everstep.cli.engine.workspace import Workspace


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
