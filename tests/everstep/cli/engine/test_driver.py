"""The environment of the engine."""

from pathlib import Path

import pytest

from everstep.cli.engine.driver import engine_environment
from everstep.cli.engine.workspace import Workspace


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
