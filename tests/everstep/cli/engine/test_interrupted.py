"""Adoption of objects that are not in the state."""

import json
from pathlib import Path

import pytest

from everstep.cli.engine.interrupted import takeover_variables

UPSERT = "PULUMI_K8S_UPSERT_EXISTING_OBJECTS"


def write_state(folder: Path, *pending: tuple[str, str]) -> Path:
    """Write a state file with operations that were pending when the update was killed."""
    operations = [{"type": kind, "resource": {"type": token}} for kind, token in pending]
    path = folder / "state.json"
    path.write_text(json.dumps({"checkpoint": {"latest": {"pending_operations": operations}}}))
    return path


def test_objects_that_a_killed_update_was_creating_are_adopted(tmp_path: Path) -> None:
    variables = takeover_variables(
        write_state(tmp_path, ("creating", "kubernetes:core/v1:Service"))
    )

    assert variables[UPSERT] == "true"


@pytest.mark.parametrize(
    "pending",
    [
        [],
        [("updating", "kubernetes:core/v1:Service")],
        [("creating", "aws:ec2/vpc:Vpc")],
    ],
)
def test_every_other_object_that_exists_is_refused(
    tmp_path: Path, pending: list[tuple[str, str]]
) -> None:
    assert takeover_variables(write_state(tmp_path, *pending)) == {}, (
        "it may belong to another owner"
    )


def test_a_stack_without_a_state_adopts_nothing(tmp_path: Path) -> None:
    assert takeover_variables(tmp_path / "absent.json") == {}
