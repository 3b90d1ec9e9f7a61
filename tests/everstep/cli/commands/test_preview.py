"""`everstep preview`: its policy packs, as in .github/workflows/pull-request.yaml, and its interruption."""

from pathlib import Path

import pytest

from everstep.cli.commands import preview
from everstep.cli.engine.context import StackContext, policy_pack_folder
from everstep.cli.engine.driver import Engine
from everstep.cli.engine.stack_file import default_config
from everstep.cli.engine.target import Target
from everstep.cli.engine.workspace import Workspace
from everstep.errors import EverstepError

REPOSITORY = Path(__file__).parents[4]


def test_the_repositorys_policy_pack_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)

    assert policy_pack_folder("policy") == REPOSITORY / "policy"


def test_a_folder_without_a_policy_pack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match=r"is not a policy pack: .*PulumiPolicy\.yaml"):
        policy_pack_folder(str(tmp_path))


def test_only_commands_that_evaluate_the_program_get_policy_packs(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "local", "test", tmp_path / "state")
    workspace.stack_file.parent.mkdir()
    workspace.stack_file.write_text("config: {}\n")
    engine = Engine(workspace, Path("pulumi"), {}, (Path("/pack"),))

    assert engine.command(["preview"])[-2:] == ["--policy-pack", "/pack"]
    assert "--policy-pack" not in engine.command(["stack", "ls"])


@pytest.mark.parametrize("up_began", [False, True], ids=["preview only", "up began meanwhile"])
def test_an_interrupted_preview_leaves_nothing_but_the_state_of_a_concurrent_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, up_began: bool
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "of the user")
    workspace = Workspace(tmp_path, "eks-dev", "test", tmp_path / "state")
    context = StackContext(workspace, default_config(workspace), Target.TWIN_CLOUD)

    def interrupted(*_: object, **__: object) -> Engine:
        workspace.engine.mkdir(parents=True)
        if up_began:
            workspace.lock.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(StackContext, "engine", interrupted)

    with pytest.raises(KeyboardInterrupt):
        preview._preview(context, [], [], {})
    assert workspace.state.exists() == up_began
