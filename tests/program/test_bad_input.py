"""Pulumi's output for an invalid stack: the fault and its fix, without a traceback."""

import json
from pathlib import Path

import pytest
import yaml

from tests.program.conftest import Project

pytestmark = pytest.mark.twin


def failed_preview(project: Project) -> str:
    """Return the output of a preview, which must fail without a traceback."""
    result = project.run("preview")
    output = result.stdout + result.stderr
    assert result.returncode != 0, output
    assert "Traceback" not in output
    return output


def test_all_faults_of_a_stack_file_are_shown_together(project_without_cluster: Project) -> None:
    project_without_cluster.change("job", minReplicas=4, modle="resnet18")
    project_without_cluster.change("data", dataset="fashion_mnist")

    output = failed_preview(project_without_cluster)

    assert "everstep:job.minReplicas: 4" in output
    assert "everstep:job.modle: resnet18" in output
    assert "did you mean fashion-mnist?" in output


def test_a_missing_kubeconfig_is_reported_with_its_fix(project_without_cluster: Project) -> None:
    output = failed_preview(project_without_cluster)

    assert "$KUBECONFIG" in output
    assert "everstep up" in output


def test_a_stack_file_that_is_not_yaml_is_refused_by_pulumi_itself(
    project_without_cluster: Project,
) -> None:
    project_without_cluster.stack_file.write_text("config:\n  everstep:job: {replicas: 3\n")

    output = failed_preview(project_without_cluster)

    assert "invalid YAML file" in output
    assert "line" in output, "the line in the file; `everstep` adds the file name"


def test_a_missing_context_is_named(project: Project, cluster: Path) -> None:
    project.change("cluster", context="elsewhere")

    output = failed_preview(project)

    assert "everstep:cluster.context: elsewhere" in output
    assert str(cluster) in output


@pytest.mark.timeout(900)
def test_monitoring_by_an_operator_that_the_cluster_lacks_is_refused_before_anything_is_created(
    project: Project,
) -> None:
    project.change("platform", monitoring={"kind": "operator"})

    update = project.run("up", "--yes", "--skip-preview")

    output = update.stdout + update.stderr
    assert "Traceback" not in output
    assert "everstep:platform.monitoring.kind: operator" in output
    assert "does not serve PodMonitor, ServiceMonitor, PrometheusRule" in output
    assert "install one first" in output
    assert update.returncode != 0
    state = json.loads(project.run_checked("stack", "export"))
    resources = (state["deployment"] or {}).get("resources") or ()
    assert [r["urn"] for r in resources if r["type"] != "pulumi:pulumi:Stack"] == []


def test_a_location_newer_than_the_table_is_a_warning(project_without_cluster: Project) -> None:
    cluster = {"kind": "aks", "location": "denmarkeast", "privateApi": True}
    tags = {"owner": "vision", "costCenter": "4711", "environment": "dev"}
    settings = {"everstep:cluster": cluster, "everstep:tags": tags}
    project_without_cluster.stack_file.write_text(yaml.safe_dump({"config": settings}))

    result = project_without_cluster.run("preview")

    assert "Everstep's table has no zones for denmarkeast" in result.stdout + result.stderr
