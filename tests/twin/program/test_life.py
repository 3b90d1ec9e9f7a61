"""The life of a stack, from `up` to `destroy`: real engine, real API server, nodes of paper."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.twin.program.conftest import Project

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]


def objects(cluster: Path) -> dict[str, Any]:
    """What kubectl sees in the namespace, by kind/name."""
    kinds = "statefulsets,deployments,jobs,services,elasticjobs,pvc,pdb"
    done = subprocess.run(
        ["kubectl", "--kubeconfig", str(cluster), "-n", "elastic-job", "get", kinds, "-o", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)["items"]
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

    before = there["ElasticJob/fashion"]["metadata"]["uid"]
    project.change("job", replicas=2, maxReplicas=2)
    assert project.planned() == {"everstep-local": "update", "training-job-fashion": "update"} or (
        project.planned() == {"training-job-fashion": "update"}
    ), "a change of numbers must leave all else alone"
    project.must("up", "--yes", "--skip-preview")
    job = objects(cluster)["ElasticJob/fashion"]
    assert job["spec"]["replicaSpecs"]["Worker"]["replicas"] == 2
    assert job["metadata"]["uid"] == before, "scaled in place, not made anew"

    project.change("job", model="resnet34")
    project.must("up", "--yes", "--skip-preview")
    job = objects(cluster)["ElasticJob/fashion"]
    assert job["metadata"]["uid"] != before, "no controller changes pods that run"
    project.must("preview", "--expect-no-changes")

    project.must("destroy", "--yes", "--skip-preview")
    left = subprocess.run(
        ["kubectl", "--kubeconfig", str(cluster), "get", "ns,pv,crd,clusterroles", "-o", "name"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "elastic" not in left
    assert "everstep" not in left
