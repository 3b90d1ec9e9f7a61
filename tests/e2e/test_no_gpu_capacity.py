"""A new account, whose quota of GPU spot machines is 0: the stack is created completely, and its job waits."""

from collections.abc import Iterator

import pytest
from cloudtwin.capacity import QuotaStore, daemon
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.model import pool_key

from everstep.progress import Silent
from tests.e2e.life_cycle import (
    DOWN_SECONDS,
    QUERY_SECONDS,
    SHORT_TRAINING,
    TRAIN_SECONDS,
    UP_SECONDS,
    LifeCycle,
    copy_project,
)

G_AND_VT_SPOT = "L-3819A6DF"  # AWS's code of the quota "All G and VT Spot Instance Requests"
STACK, POOL = "eks-dev", pool_key("everstep-dev", "everstep-dev-gpu-spot")
ENOUGH_VCPUS = 64

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(2 * UP_SECONDS + 4 * QUERY_SECONDS + DOWN_SECONDS),
]


@pytest.fixture(scope="module")
def cycle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LifeCycle]:
    """Bring the stack up in an account without a quota of GPU spot machines; the twin is always taken down."""
    cycle = LifeCycle(STACK, copy_project(tmp_path_factory.mktemp(STACK)))
    cycle.change(**SHORT_TRAINING)
    QuotaStore(cycle.twin).set(G_AND_VT_SPOT, 0)
    try:
        cycle.run_checked("up", "up", "--detach", "--stack", STACK, "--twin", seconds=UP_SECONDS)
        yield cycle
    finally:
        cycle.run("down", "--yes", "--stack", STACK, "--twin", seconds=DOWN_SECONDS)
        if cycle.twin.exists():
            Twin(Layout(cycle.twin)).down(Silent())


def test_the_job_waits_with_the_reason_and_starts_when_there_is_capacity(cycle: LifeCycle) -> None:
    cycle.wait_until(
        "the autoscaler has requested a machine",
        lambda: "MaxSpotInstanceCountExceeded" in daemon.last_fault(cycle.twin, POOL),
        TRAIN_SECONDS,
    )
    status = cycle.query("status")
    assert cycle.gpu_nodes() == []
    reasons = [pod["unscheduled_reason"] for pod in status["pods"] if pod["unscheduled_reason"]]
    assert reasons, "the status must explain why no worker runs"
    assert all("nodes are available" in reason for reason in reasons)
    assert status["etcd"]["ready"] == status["etcd"]["members"], "everything else is running"

    QuotaStore(cycle.twin).set(G_AND_VT_SPOT, ENOUGH_VCPUS)

    cycle.wait_until("the job trains", lambda: cycle.query("report").get("steps"), TRAIN_SECONDS)
