"""The rate at which an agent probes leases."""

import time

import pytest

from everstep.elastic.membership.etcd_client import Etcd
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.lease_prober import BURST_SECONDS, LeaseProber
from everstep.elastic.membership.run_keys import RunKeys


def prober(members: int) -> LeaseProber:
    etcd = Etcd(EtcdOptions(endpoints=("127.0.0.1:1",)))
    probes = LeaseProber(etcd, RunKeys(etcd, "run"))
    probes.suspect(stalled=["next"], always=[], members=members)
    return probes


def test_a_new_stall_is_probed_often() -> None:
    probes = prober(1000)
    probes.report_stall()

    assert probes._interval_seconds() == pytest.approx(0.1)


def test_a_straggler_costs_etcd_at_most_20_requests_a_second() -> None:
    probes = prober(1000)
    probes.report_stall()
    probes._stall_began = time.monotonic() - BURST_SECONDS - 1
    probes.report_stall()

    assert 1000 / probes._interval_seconds() <= 20
