"""Adoption of objects that are not in the state."""

from typing import Any

import pytest

from everstep.cli.engine.interrupted import takeover_variables

UPSERT = "PULUMI_K8S_UPSERT_EXISTING_OBJECTS"


def state(*pending: tuple[str, str]) -> dict[str, Any]:
    """Return a state with operations that were pending when the update was killed."""
    operations = [{"type": kind, "resource": {"type": token}} for kind, token in pending]
    return {"pending_operations": operations}


def test_objects_that_a_killed_update_was_creating_are_adopted() -> None:
    variables = takeover_variables(state(("creating", "kubernetes:core/v1:Service")))

    assert variables[UPSERT] == "true"


@pytest.mark.parametrize(
    "pending",
    [
        [],
        [("updating", "kubernetes:core/v1:Service")],
        [("creating", "aws:ec2/vpc:Vpc")],
    ],
)
def test_every_other_object_that_exists_is_refused(pending: list[tuple[str, str]]) -> None:
    assert takeover_variables(state(*pending)) == {}, "it may belong to another owner"


def test_a_stack_without_a_state_adopts_nothing() -> None:
    assert takeover_variables(None) == {}
