"""Service quotas of the account: they limit pools as EC2 does."""

from typing import Any

import pytest
from cloudtwin.capacity import PoolStore, QuotaStore, daemon
from cloudtwin.capacity.__main__ import Daemon
from cloudtwin.capacity.config import MarketConfig
from cloudtwin.capacity.fleet import FleetPlan
from cloudtwin.capacity.quotas import limits

from twin.tests.capacity.builders import pool

G_SPOT, G_ON_DEMAND = "L-3819A6DF", "L-DB2E81BA"
GPU: dict[str, Any] = {
    "cloud": "aws",
    "instance_types": ("g5.xlarge",),  # 4 vCPUs each
    "max_size": 8,
}


def test_a_pool_gets_as_many_machines_as_the_vcpus_of_its_quota_allow() -> None:
    machines = limits([pool("a", **GPU), pool("b", **GPU, capacity="on-demand")], {G_SPOT: 11})

    assert machines == {"c/a": 2}, "on-demand machines have another quota"


def test_pools_with_the_same_quota_share_it() -> None:
    pools = [pool("a", **GPU, desired_size=2), pool("b", **GPU, desired_size=2)]

    assert limits(pools, {G_SPOT: 12}) == {"c/a": 3, "c/b": 1}


@pytest.mark.parametrize(
    ("capacity", "code", "exceeded", "no_capacity"),
    [
        (
            "spot",
            G_SPOT,
            "MaxSpotInstanceCountExceeded",
            "There is no Spot capacity available",
        ),
        (
            "on-demand",
            G_ON_DEMAND,
            "VcpuLimitExceeded",
            "We currently do not have sufficient g5.xlarge capacity",
        ),
    ],
)
def test_the_reason_for_a_shortage_is_the_quota_only_if_it_is_exceeded(
    pool_daemon: Daemon, capacity: str, code: str, exceeded: str, no_capacity: str
) -> None:
    state, gpu_pool = pool_daemon.twin.state, pool(**GPU, capacity=capacity, desired_size=1)
    PoolStore(state).put(gpu_pool)
    plan = FleetPlan(start={}, stop=(), forget=(), reclaim=(), shortages={"c/spot": 1})

    QuotaStore(state).set(code, 0)
    assert pool_daemon.limits({"c/spot": gpu_pool}, MarketConfig()) == {"c/spot": 0}
    pool_daemon.write_faults(plan)
    assert exceeded in daemon.last_fault(state, "c/spot")

    QuotaStore(state).set(code, 64)
    pool_daemon.write_faults(plan)
    assert no_capacity in daemon.last_fault(state, "c/spot")
