"""Projects that `everstep init` writes."""

import os
from pathlib import Path

import pytest
import yaml

from everstep.cli.project import known_stacks, next_steps, write_project
from everstep.errors import EverstepError


def test_a_project_has_the_program_its_stacks_and_a_readme(tmp_path: Path) -> None:
    paths = write_project(tmp_path / "mine", ["local", "eks-dev"], force=False)

    names = {str(path.relative_to(tmp_path / "mine")) for path in paths}
    assert names == {
        "Pulumi.yaml",
        "__main__.py",
        "README.md",
        ".gitignore",
        "stacks/Pulumi.local.yaml",
        "stacks/Pulumi.eks-dev.yaml",
    }
    assert yaml.safe_load((tmp_path / "mine" / "Pulumi.yaml").read_text())["name"] == "everstep"


def test_existing_files_are_overwritten_only_with_force(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")

    with pytest.raises(EverstepError, match="would be overwritten") as error:
        write_project(tmp_path, ["local"], force=False)
    assert "--force" in error.value.fix
    assert (tmp_path / "README.md").read_text() == "mine"
    assert not (tmp_path / "Pulumi.yaml").exists(), (
        "a refused project must not be written partially"
    )

    write_project(tmp_path, ["local"], force=True)
    assert (tmp_path / "README.md").read_text() != "mine"


def test_an_unknown_stack_is_refused_with_similar_names(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match="no stack named 'eks-dve'") as error:
        write_project(tmp_path, ["eks-dve"], force=False)
    assert "Did you mean eks-dev" in error.value.fix


@pytest.mark.parametrize("stack", known_stacks())
def test_the_next_steps_of_every_stack_include_up(tmp_path: Path, stack: str) -> None:
    assert "everstep up" in next_steps(tmp_path, [stack])


@pytest.mark.parametrize(
    ("folder", "command"), [("a b", "cd 'a b'"), ("-b", "cd ./-b"), ("/tmp/c", "cd /tmp/c")]
)
def test_the_first_step_enters_a_folder_of_any_name(folder: str, command: str) -> None:
    assert next_steps(Path(folder), ["local"]).splitlines()[0] == command


@pytest.mark.parametrize("stack", ["eks-dev", "aks-prod"])
def test_a_stack_of_a_cloud_needs_a_backend_and_a_check_before_it_is_brought_up(
    tmp_path: Path, stack: str
) -> None:
    steps = next_steps(tmp_path, [stack]).splitlines()

    up = steps.index(f"everstep up --stack {stack}")
    assert steps.index("pulumi login URL") < up
    assert steps.index(f"everstep doctor --stack {stack}") < up
    assert any(step.startswith("pip install 'everstep[local,a") for step in steps)
    assert f"pulumi stack init {stack} --secrets-provider PROVIDER" in steps


def test_a_path_that_cannot_be_a_folder_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(EverstepError, match=r"file/Pulumi.yaml cannot be written") as error:
        write_project(tmp_path / "file", ["local"], force=False)
    assert "Name a folder" in error.value.fix


def test_a_folder_whose_name_is_not_text_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    folder = tmp_path / os.fsdecode(b"bad\xff")

    with pytest.raises(EverstepError, match="is not UTF-8"):
        write_project(folder, ["local"], force=False)
    assert not folder.exists()
