"""The environment of the engine, and its errors."""

import os
import signal
from pathlib import Path

import pytest

from everstep.cli.engine import driver
from everstep.cli.engine.driver import Engine, engine_environment, read_deployment, state_file
from everstep.cli.engine.events import EventLog
from everstep.cli.engine.workspace import Workspace
from everstep.cli.termination import termination_as_exception
from everstep.errors import EverstepError
from everstep.progress import Silent


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


def test_the_state_is_plain_json_whatever_the_user_sets_for_another_backend(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_DIY_BACKEND_GZIP", "true")

    # With local.json.gz, `down` would find no state and leave every object of a user's cluster.
    assert engine_environment(workspace, None)["PULUMI_DIY_BACKEND_GZIP"] == "false"


@pytest.mark.usefixtures("interruptible")
def test_an_error_of_the_display_lets_the_engine_save_its_state(
    workspace: Workspace, tmp_path: Path
) -> None:
    program, saved = tmp_path / "pulumi", tmp_path / "saved"
    program.write_text(
        "#!/bin/sh\n"
        f"trap 'touch {saved}; exit 1' INT\n"
        'while [ $# -gt 1 ]; do if [ "$1" = --event-log ]; then echo "not JSON" >"$2"; fi; shift; done\n'
        "for _ in $(seq 200); do sleep 0.1; done\n"
    )
    program.chmod(0o755)
    workspace.stack_file.parent.mkdir()
    workspace.stack_file.write_text("config: {}\n")
    workspace.engine.mkdir(parents=True)

    with pytest.raises(ValueError, match="Expecting value"):
        Engine(workspace, program, dict(os.environ)).up(Silent())
    assert saved.exists()


@pytest.mark.usefixtures("interruptible")
def test_after_ctrl_c_the_engine_finishes_running_operations_however_long_they_take(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "STOP_SECONDS", 0.1)
    program, saved, started = (tmp_path / name for name in ("pulumi", "saved", "started"))
    program.write_text(
        f"#!/bin/sh\ntrap 'sleep 1; touch {saved}; exit 1' INT\ntouch {started}\n"
        "for _ in $(seq 200); do sleep 0.1; done\n"
    )
    program.chmod(0o755)
    workspace.stack_file.parent.mkdir()
    workspace.stack_file.write_text("config: {}\n")
    workspace.engine.mkdir(parents=True)

    def interrupt(_: EventLog) -> None:
        if started.exists():
            raise KeyboardInterrupt

    monkeypatch.setattr(EventLog, "advance", interrupt)

    with pytest.raises(KeyboardInterrupt):
        Engine(workspace, program, dict(os.environ)).up(Silent())
    assert saved.exists(), "a cluster whose creation is killed is not in the state"


@pytest.mark.usefixtures("interruptible")
def test_a_preview_of_a_terminated_command_ends_in_order(tmp_path: Path) -> None:
    """A preview that is killed would leave its lock."""
    program, unlocked = tmp_path / "pulumi", tmp_path / "unlocked"
    program.write_text(
        f"#!/bin/sh\ntrap 'sleep 1; touch {unlocked}; exit 1' INT\n"
        "sleep 0.5; kill -TERM $PPID\nfor _ in $(seq 200); do sleep 0.1; done\n"
    )
    program.chmod(0o755)

    with pytest.raises(SystemExit) as raised, termination_as_exception():
        driver.run_in_foreground([str(program)], dict(os.environ))

    assert unlocked.exists()
    assert raised.value.code == 128 + signal.SIGTERM


def test_the_exit_code_of_a_preview_is_returned() -> None:
    assert driver.run_in_foreground(["sh", "-c", "exit 3"], dict(os.environ)) == 3


def test_a_passphrase_of_the_user_takes_precedence(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")

    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in engine_environment(workspace, None)


def test_an_unreadable_state_is_reported_with_the_name_of_its_stack(
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


@pytest.mark.parametrize(
    ("state", "deployment"),
    [
        ('{"checkpoint": {"latest": {"resources": [{"id": "a"}]}}}', {"resources": [{"id": "a"}]}),
        ('{"checkpoint": {"latest": {"manifest": {}}}}', {"manifest": {}}),
        ('{"checkpoint": {"latest": null}}', {}),
        ("{}", {}),
        ('{"checkpoint": {"latest": {"resources": 3}}}', None),
        ('{"checkpoint": {"latest": {"resources": [null]}}}', None),
        ('{"checkpoint": {"latest": []}}', {}),
        ('{"checkpoint": ["latest"]}', None),
        ("3", None),
        ('{"checkpoint": ', None),
    ],
)
def test_a_state_of_the_wrong_form_is_none(
    state: str, deployment: object, workspace: Workspace
) -> None:
    state_file(workspace).parent.mkdir(parents=True)
    state_file(workspace).write_text(state)

    assert read_deployment(workspace) == deployment
