"""A stack that uses an existing volume of its cluster: real engine, real API server, simulated nodes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.program.conftest import Project, kubectl

VOLUME = "team-data"

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]


@pytest.fixture
def volume(cluster: Path) -> Iterator[str]:
    """Create a volume that another team declared; its driver would delete it with its claim."""
    spec = {
        "capacity": {"storage": "1Ti"},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Delete",
        "csi": {"driver": "fsx.csi.aws.com", "volumeHandle": "fs-0123456789abcdef0"},
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": VOLUME},
        "spec": spec,
    }
    kubectl(cluster, "create", "-f", "-", stdin=json.dumps(manifest))
    yield VOLUME
    kubectl(cluster, "delete", "pv", VOLUME, "--wait=false")


def use_claim(project: Project, **values: Any) -> None:
    """Make the stack claim a volume of the cluster instead of using a folder on its nodes."""
    content = yaml.safe_load(project.stack_file.read_text(encoding="utf-8"))
    content["config"]["everstep:storage"] = {"kind": "claim", **values}
    project.stack_file.write_text(yaml.safe_dump(content), encoding="utf-8")


def refusal(project: Project) -> str:
    """Return the output of a preview that fails."""
    result = project.run("preview")
    assert result.returncode != 0, result.stdout
    assert "Traceback" not in result.stdout, result.stdout
    return result.stdout


def test_an_existing_volume_is_claimed_and_outlives_the_stack(
    project: Project, cluster: Path, nodes: None, volume: str
) -> None:
    use_claim(project, volumeName=volume, size="500Gi")
    assert "has the reclaim policy Delete" in refusal(project)
    retain = '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
    kubectl(cluster, "patch", "pv", volume, "-p", retain)

    project.run_checked("up", "--yes", "--skip-preview")
    claim = json.loads(
        kubectl(cluster, "-n", "elastic-job", "get", "pvc", "everstep", "-o", "json")
    )
    project.run_checked("preview", "--expect-no-changes")
    project.run_checked("destroy", "--yes", "--skip-preview")

    assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == ("Bound", volume)
    released = json.loads(kubectl(cluster, "get", "pv", volume, "-o", "json"))
    assert released["status"]["phase"] == "Released", "the stack did not create this volume"
    assert "is still reserved for the deleted claim everstep" in refusal(project)
    kubectl(cluster, "patch", "pv", volume, "-p", '{"spec":{"claimRef":null}}')
    project.run_checked("preview")


def test_a_claim_with_a_storage_class_binds_a_volume_of_that_class(
    project: Project, cluster: Path, nodes: None, volume: str
) -> None:
    kubectl(cluster, "patch", "pv", volume, "-p", '{"spec":{"storageClassName":"team"}}')
    use_claim(project, storageClass="team", size="500Gi")

    project.run_checked("up", "--yes", "--skip-preview")
    claim = json.loads(
        kubectl(cluster, "-n", "elastic-job", "get", "pvc", "everstep", "-o", "json")
    )
    project.run_checked("preview", "--expect-no-changes")
    project.run_checked("destroy", "--yes", "--skip-preview")

    assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == ("Bound", volume)


def test_a_volume_that_does_not_exist_is_refused_at_the_preview(
    project: Project, cluster: Path
) -> None:
    use_claim(project, volumeName="absent")

    assert "absent" in refusal(project)
