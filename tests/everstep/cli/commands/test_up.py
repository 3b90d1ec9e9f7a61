"""The confirmation of `everstep up` before something outside the twin is changed."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer

from components.config import from_mapping
from everstep.cli.commands import up
from everstep.cli.engine.context import StackContext
from everstep.cli.engine.target import Target
from everstep.cli.engine.workspace import Workspace
from everstep.errors import EverstepError
from tests.components.config.bad_stacks import EKS

OWN_CLUSTER = {"cluster": {"kind": "existing", "kubeconfig": "/home/me/team"}}


def stack(folder: Path, target: Target) -> StackContext:
    config = from_mapping(OWN_CLUSTER if target is Target.OWN_CLUSTER else EKS)
    return StackContext(Workspace(folder, "mine", "test", folder / "state"), config, target)


@pytest.mark.parametrize(
    ("target", "effect"),
    [
        (Target.CLOUD, "This changes a real cloud: everstep. Its resources there cost money."),
        (Target.OWN_CLUSTER, "This changes a cluster of your own: /home/me/team."),
    ],
)
def test_without_a_terminal_only_yes_confirms_a_change_outside_the_twin(
    target: Target, effect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Mock(isatty=lambda: False))

    with pytest.raises(EverstepError, match="not a terminal; nothing was changed") as error:
        up._confirm(stack(tmp_path, target), yes=False)

    assert error.value.fix == f"{effect} To confirm it: pass --yes."
    up._confirm(stack(tmp_path, target), yes=True)


def test_at_a_terminal_a_change_outside_the_twin_is_made_only_after_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Mock(side_effect=typer.Abort)
    monkeypatch.setattr(typer, "confirm", ask)
    monkeypatch.setattr(sys, "stdin", Mock(isatty=lambda: True))

    with pytest.raises(typer.Abort):
        up._confirm(stack(tmp_path, Target.OWN_CLUSTER), yes=False)

    assert ask.call_args.args == ("This changes a cluster of your own: /home/me/team. Continue?",)


@pytest.mark.parametrize("target", [Target.TWIN, Target.TWIN_CLOUD])
def test_on_the_twin_nothing_has_to_be_confirmed(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Mock(isatty=lambda: False))
    ask = Mock()
    monkeypatch.setattr(typer, "confirm", ask)

    up._confirm(stack(tmp_path, target), yes=False)

    assert not ask.called
