"""The rate at which an agent probes leases, and the revocation of a lapsed one."""

import itertools
import time
from typing import Any

import pytest

from everstep.elastic.membership.etcd_client import Etcd, KeyValue
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.lease_probe import LeaseProbe
from everstep.elastic.membership.lease_prober import BURST_SECONDS, LeaseProber
from everstep.elastic.membership.run_keys import RunKeys


def prober(members: int) -> LeaseProber:
    etcd = Etcd(EtcdOptions(endpoints=("127.0.0.1:1",)))
    lease_prober = LeaseProber(etcd, RunKeys(etcd, "run"))
    lease_prober.suspect(stalled=["next"], always=[], members=members)
    return lease_prober


def test_a_new_stall_is_probed_often() -> None:
    lease_prober = prober(1000)
    lease_prober.report_stall()

    assert lease_prober._interval_seconds() == pytest.approx(0.1)


def test_a_straggler_costs_etcd_at_most_20_requests_a_second() -> None:
    lease_prober = prober(1000)
    lease_prober.report_stall()
    lease_prober._stall_began = time.monotonic() - BURST_SECONDS - 1
    lease_prober.report_stall()

    assert 1000 / lease_prober._interval_seconds() <= 20


class ExpiringEtcd(Etcd):
    """A fake etcd with one lease, of which less than a second is left."""

    def __init__(self) -> None:
        super().__init__(EtcdOptions(endpoints=("127.0.0.1:1",)))
        self.revoked_leases: list[int] = []

    def get(self, prefix: str, **_: Any) -> tuple[list[KeyValue], int]:
        return [KeyValue(prefix, "", 1, 1, 7)], 1

    def seconds_left(self, lease: int, **_: Any) -> int:
        assert lease == 7
        return 0

    def revoke(self, lease: int, **_: Any) -> None:
        self.revoked_leases.append(lease)


def test_a_lease_with_less_than_a_second_left_is_revoked_after_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    etcd, probe = ExpiringEtcd(), LeaseProbe()
    lease_prober = LeaseProber(etcd, RunKeys(etcd, "run"))
    clock = itertools.count(0.0, 0.125)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))

    for _ in range(5):  # the response to the first probe comes at 0.125 s, the fifth probe at 1 s
        lease_prober._probe("lost", probe)
    assert etcd.revoked_leases == []
    lease_prober._probe("lost", probe)

    assert etcd.revoked_leases == [7]


def test_the_lease_of_a_member_that_has_put_its_key_back_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loss of its node would otherwise be detected later."""
    etcd, probe = ExpiringEtcd(), LeaseProbe(lease=6)
    monkeypatch.setattr(etcd, "seconds_left", lambda lease, **_: 1 if lease == 7 else None)
    lease_prober = LeaseProber(etcd, RunKeys(etcd, "run"))

    lease_prober._probe("back", probe)  # its former lease has lapsed
    lease_prober._probe("back", probe)

    assert probe.lease == 7
