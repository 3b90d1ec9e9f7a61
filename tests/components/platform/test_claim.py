"""The claim of the shared volume."""

import pytest

from tests.components.existing.existing_stack import declare_existing


def test_the_volume_is_reserved_for_the_claim_and_outlives_it() -> None:
    graph = declare_existing(storage={"path": "/data/shared", "size": "1Ti"})
    volume, claim = (graph[f"training-storage-{part}"].inputs for part in ("volume", "claim"))

    assert volume["spec"]["hostPath"] == {"path": "/data/shared", "type": "Directory"}
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    reference = volume["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"]) == ("elastic-job", claim["metadata"]["name"])
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert claim["spec"]["storageClassName"] == "", "a class would provision another volume"


def test_a_claim_without_a_class_keeps_its_request_while_its_volume_grows() -> None:
    graph = declare_existing(storage={"path": "/data/shared", "size": "1Ti"})

    claim = graph["training-storage-claim"]
    assert claim.inputs["spec"]["resources"]["requests"] == {"storage": "1Ti"}
    assert claim.ignore_changes == ("spec.resources.requests",), (
        "the API server refuses to grow a claim without a class, so `up` would fail"
    )
    volume = graph["training-storage-volume"]
    assert not any("capacity" in path for path in volume.ignore_changes)


def test_a_claim_with_a_class_can_grow() -> None:
    graph = declare_existing(
        storage={"kind": "claim", "storageClass": "azurefile-csi", "size": "1Ti"}
    )

    assert graph["training-storage-claim"].ignore_changes == ()


@pytest.mark.parametrize(
    ("storage", "protected"),
    [
        ({"kind": "claim", "storageClass": "azurefile-csi"}, True),
        ({"kind": "claim"}, True),
        ({"path": "/data/shared"}, False),  # its volume outlives the claim
    ],
)
def test_the_claim_of_a_provisioned_volume_is_protected_with_the_stack(
    storage: dict[str, str], protected: bool
) -> None:
    graph = declare_existing(storage=storage, protect=True)

    assert graph["training-storage-claim"].protect is protected
    assert not declare_existing(storage=storage)["training-storage-claim"].protect
