"""Causes in the messages of failed updates."""

from pathlib import Path

import pytest

from everstep.cli.engine.events import EventLog
from everstep.cli.engine.failures import engine_failure, images_not_pulled
from everstep.cli.engine.workspace import Workspace
from everstep.progress import Silent


def test_missing_images_are_parsed_from_kubelet_messages() -> None:
    message = (
        'Deployment a got stuck: ErrImagePull: failed to pull and unpack image "example/b:1": no\n'
        'pod c: ImagePullBackOff: Back-off pulling image \\"example/b:1\\"\n'
        'pod d: Successfully pulled image "example/d:1"'
    )

    assert images_not_pulled(message) == ["example/b:1"]


@pytest.mark.parametrize(
    ("output", "has_hint"),
    [
        (
            "creating IAM Role: EntityAlreadyExists: Role with name everstep-nodes already exists.",
            True,
        ),
        ("creating EKS Cluster: UnsupportedAvailabilityZoneException", False),
    ],
)
def test_a_resource_that_exists_already_leads_to_the_section_about_killed_updates(
    tmp_path: Path, output: str, has_hint: bool
) -> None:
    (tmp_path / "up.log").write_text(output)
    workspace = Workspace(tmp_path, "eks-dev", "eks-dev", tmp_path)

    with Silent().step("Bringing up the stack") as step:
        events = EventLog(tmp_path / "none", step)
        error = engine_failure("up", workspace, events, tmp_path / "up.log")

    assert output in error.fix
    assert ("An update that was killed" in error.fix) is has_hint
