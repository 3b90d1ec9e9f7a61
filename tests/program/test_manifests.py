"""The manifests on a real API server: CRD, RBAC and the example ElasticJob."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.program.conftest import ROOT

pytestmark = pytest.mark.twin

MANIFESTS = ROOT / "manifests"
EXAMPLE = MANIFESTS / "examples" / "elasticjob.yaml"
NAMESPACES = """
apiVersion: v1
kind: Namespace
metadata:
  name: elastic-job
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: v1
kind: Namespace
metadata:
  name: everstep-system
"""


@pytest.fixture(scope="module")
def cluster_with_crd(cluster: Path) -> Iterator[Path]:
    """Yield the kubeconfig after installing the CRD and the namespaces."""
    crd = str(MANIFESTS / "elasticjob-crd.yaml")
    assert kubectl(cluster, "apply", "-f", crd).returncode == 0
    kubectl(cluster, "wait", "--for=condition=Established", "-f", crd)
    assert kubectl(cluster, "apply", "-f", "-", stdin=NAMESPACES).returncode == 0
    yield cluster
    kubectl(cluster, "delete", "-f", crd)
    kubectl(cluster, "delete", "namespace", "elastic-job", "everstep-system")


def kubectl(
    cluster: Path, *arguments: str, stdin: str | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["kubectl", "--kubeconfig", str(cluster), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def example() -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    return manifest


def dry_run(cluster: Path, job: dict[str, Any]) -> "subprocess.CompletedProcess[str]":
    return kubectl(cluster, "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(job))


def test_the_crd_accepts_the_example_without_warnings(cluster_with_crd: Path) -> None:
    result = kubectl(cluster_with_crd, "apply", "--dry-run=server", "-f", str(EXAMPLE))

    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr


@pytest.mark.parametrize("file", sorted(path.name for path in MANIFESTS.glob("*-rbac.yaml")))
def test_the_rbac_manifests_are_accepted(cluster_with_crd: Path, file: str) -> None:
    result = kubectl(cluster_with_crd, "apply", "--dry-run=server", "-f", str(MANIFESTS / file))

    assert result.returncode == 0, result.stderr


def test_the_example_pod_meets_the_restricted_standard(cluster_with_crd: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "worker", "namespace": "elastic-job"},
        "spec": example()["spec"]["replicaSpecs"]["Worker"]["template"]["spec"],
    }

    result = dry_run(cluster_with_crd, pod)

    assert result.returncode == 0, result.stderr


def worker(job: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = job["spec"]["replicaSpecs"]["Worker"]
    return result


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "min above replicas": (
        lambda job: job["spec"].update(minReplicas=4, maxReplicas=5),
        "minReplicas is more than replicaSpecs.Worker.replicas, so the job could never start",
    ),
    "max below replicas": (
        lambda job: job["spec"].update(maxReplicas=2),
        "maxReplicas is less than replicaSpecs.Worker.replicas, so some workers could never join",
    ),
    "min above max": (
        lambda job: job["spec"].update(minReplicas=3, maxReplicas=2),
        "minReplicas is more than maxReplicas; lower minReplicas or raise maxReplicas",
    ),
    "no replicas": (
        lambda job: worker(job).pop("replicas"),
        "spec.replicaSpecs.Worker.replicas: Required value",
    ),
    "unknown policy": (
        lambda job: worker(job).update(restartPolicy="Sometimes"),
        'supported values: "Always", "OnFailure", "Never", "ExitCode"',
    ),
    "no main container": (
        lambda job: worker(job)["template"]["spec"]["containers"][0].update(name="main"),
        "one container must be named elasticjob-worker",
    ),
    "no endpoint": (
        lambda job: job["spec"].pop("rdzvEndpoint"),
        "spec.rdzvEndpoint: Required value",
    ),
    "misspelled policy": (
        lambda job: job["spec"].update(RunPolicy={"cleanPodPolicie": "All"}),
        'unknown field "spec.RunPolicy.cleanPodPolicie"',
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_invalid_job_is_refused_with_the_reason(cluster_with_crd: Path, fault: str) -> None:
    invalidate, expected = FAULTS[fault]
    job = example()
    invalidate(job)

    result = dry_run(cluster_with_crd, job)

    assert result.returncode != 0
    assert expected in result.stderr


def test_pod_fields_that_the_crd_does_not_list_are_preserved(cluster_with_crd: Path) -> None:
    job = example()
    worker(job)["template"]["spec"]["topologySpreadConstraints"] = [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ]

    options = ("--dry-run=server", "-o", "yaml", "-f", "-")
    result = kubectl(cluster_with_crd, "apply", *options, stdin=yaml.safe_dump(job))

    assert "topologySpreadConstraints" in result.stdout


def test_a_job_can_be_scaled_within_its_bounds(cluster_with_crd: Path) -> None:
    assert kubectl(cluster_with_crd, "apply", "-f", str(EXAMPLE)).returncode == 0
    scale = ("-n", "elastic-job", "scale", "elasticjob", "example", "--replicas")

    suspension, scaling, excess = (kubectl(cluster_with_crd, *scale, n) for n in ("0", "2", "9"))
    listing = kubectl(cluster_with_crd, "-n", "elastic-job", "get", "elasticjobs").stdout

    assert suspension.returncode == 0, "0 suspends a job"
    assert scaling.returncode == 0, scaling.stderr
    assert excess.returncode != 0
    assert "maxReplicas is less than" in excess.stderr
    header, row = (line.split() for line in listing.splitlines())
    assert header[-6:] == ["REPLICAS", "DESIRED", "ZONE", "MIN", "MAX", "AGE"]
    assert row[-4:-1] == ["2", "1", "3"], "without a controller, DESIRED and ZONE are empty"
