"""The claim of the shared volume."""

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
