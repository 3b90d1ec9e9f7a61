"""The volume of an existing cluster: a PersistentVolume by its name, or a class that provisions one."""

from typing import Any

import pytest

from components.config import ClaimConfig, from_mapping
from components.existing.claim import ExistingVolume, volume_faults
from tests.components.existing.existing_stack import declare_existing

CLAIM = {"kind": "claim", "size": "50Gi"}


def volume(**changes: Any) -> ExistingVolume:
    """Return a volume that the stack can use, with some attributes changed."""
    attributes: dict[str, Any] = {
        "name": "shared",
        "access_modes": ("ReadOnlyMany", "ReadWriteMany"),
        "reclaim_policy": "Retain",
        "storage_class": "",
        "capacity": "1Ti",
        "phase": "Available",
        "claim": None,
    }
    return ExistingVolume(**(attributes | changes))


def config(**values: Any) -> ClaimConfig:
    return ClaimConfig.model_validate({"volumeName": "shared"} | values)


def test_a_class_provisions_the_volume_of_the_claim() -> None:
    graph = declare_existing(storage=CLAIM | {"storageClass": "azurefile-csi"})

    claim = graph["training-storage-claim"].inputs["spec"]
    assert claim["storageClassName"] == "azurefile-csi"
    assert claim["resources"]["requests"] == {"storage": "50Gi"}
    assert claim["accessModes"] == ["ReadWriteMany"]
    assert "volumeName" not in claim
    assert "training-storage-volume" not in graph.resources, (
        "its claimRef would name the same claim"
    )


def test_etcd_keeps_no_log_on_a_claimed_volume() -> None:
    stack = from_mapping({"storage": CLAIM})

    assert stack.etcd.persistence == "memory", "each write of etcd would wait for the network"


def test_a_claim_with_neither_a_class_nor_a_volume_uses_the_default_class() -> None:
    graph = declare_existing(storage=CLAIM)

    assert "storageClassName" not in graph["training-storage-claim"].inputs["spec"], (
        "with an empty class, no volume would be provisioned"
    )


@pytest.mark.parametrize(
    "usable",
    [
        volume(),
        volume(phase="Bound", claim=("elastic-job", "everstep")),
        volume(claim=("elastic-job", "everstep")),
    ],
    ids=["free", "of this stack", "reserved for this stack"],
)
def test_a_free_volume_and_the_volume_of_this_stack_can_be_used(usable: ExistingVolume) -> None:
    assert volume_faults(config(size="1Ti"), usable) == []


@pytest.mark.parametrize(
    ("changes", "values", "path", "fix"),
    [
        ({"access_modes": ("ReadWriteOnce",)}, {}, "storage.volumeName", "shared file system"),
        ({"reclaim_policy": "Delete"}, {}, "storage.volumeName", "Retain"),
        ({"storage_class": "efs"}, {}, "storage.storageClass", "set it to efs"),
        ({}, {"storageClass": "efs"}, "storage.storageClass", "remove it"),
        ({"capacity": "40Gi"}, {"size": "41Gi"}, "storage.size", "set it to 40Gi"),
        (
            {"phase": "Bound", "claim": ("other", "everstep")},
            {},
            "storage.volumeName",
            "another volume",
        ),
        (
            {"phase": "Released", "claim": ("elastic-job", "everstep")},
            {},
            "storage.volumeName",
            '"claimRef":null',
        ),
    ],
    ids=["one node", "deleted", "class", "no class", "too small", "of another claim", "released"],
)
def test_a_volume_that_the_claim_cannot_use_is_refused_with_a_fix(
    changes: dict[str, Any], values: dict[str, Any], path: str, fix: str
) -> None:
    (fault,) = volume_faults(config(**values), volume(**changes))

    assert fault.path == path
    assert fix in fault.fix
