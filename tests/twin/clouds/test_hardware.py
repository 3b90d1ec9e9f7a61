"""The clouds act: node groups and agent pools become machines, as the cloud would label and taint them."""

import json

import pytest

from everstep.progress import Lines
from tests.twin.clouds.programs import EKS
from twin.nodes import Twin
from twin.nodes.layout import Layout

pytestmark = [pytest.mark.twin, pytest.mark.timeout(300)]


@pytest.fixture
def on_hardware(project):
    """The project on a twin with machines, which is taken down afterwards."""
    del project.environment["EVERSTEP_PAPER_CLOUD"]
    project.environment["EVERSTEP_TWIN"] = "cloud-test"
    twin = Twin(Layout(project.cloud.parent.parent / "cloud-test"))
    yield project, twin
    twin.down(Lines())


def test_a_node_group_starts_a_machine_that_looks_like_one_of_eks(on_hardware):
    project, twin = on_hardware
    project.program(EKS)
    project.up()

    endpoint = project.pulumi("stack", "output", "endpoint").strip()
    assert endpoint in twin.kubeconfig.read_text(), "the cluster's address is the twin's"
    (machine,) = [each for each in twin.status().machines if each.spec.group == "gpu"]
    assert machine.ready
    assert machine.spec.labels["eks.amazonaws.com/capacityType"] == "SPOT"
    assert machine.spec.labels["everstep/pool"] == "gpu-spot"
    assert [each.key for each in machine.spec.taints] == ["everstep/spot"]
    assert (machine.spec.instance_type, machine.spec.zone) == ("g5.xlarge", "us-east-1a")

    project.program(EKS.replace('"desired_size": 1', '"desired_size": 0'))
    project.up()
    assert [each for each in twin.status().machines if each.spec.group == "gpu"] == []

    project.destroy()
    pools = json.loads((twin.state / "cloud" / "pools.json").read_text())
    assert pools == {}
