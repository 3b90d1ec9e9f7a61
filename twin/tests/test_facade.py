"""What callers learn about a twin from the facade."""

from pathlib import Path

from cloudtwin.facade import shared_volume
from cloudtwin.nodes.layout import Layout
from cloudtwin.providers import volumes


def test_the_shared_volume_is_the_volume_that_pods_may_mount(tmp_path: Path) -> None:
    """An account may have containers with data that pods read without a mount."""
    subject = "system:serviceaccount:elastic-job:trainer"
    volumes.write(
        tmp_path,
        "azure-native",
        {
            "data#account#photographs": {"folder": "account/photographs", "allowed": {}},
            "group#stack#training": {"folder": "stack/training", "allowed": {"id": [subject]}},
        },
    )

    assert shared_volume(tmp_path) == Layout(tmp_path).shared / "stack/training"


def test_there_is_no_shared_volume_before_a_pod_may_mount_one(tmp_path: Path) -> None:
    assert shared_volume(tmp_path) is None
    volumes.write(tmp_path, "aws", {"fs-0": {"folder": "fs-0", "allowed": False}})
    assert shared_volume(tmp_path) is None
