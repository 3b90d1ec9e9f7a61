"""The rates at which an agent probes leases and reads all keys."""

import time

import pytest

from everstep.elastic.membership.etcd_client import Etcd
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.lease_prober import BURST_SECONDS, LeaseProber
from everstep.elastic.membership.run_keys import RunKeys, watch_idle_seconds


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


def test_at_1000_members_etcd_serves_about_ten_full_reads_a_second() -> None:
    assert 1000 / watch_idle_seconds(1000) <= 12.5
    assert watch_idle_seconds(10) <= 6.0, "in small groups a silent watch is replaced soon"
