"""The environment of the engine, and its errors."""

from pathlib import Path

import pytest

from everstep.cli.engine.driver import Engine, engine_environment
from everstep.cli.engine.workspace import Workspace
from everstep.errors import EverstepError


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, "local", "test", tmp_path / "state")


def test_the_engine_uses_a_local_backend_and_gets_no_passphrase_in_a_variable(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    settings = engine_environment(workspace, None)

    assert settings["PULUMI_BACKEND_URL"] == f"file://{workspace.engine}/state?metadata=skip"
    assert "PULUMI_CONFIG_PASSPHRASE" not in settings
    assert (workspace.engine / "passphrase").read_text() not in settings.values()


def test_a_passphrase_of_the_user_takes_precedence(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")

    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in engine_environment(workspace, None)


def test_an_unreadable_state_of_another_stack_is_reported_with_its_name(
    workspace: Workspace, tmp_path: Path
) -> None:
    program = tmp_path / "pulumi"
    program.write_text("#!/bin/sh\necho error: access denied >&2; exit 255\n")
    program.chmod(0o755)
    engine = Engine(workspace, program, {}, has_user_backend=True)

    with pytest.raises(EverstepError, match="the state of stack platform cannot be read"):
        engine.deployment("platform")
    with pytest.raises(EverstepError, match="the state of stack local cannot be read"):
        engine.deployment()
