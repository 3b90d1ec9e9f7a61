"""Node groups become machines with the labels and taints of the cloud."""

import json
from collections.abc import Iterator

import pytest
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout
from cloudtwin.progress import Lines

from twin.tests.providers.conftest import CloudProject
from twin.tests.providers.programs import EKS

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]


@pytest.fixture
def project_with_machines(project: CloudProject) -> Iterator[tuple[CloudProject, Twin]]:
    """Yield the project on a twin with machines; take the twin down afterwards."""
    del project.environment["CLOUDTWIN_OFFLINE"]
    project.environment["CLOUDTWIN_NAME"] = "cloud-test"
    twin = Twin(Layout(project.cloud.parent.parent / "cloud-test"))
    yield project, twin
    twin.down(Lines())


def test_a_node_group_starts_a_machine_with_the_labels_and_taints_of_eks(
    project_with_machines: tuple[CloudProject, Twin],
) -> None:
    project, twin = project_with_machines
    project.program(EKS)
    project.up()

    endpoint = project.pulumi("stack", "output", "endpoint").strip()
    assert endpoint in twin.kubeconfig.read_text(), "the cluster has the address of the twin"
    (machine,) = [status for status in twin.status().machines if status.spec.group == "gpu"]
    assert machine.ready
    assert machine.spec.labels["eks.amazonaws.com/capacityType"] == "SPOT"
    assert machine.spec.labels["everstep.dev/pool"] == "gpu-spot"
    assert [taint.key for taint in machine.spec.taints] == ["everstep.dev/spot"]
    assert (machine.spec.instance_type, machine.spec.zone) == ("g5.xlarge", "us-east-1a")

    project.program(EKS.replace('"desired_size": 1', '"desired_size": 0'))
    project.up()
    assert [status for status in twin.status().machines if status.spec.group == "gpu"] == []

    project.destroy()
    pools = json.loads((twin.state / "cloud" / "pools.json").read_text())
    assert pools == {}
