"""What Pulumi shows where a stack cannot be used: the fault and its cure, no traceback, nothing made."""

from pathlib import Path

import pytest

from tests.twin.program.conftest import Project

pytestmark = pytest.mark.twin


def refused(project: Project) -> str:
    """Preview must fail, without a traceback; what it showed."""
    done = project.run("preview")
    shown = done.stdout + done.stderr
    assert done.returncode != 0, shown
    assert "Traceback" not in shown
    return shown


def test_all_faults_of_a_stack_file_are_shown_at_once(lonely_project: Project) -> None:
    lonely_project.change("job", minReplicas=4, modle="resnet18")
    lonely_project.change("data", dataset="fashion_mnist")

    shown = refused(lonely_project)

    assert "everstep:job.minReplicas: 4" in shown
    assert "everstep:job.modle: resnet18" in shown
    assert "did you mean fashion-mnist?" in shown


def test_a_misspelt_section_is_shown(lonely_project: Project) -> None:
    lonely_project.change("storge", size="1Gi")

    assert "did you mean storage?" in refused(lonely_project)


def test_without_a_kubeconfig_the_way_to_one_is_shown(lonely_project: Project) -> None:
    shown = refused(lonely_project)

    assert "$KUBECONFIG" in shown
    assert "everstep up" in shown


def test_a_kubeconfig_that_is_not_there_is_named(lonely_project: Project) -> None:
    lonely_project.change("cluster", kubeconfig="/nowhere/config")

    assert "/nowhere/config" in refused(lonely_project)


def test_a_stack_file_that_is_not_yaml_is_refused_by_pulumi_itself(lonely_project: Project) -> None:
    lonely_project.stack_file.write_text("config:\n  everstep:job: {replicas: 3\n")

    shown = refused(lonely_project)

    assert "invalid YAML file" in shown
    assert "line" in shown, "where in the file; `everstep` says in which"


def test_a_context_that_is_not_there_is_named(project: Project, cluster: Path) -> None:
    project.change("cluster", context="elsewhere")

    shown = refused(project)

    assert "everstep:cluster.context: elsewhere" in shown
    assert str(cluster) in shown
