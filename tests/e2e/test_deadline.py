"""A job with a deadline: it buys on-demand machines when the spot machines are lost, and finishes in time.

    pytest -m e2e tests/e2e/test_deadline.py -k eks-prod     # or aks-prod

The deadline is set while the job trains, from the controller's own estimate of the time that the rest of the training
takes. The spot machines meet it with some slack; after their loss, it is in danger once the slack is used up.
One run of a stack takes minutes, so all its tests share it; each test checks one guarantee.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout

from controller.spending import PASS_SECONDS
from controller.timestamps import format_time
from everstep.capacity.lifetimes import START_SECONDS
from everstep.capacity.on_demand import LOSSES_IN_RESERVE, LOSSES_PER_SECOND
from everstep.catalog.names import CAPACITY_LABEL, JOB_NAMESPACE, ON_DEMAND
from everstep.progress import Silent
from tests.e2e.life_cycle import (
    ALL_TRAIN_SECONDS,
    DOWN_SECONDS,
    JOB,
    JOB_PATH,
    NOTICE_SECONDS,
    QUERY_SECONDS,
    TRAIN_SECONDS,
    UP_SECONDS,
    WORKERS,
    copy_project,
    output,
)
from tests.e2e.paced import PacedCycle, paced_job

BOUGHT = "OnDemandBought"
NEVER = datetime.max.replace(tzinfo=UTC)

WITHOUT_CAPACITY_SECONDS = 7200
"""Longer than the run: lost machines do not return."""

SAMPLE_SECONDS = 0.02
TRAINING: dict[str, Any] = {
    "model": "resnet18", "replicas": WORKERS, "maxReplicas": WORKERS, "epochs": 1,
    "globalBatch": 120, "learningRate": 0.05, **paced_job(SAMPLE_SECONDS),
}  # fmt: skip
"""500 steps in at least 400 s, which is longer than everything that happens before the loss."""

DISTANT_DEADLINE = "6h"
MEASURED_SHARE = 0.15
"""Share of the training after which its duration is known well enough to set a deadline."""

SLACK = 0.5
"""Time beyond the reserve of the policy, as a share of the remaining duration: a busy machine may slow the training."""

NODES = {"maxNodes": WORKERS, "fallbackNodes": WORKERS}
POOLS: dict[str, dict[str, Any]] = {
    "eks-prod": NODES,
    "aks-prod": {**NODES, "vmSizes": [{"name": "t4", "vmSize": "Standard_NC4as_T4_v3"}]},
}
"""Changes of `gpuPool`: one size on AKS, since another size would replace the lost machines."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(2 * UP_SECONDS + 2 * TRAIN_SECONDS + 4 * QUERY_SECONDS + DOWN_SECONDS),
]


@dataclass
class DeadlineCycle(PacedCycle):
    """The life cycle of a stack with a deadline.

    Attributes:
        deadline: deadline that the loss of machines endangers.
        before_loss: spending with this deadline, shortly before the loss.
        lost_at: time of the loss.
        after_purchase: spending when bought machines had replaced the lost ones.
        capacity: nodes of the workers at that time, and whether each was bought on demand.
        job: status of the job at its end.
        events: times of the job's events, by reason.
    """

    deadline: datetime = NEVER
    before_loss: dict[str, Any] = field(default_factory=dict)
    lost_at: datetime = NEVER
    after_purchase: dict[str, Any] = field(default_factory=dict)
    capacity: dict[str, bool] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    events: dict[str, list[str]] = field(default_factory=dict)

    def declare(self) -> None:
        """Declare a paced training with a distant deadline; the stack may be destroyed immediately."""
        content = yaml.safe_load(self.stack_file.read_text())
        content["config"]["everstep:cluster"]["gpuPool"] |= POOLS[self.stack]
        self.stack_file.write_text(yaml.safe_dump(content, sort_keys=False))
        self.unprotect()
        self.change(job={**TRAINING, "deadline": DISTANT_DEADLINE, "onDemand": "fallback"})

    def spending(self) -> dict[str, Any]:
        """Return the spending in the status of the job."""
        spending: dict[str, Any] = self.api().get(JOB_PATH)["status"].get("spending") or {}
        return spending

    def on_demand_nodes(self) -> dict[str, bool]:
        """Return the nodes of the running workers, and whether each was bought on demand."""
        return {
            name: labels.get(CAPACITY_LABEL) == ON_DEMAND
            for name, labels in self.worker_nodes().items()
        }

    def remaining_seconds(self) -> float:
        """Return the time that all workers need for the rest of the training, as the controller estimates it."""
        share = self.spending()["share"]
        work = share["machineSeconds"] / (share["now"] - share["first"])
        return float(work * (1 - share["now"]) / WORKERS)

    def measure(self) -> None:
        """Wait until the controller knows the duration of the training."""
        self.wait_until(
            "the controller has measured the training",
            lambda: self.spending().get("share", {}).get("now", 0) > MEASURED_SHARE,
            TRAIN_SECONDS,
        )

    def set_deadline(self) -> None:
        """Set a deadline that the spot machines meet, and that their loss endangers."""
        remaining = self.remaining_seconds()
        losses = LOSSES_IN_RESERVE + LOSSES_PER_SECOND * remaining
        reserve = START_SECONDS + PASS_SECONDS + losses * START_SECONDS
        seconds = remaining * (1 + SLACK) + reserve
        self.deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=seconds)
        self.change(job={"deadline": format_time(self.deadline)})
        self.run_checked(
            "deadline", "up", "--detach", "--stack", self.stack, "--twin", seconds=UP_SECONDS
        )

    def train_on_spot(self) -> None:
        """Wait until a full pass of the controller has used the new deadline, before any machine is lost."""
        since = datetime.now(UTC) + timedelta(seconds=PASS_SECONDS)
        self.wait_until(
            "the controller has used the new deadline",
            lambda: self.spending()["countedAt"] >= format_time(since),
            ALL_TRAIN_SECONDS,
        )
        self.before_loss = self.spending()
        self.query("report")  # records the pools of the machines, before they are lost

    def lose_machines(self) -> None:
        """Let the market reclaim all spot machines; it offers none for the rest of the run."""
        self.lost_at = datetime.now(UTC)
        self.run_checked(
            "lose machines", "node", "reclaim", *self.worker_nodes(),
            "--stack", self.stack, f"--notice={NOTICE_SECONDS}",
            f"--return-after={WITHOUT_CAPACITY_SECONDS}",
        )  # fmt: skip

    def are_replaced(self) -> bool:
        """Return True if all workers run on bought machines."""
        bought = self.on_demand_nodes().values()
        return len(bought) == WORKERS and all(bought)

    def observe_purchase(self) -> None:
        """Wait until bought machines have replaced the lost ones, and record the decision and its nodes."""
        self.wait_until("all workers run on bought machines", self.are_replaced, TRAIN_SECONDS)
        self.after_purchase = self.spending()
        self.capacity = self.on_demand_nodes()

    def read_events(self) -> None:
        """Record the status of the job and its events."""
        self.job = self.api().get(JOB_PATH)["status"]
        events = self.api().get(f"/api/v1/namespaces/{JOB_NAMESPACE}/events")["items"]
        for event in (item for item in events if item["involvedObject"]["name"] == JOB):
            self.events.setdefault(event["reason"], []).append(event["firstTimestamp"])


@pytest.fixture(scope="module", params=sorted(POOLS))
def cycle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeadlineCycle]:
    """Run the life cycle once; the twin is always taken down."""
    folder = copy_project(tmp_path_factory.mktemp(f"deadline-{request.param}"))
    cycle = DeadlineCycle(request.param, folder)
    cycle.declare()
    options = ("--stack", cycle.stack, "--twin")
    try:
        cycle.up_paced(UP_SECONDS)
        cycle.measure()
        cycle.set_deadline()
        cycle.train_on_spot()
        cycle.lose_machines()
        cycle.observe_purchase()
        cycle.run_checked("end", "report", "--wait", *options, seconds=TRAIN_SECONDS)
        cycle.report = cycle.query("report")
        cycle.read_events()
        cycle.verify()
        cycle.run_checked("down", "down", "--yes", *options, seconds=DOWN_SECONDS)
        yield cycle
    finally:
        if cycle.twin.exists():
            Twin(Layout(cycle.twin)).down(Silent())
        shutil.rmtree(folder, ignore_errors=True)


def test_no_machine_is_bought_while_spot_machines_meet_the_deadline(
    cycle: DeadlineCycle,
) -> None:
    assert cycle.before_loss["deadline"] == format_time(cycle.deadline)
    assert cycle.before_loss["reason"].endswith("spot machines only")
    assert "onDemandSeconds" not in cycle.before_loss
    assert min(cycle.events[BOUGHT]) >= format_time(cycle.lost_at)


def test_bought_machines_replace_lost_ones_that_the_deadline_needs(cycle: DeadlineCycle) -> None:
    assert cycle.after_purchase["onDemand"] == WORKERS
    assert cycle.after_purchase["reason"].endswith("missing machines are bought on demand")
    assert cycle.after_purchase["useSpot"], "spot machines that return cost less"
    assert list(cycle.capacity.values()) == WORKERS * [True]


def test_the_training_ends_before_the_deadline(cycle: DeadlineCycle) -> None:
    assert cycle.report["finished"]
    assert cycle.job["trainingEndedTime"] < format_time(cycle.deadline)
    assert "DeadlineMissed" not in cycle.events


def test_each_sample_is_trained_exactly_once(cycle: DeadlineCycle) -> None:
    assert cycle.results["verify"].returncode == 0, output(cycle, "verify")
    assert "every sample exactly once" in cycle.results["verify"].stdout


def test_the_report_has_the_hours_of_spot_and_of_bought_machines(cycle: DeadlineCycle) -> None:
    hours = {pool["pool"]: pool["machine_hours"] for pool in cycle.report["money"]["pools"]}

    (spot_hours,) = (value for pool, value in hours.items() if pool.endswith("spot"))
    (bought_hours,) = (
        value for pool, value in hours.items() if pool.endswith("on-demand fallback")
    )
    assert spot_hours > 0
    counted_seconds = cycle.job["spending"]["onDemandSeconds"]
    assert bought_hours * 3600 == pytest.approx(counted_seconds, rel=0.5), (
        "the report and the controller count the same hours"
    )


def test_down_leaves_nothing(cycle: DeadlineCycle) -> None:
    # `down`, which succeeded, fails if the cloud still has resources.
    assert not cycle.twin.exists(), output(cycle, "down")
