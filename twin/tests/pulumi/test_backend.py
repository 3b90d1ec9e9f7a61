"""The state of a stack after a process that was killed while it wrote the state."""

from pathlib import Path

import pytest
from cloudtwin.pulumi import backend_url

from twin.tests.project import Project

pytestmark = pytest.mark.twin


def attribute_files(state: Path) -> list[Path]:
    return list(state.rglob("*.attrs"))


def test_no_command_writes_a_file_that_a_kill_could_leave_empty(
    project: Project, tmp_path: Path
) -> None:
    project.program("pulumi.export('value', 1)")

    project.up()
    project.destroy()

    assert list((tmp_path / "state").rglob("*.json")), "the state must be in this folder"
    assert not attribute_files(tmp_path / "state")


def test_a_default_backend_with_an_empty_attributes_file_is_repaired_by_deleting_the_file(
    project: Project, tmp_path: Path
) -> None:
    state = tmp_path / "default"
    state.mkdir()
    project.environment["PULUMI_BACKEND_URL"] = backend_url(state).partition("?")[0]
    project.pulumi("stack", "init", "test")
    project.up()
    [attributes] = [file for file in attribute_files(state) if file.name == "test.json.attrs"]
    attributes.write_text("")
    assert "failed to load checkpoint: EOF" in project.pulumi("cancel", "--yes", fails=True)

    attributes.unlink()

    project.up()
