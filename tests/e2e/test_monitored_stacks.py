"""Stacks with the monitoring services of their cloud: preview, up, training, a second preview, down.

    pytest -m e2e tests/e2e/test_monitored_stacks.py -k eks-dev     # or aks-dev

The services' own agents are add-ons of a cloud and are not on the twin, which has their resources: log groups,
workspaces, rules, roles. The Prometheus agent on EKS is a Deployment of the stack and runs.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout

from everstep.progress import Silent
from tests.e2e.life_cycle import (
    ALL_TRAIN_SECONDS,
    DOWN_SECONDS,
    QUERY_SECONDS,
    SHORT_TRAINING,
    UP_SECONDS,
    LifeCycle,
    copy_project,
    output,
)

SERVICES: dict[str, dict[str, bool]] = {
    "eks-dev": {"containerInsights": True, "managedPrometheus": True},
    "aks-dev": {"containerInsights": True, "managedPrometheus": True, "jobMetrics": True},
}
EXPECTED_TYPES = {
    "eks-dev": {
        "aws:amp/workspace:Workspace",
        "aws:amp/ruleGroupNamespace:RuleGroupNamespace",
        "aws:cloudwatch/logGroup:LogGroup",
        "kubernetes:apps/v1:Deployment",
    },
    "aks-dev": {
        "azure-native:operationalinsights:Workspace",
        "azure-native:monitor:AzureMonitorWorkspace",
        "azure-native:monitor:DataCollectionRule",
        "azure-native:monitor:DataCollectionRuleAssociation",
    },
}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(UP_SECONDS + ALL_TRAIN_SECONDS + 4 * QUERY_SECONDS + 2 * DOWN_SECONDS),
]


@dataclass
class MonitoredCycle(LifeCycle):
    """The life cycle of a stack with monitoring services.

    Attributes:
        created: types of the resources that the preview plans to create.
    """

    created: set[str] = field(default_factory=set)

    def add_services(self) -> None:
        """Switch the services on, and shorten the training."""
        self.change(cluster={"monitoring": SERVICES[self.stack]}, **SHORT_TRAINING)


def types_of(preview: dict[str, Any]) -> set[str]:
    """Return the types of the resources that a preview plans to create."""
    urns = (step["urn"] for step in preview["steps"] if step["op"] == "create")
    return {urn.split("::")[2].rpartition("$")[2] for urn in urns}


@pytest.fixture(scope="module", params=sorted(SERVICES))
def cycle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MonitoredCycle]:
    """Run the life cycle once; the twin is always taken down."""
    folder = copy_project(tmp_path_factory.mktemp(f"monitored-{request.param}"))
    cycle = MonitoredCycle(request.param, folder)
    cycle.add_services()
    options = ("--stack", cycle.stack, "--twin")
    try:
        cycle.run_checked("preview", "preview", "--json", *options)
        cycle.created = types_of(json.loads(cycle.results["preview"].stdout))
        cycle.run_checked("up", "up", "--detach", *options, seconds=UP_SECONDS)
        cycle.wait_until("the job trains", lambda: cycle.progress().steps, ALL_TRAIN_SECONDS)
        cycle.record("again", "preview", "--expect-no-changes", *options)
        cycle.run_checked("down", "down", "--yes", *options, seconds=DOWN_SECONDS)
        yield cycle
    finally:
        if cycle.twin.exists():
            Twin(Layout(cycle.twin)).down(Silent())


def test_the_preview_has_the_resources_of_each_service(cycle: MonitoredCycle) -> None:
    assert EXPECTED_TYPES[cycle.stack] <= cycle.created


def test_the_job_trains_and_a_second_preview_finds_no_changes(cycle: MonitoredCycle) -> None:
    assert cycle.results["again"].returncode == 0, output(cycle, "again")


def test_down_leaves_nothing(cycle: MonitoredCycle) -> None:
    # `down`, which succeeded, fails if the cloud still has resources.
    assert not cycle.twin.exists(), output(cycle, "down")
