"""Service quotas of the account: they limit pools as EC2 does."""

from pathlib import Path

import pytest
from cloudfacts.quotas import quota
from cloudtwin.capacity import PoolStore, QuotaStore, daemon
from cloudtwin.capacity.__main__ import Daemon
from cloudtwin.capacity.config import MarketConfig
from cloudtwin.capacity.fleet import FleetPlan
from cloudtwin.capacity.quotas import limits
from cloudtwin.capacity.scaler import Scaler
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout

from twin.tests.capacity.builders import pool

G_SPOT, G_ON_DEMAND = "L-3819A6DF", "L-DB2E81BA"
GPU = {"cloud": "aws", "instance_types": ("g5.xlarge",), "max_size": 8}  # 4 vCPUs each


@pytest.mark.parametrize(
    ("instance_type", "spot", "code"),
    [
        ("g5.xlarge", True, G_SPOT),
        ("g6e.xlarge", False, G_ON_DEMAND),
        ("gr6.4xlarge", True, G_SPOT),
        ("m6i.xlarge", False, "L-1216C47A"),
        ("m6i.xlarge", True, "L-34B43A08"),
        ("p4d.24xlarge", True, "L-7212CCBC"),
        ("p5.48xlarge", True, "L-C4BD4855"),
        ("p5.48xlarge", False, "L-417A185B"),
    ],
)
def test_an_instance_type_counts_against_the_quota_of_its_family(
    instance_type: str, spot: bool, code: str
) -> None:
    family_quota = quota(instance_type, spot=spot)

    assert family_quota is not None
    assert family_quota.code == code


@pytest.mark.parametrize("spot", [True, False])
@pytest.mark.parametrize(
    "instance_type",
    [
        "dl1.24xlarge",
        "hpc7g.4xlarge",
        "inf2.xlarge",
        "mac2.metal",
        "trn1.2xlarge",
        "x2idn.16xlarge",
    ],
)
def test_families_with_separate_quotas_have_no_quota_here(instance_type: str, spot: bool) -> None:
    assert quota(instance_type, spot=spot) is None


def test_a_pool_gets_as_many_machines_as_the_quota_has_vcpus() -> None:
    machines = limits([pool("a", **GPU), pool("b", **GPU, capacity="on-demand")], {G_SPOT: 11})

    assert machines == {"c/a": 2}, "on-demand machines have another quota"


def test_pools_with_one_quota_share_it() -> None:
    pools = [pool("a", **GPU, desired_size=2), pool("b", **GPU, desired_size=2)]

    assert limits(pools, {G_SPOT: 12}) == {"c/a": 3, "c/b": 1}


def test_the_reason_has_the_wording_of_ec2(tmp_path: Path) -> None:
    PoolStore(tmp_path).put(pool("spot", **GPU, desired_size=1))
    QuotaStore(tmp_path).set(G_SPOT, 0)
    capacity = Daemon(
        Twin(Layout(tmp_path)), Scaler(KubernetesClient(tmp_path, "admin", "127.0.0.1", 1))
    )
    pools = {pool.name: pool for pool in capacity.store.all()}

    assert capacity.limits(pools, MarketConfig()) == {"c/spot": 0}
    plan = FleetPlan(start={}, stop=(), forget=(), reclaim=(), shortages={"c/spot": 1})
    capacity.write_faults(plan)
    assert "MaxSpotInstanceCountExceeded" in daemon.last_fault(tmp_path, "c/spot")

    QuotaStore(tmp_path).set(G_SPOT, 64)
    capacity.write_faults(plan)
    assert "InsufficientInstanceCapacity" in daemon.last_fault(tmp_path, "c/spot")
