"""The life cycle of a stack on a volume that another team declared, from `up` to `destroy`.

Engine and API server are real, nodes are simulated.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.program.conftest import STACK, Project, kubectl
from tests.program.simulated_nodes import MISSING_IMAGE

PASSWORD = "password of a robot"
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


def check_claim(claim: dict[str, Any], volume: str) -> None:
    assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == ("Bound", volume)


def objects(cluster: Path) -> dict[str, Any]:
    """Return the objects in the namespace, by kind/name."""
    kinds = "statefulsets,deployments,jobs,services,elasticjobs,pvc,pdb"
    items = json.loads(kubectl(cluster, "-n", "elastic-job", "get", kinds, "-o", "json"))["items"]
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in items}


def test_a_stack_is_created_updated_and_deleted_completely_but_its_existing_volume_remains(
    project: Project, cluster: Path, nodes: None, volume: str
) -> None:
    use_claim(project, volumeName=volume, size="500Gi")
    assert "has the reclaim policy Delete" in refusal(project)
    retain = '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'
    kubectl(cluster, "patch", "pv", volume, "-p", retain)

    project.run_checked("up", "--yes", "--skip-preview")

    live_objects = objects(cluster)
    assert set(live_objects) == {
        "StatefulSet/etcd",
        "Deployment/elastic-job-controller",
        "Job/prepare-fashion-mnist",
        "Service/etcd",
        "Service/etcd-client",
        "ElasticJob/fashion",
        "PersistentVolumeClaim/everstep",
        "PodDisruptionBudget/etcd",
    }
    assert live_objects["StatefulSet/etcd"]["status"]["readyReplicas"] == 3
    check_claim(live_objects["PersistentVolumeClaim/everstep"], volume)
    outputs = json.loads(project.run_checked("stack", "output", "--json"))
    assert outputs["job"] == "fashion"
    assert outputs["kubeconfig"] == "[secret]"

    check_job_of_another_stack(project, cluster)
    uid = live_objects["ElasticJob/fashion"]["metadata"]["uid"]
    check_scaling_in_place(project, cluster, uid)
    check_job_replacement(project, cluster, uid)
    project.run_checked("preview", "--expect-no-changes")
    check_deletion(project, cluster)

    released = json.loads(kubectl(cluster, "get", "pv", volume, "-o", "json"))
    assert released["status"]["phase"] == "Released", "the stack did not create this volume"
    assert "is still reserved for the deleted claim everstep" in refusal(project)
    kubectl(cluster, "patch", "pv", volume, "-p", '{"spec":{"claimRef":null}}')
    kubectl(cluster, "wait", "--for=jsonpath={.status.phase}=Available", f"pv/{volume}")


def test_a_volume_that_does_not_exist_is_refused_at_the_preview(project: Project) -> None:
    use_claim(project, volumeName="absent")

    assert "absent" in refusal(project)


def check_job_of_another_stack(project: Project, cluster: Path) -> None:
    """Check that another stack adds a job to the platform of this one and removes only that job."""
    stack = "--stack=second"
    job = {"name": "second", "replicas": 1, "maxReplicas": 2, "gpusPerWorker": 0}
    content = {
        "config": {
            "everstep:platformStack": {"name": STACK},
            "everstep:job": job,
            "everstep:data": {"dataset": "imagefolder", "source": "uploads/photos.tar"},
        }
    }
    file = project.stack_file.with_name("Pulumi.second.yaml")
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    project.run_checked("stack", "init", "second")

    project.run_checked("up", "--yes", "--skip-preview", stack)
    objects_with_job = objects(cluster)
    project.run_checked("preview", "--expect-no-changes", stack)
    state = json.loads(project.run_checked("stack", "export", stack))
    project.run_checked("destroy", "--yes", "--skip-preview", stack)

    kinds = {item["type"].rpartition(":")[2] for item in state["deployment"]["resources"]}
    assert {"ElasticJob", "ResourceQuota", "PriorityClass"} <= kinds
    assert "StatefulSet" not in kinds
    assert {"ElasticJob/fashion", "ElasticJob/second"} <= set(objects_with_job)
    assert set(objects_with_job) - set(objects(cluster)) == {
        *("ElasticJob/second", "Job/prepare.second"),
    }


def check_scaling_in_place(project: Project, cluster: Path, uid: str) -> None:
    project.change("job", replicas=2, maxReplicas=2)

    assert project.planned_operations() == {"training-job-fashion": "update"}, (
        "no other resource may change"
    )
    project.run_checked("up", "--yes", "--skip-preview")
    job = objects(cluster)["ElasticJob/fashion"]
    assert job["spec"]["replicaSpecs"]["Worker"]["replicas"] == 2
    assert job["metadata"]["uid"] == uid, "running workers must continue"


def check_job_replacement(project: Project, cluster: Path, uid: str) -> None:
    project.change("job", model="resnet34")

    project.run_checked("up", "--yes", "--skip-preview")
    job = objects(cluster)["ElasticJob/fashion"]
    assert job["metadata"]["uid"] != uid, "no controller changes running pods"


def check_deletion(project: Project, cluster: Path) -> None:
    project.run_checked("destroy", "--yes", "--skip-preview")

    remaining = kubectl(cluster, "get", "ns,pv,crd,clusterroles,clusterrolebindings", "-o", "name")
    assert "elastic" not in remaining
    assert "everstep" not in remaining


def check_missing_image_of_daemon(project: Project) -> None:
    """Check that `up` fails while the image of a DaemonSet cannot be pulled, and then use an available image."""
    project.change("platform", spot={"enabled": True, "image": MISSING_IMAGE})
    project.environment["CLOUDTWIN_STUCK_SECONDS"] = "2"

    result = project.run("up", "--yes", "--skip-preview")
    assert result.returncode != 0, "without its watcher a node would not notice an interruption"
    assert "ImagePullBackOff" in result.stdout, result.stdout
    del project.environment["CLOUDTWIN_STUCK_SECONDS"]
    project.change("platform", spot={"enabled": True, "image": "localhost/everstep/spot:local"})


def check_login(project: Project, cluster: Path) -> None:
    """Check that the controller pulls with the stack's login, and that the state encrypts the password."""
    system = ("-n", "everstep-system", "get", "-o", "json")
    deployment = json.loads(kubectl(cluster, *system, "deployment", "elastic-job-controller"))
    secret = json.loads(kubectl(cluster, *system, "secret", "everstep-registries"))
    login = base64.b64decode(secret["data"][".dockerconfigjson"]).decode()

    pull_secrets = deployment["spec"]["template"]["spec"]["imagePullSecrets"]
    assert pull_secrets == [{"name": "everstep-registries"}]
    assert json.loads(login)["auths"]["https://index.docker.io/v1/"]["password"] == PASSWORD
    state = project.run_checked("stack", "export")
    encoded = base64.b64encode(f"robot:{PASSWORD}".encode()).decode()
    for text in (PASSWORD, encoded, secret["data"][".dockerconfigjson"]):
        assert text not in state, "the state is readable in the backend"


def test_a_stack_can_switch_from_the_upstream_to_the_maintained_controller(
    project: Project, cluster: Path, nodes: None, volume: str
) -> None:
    kubectl(cluster, "patch", "pv", volume, "-p", '{"spec":{"storageClassName":"team"}}')
    use_claim(project, storageClass="team", size="500Gi")
    project.change("controller", kind="upstream", image="torchelastic/kubernetes:0.1.0")
    project.run_checked("config", "set", "--secret", "registryPassword:docker.io", PASSWORD)
    project.change("platform", registryLogins={"docker.io": "robot"})
    check_missing_image_of_daemon(project)
    project.run_checked("up", "--yes", "--skip-preview")
    project.run_checked("preview", "--expect-no-changes")
    check_login(project, cluster)
    check_claim(objects(cluster)["PersistentVolumeClaim/everstep"], volume)

    project.change("controller", kind="maintained", image="localhost/everstep/controller:local")
    project.change("platform", registryLogins={})
    project.run_checked("up", "--yes", "--skip-preview")
    assert "everstep-registries" not in kubectl(cluster, "get", "secrets", "-A", "-o", "name")

    (version,) = json.loads(
        kubectl(cluster, "get", "crd", "elasticjobs.elastic.pytorch.org", "-o", "json")
    )["spec"]["versions"]
    assert "status" in version["subresources"]
    check_deletion(project, cluster)
