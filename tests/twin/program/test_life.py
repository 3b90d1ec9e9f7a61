"""The life of a stack, from `up` to `destroy`: real engine, real API server, nodes of paper."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.twin.program.conftest import Project

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]


def kubectl(cluster: Path, *words: str) -> str:
    done = subprocess.run(
        ["kubectl", "--kubeconfig", str(cluster), *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def objects(cluster: Path) -> dict[str, Any]:
    """What is in the namespace, by kind/name."""
    kinds = "statefulsets,deployments,jobs,services,elasticjobs,pvc,pdb"
    found = json.loads(kubectl(cluster, "-n", "elastic-job", "get", kinds, "-o", "json"))["items"]
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in found}


def test_a_stack_goes_up_stays_changes_and_goes_without_a_trace(
    project: Project, cluster: Path, nodes: None
) -> None:
    project.must("up", "--yes", "--skip-preview")

    there = objects(cluster)
    assert set(there) == {
        "StatefulSet/etcd",
        "Deployment/elastic-job-controller",
        "Job/prepare-fashion-mnist",
        "Service/etcd",
        "Service/etcd-client",
        "ElasticJob/fashion",
        "PersistentVolumeClaim/everstep",
        "PodDisruptionBudget/etcd",
    }
    assert there["StatefulSet/etcd"]["status"]["readyReplicas"] == 3
    assert there["PersistentVolumeClaim/everstep"]["status"]["phase"] == "Bound"
    project.must("preview", "--expect-no-changes")
    outputs = json.loads(project.must("stack", "output", "--json"))
    assert outputs["job"] == "fashion"
    assert outputs["kubeconfig"] == "[secret]"

    uid = there["ElasticJob/fashion"]["metadata"]["uid"]
    scales_in_place(project, cluster, uid)
    replaces_the_job(project, cluster, uid)
    project.must("preview", "--expect-no-changes")
    leaves_no_trace(project, cluster)


def scales_in_place(project: Project, cluster: Path, uid: str) -> None:
    project.change("job", replicas=2, maxReplicas=2)

    assert project.planned() == {"training-job-fashion": "update"}, "all else is left alone"
    project.must("up", "--yes", "--skip-preview")
    job = objects(cluster)["ElasticJob/fashion"]
    assert job["spec"]["replicaSpecs"]["Worker"]["replicas"] == 2
    assert job["metadata"]["uid"] == uid, "running workers must live on"


def replaces_the_job(project: Project, cluster: Path, uid: str) -> None:
    project.change("job", model="resnet34")

    project.must("up", "--yes", "--skip-preview")
    job = objects(cluster)["ElasticJob/fashion"]
    assert job["metadata"]["uid"] != uid, "no controller changes pods that run"


def leaves_no_trace(project: Project, cluster: Path) -> None:
    project.must("destroy", "--yes", "--skip-preview")

    left = kubectl(cluster, "get", "ns,pv,crd,clusterroles,clusterrolebindings", "-o", "name")
    assert "elastic" not in left
    assert "everstep" not in left


def test_the_published_controller_can_be_chosen_and_left_again(
    project: Project, cluster: Path, nodes: None
) -> None:
    project.change("controller", kind="upstream", image="torchelastic/kubernetes:0.1.0")
    project.must("up", "--yes", "--skip-preview")
    project.must("preview", "--expect-no-changes")

    project.change("controller", kind="maintained", image="localhost/everstep/controller:local")
    project.must("up", "--yes", "--skip-preview")

    (version,) = json.loads(
        kubectl(cluster, "get", "crd", "elasticjobs.elastic.pytorch.org", "-o", "json")
    )["spec"]["versions"]
    assert "status" in version["subresources"]
    leaves_no_trace(project, cluster)
