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
            "InvalidParameterException: Minimum capacity 3 can't be greater than desired size 2",
            True,
        ),
        ("InvalidParameterException: desiredSize can't be greater than maxSize", True),
        ("scalingConfig: minSize 3 <= desiredSize 2 <= maxSize 6 must hold", True),
        ("scalingConfig.maxSize: 0: a group has 1 to 450 nodes", False),
    ],
)
def test_bounds_that_exclude_the_size_of_a_node_group_lead_to_the_section_about_sizes(
    tmp_path: Path, output: str, has_hint: bool
) -> None:
    assert ("'Sizes under autoscaling'" in fix_of(output, tmp_path)) is has_hint


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
    fix = fix_of(output, tmp_path)

    assert output in fix
    assert ("An update that was killed" in fix) is has_hint


def fix_of(output: str, folder: Path) -> str:
    """Return the fix in the error of an update with an output."""
    (folder / "up.log").write_text(output)
    workspace = Workspace(folder, "eks-dev", "eks-dev", folder)
    with Silent().step("Bringing up the stack") as step:
        events = EventLog(folder / "none", step)
        return engine_failure("up", workspace, events, folder / "up.log").fix
