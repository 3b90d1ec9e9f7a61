"""The thread that probes the leases of members that may be lost, and revokes lapsed leases."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Collection, Mapping

from everstep.elastic.membership.etcd_client import Etcd
from everstep.elastic.membership.lease_probe import LeaseProbe
from everstep.elastic.membership.run_keys import RunKeys
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

PROBE_TIMEOUT_SECONDS = 0.3  # timeout of a probe; a later response proves nothing
PROBE_INTERVAL_SECONDS = 0.1
STALL_VALIDITY_SECONDS = 0.3  # waiting workers report a stall several times in this time
NEW_STALL_SECONDS = 2.0  # a report after this time without reports begins another stall
BURST_SECONDS = 5.0  # duration of frequent probes: longer than a lease in a run of up to 800 nodes
STRAGGLER_PROBES_PER_SECOND = 20  # rate of all agents together after the burst


class LeaseProber:
    """Prober of the leases of members that an agent suspects.

    Args:
        etcd: client of etcd.
        keys: keys of the run.
    """

    def __init__(self, etcd: Etcd, keys: RunKeys) -> None:
        self._etcd, self._keys = etcd, keys
        self._wake, self._closed = threading.Event(), threading.Event()
        self._stalled_at = self._stall_began = -math.inf
        self._suspects: Mapping[bool, Collection[str]] = {True: (), False: ()}
        self._members = 1

    def report_stall(self) -> None:
        """Record that workers wait unusually long; valid for `STALL_VALIDITY_SECONDS`."""
        now = time.monotonic()
        if now - self._stalled_at > NEW_STALL_SECONDS:
            self._stall_began = now
        self._stalled_at = now
        self._wake.set()

    def suspect(self, *, stalled: Collection[str], always: Collection[str], members: int) -> None:
        """Set the members to probe.

        Args:
            stalled: members to probe while workers are stalled, including `always`.
            always: members to probe even while no worker is stalled.
            members: number of members of the run.
        """
        self._suspects, self._members = {True: stalled, False: always}, members
        if always:
            self._wake.set()

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        self._wake.set()

    def run(self) -> None:
        """Probe until closed."""
        probes: dict[str, LeaseProbe] = {}
        while self._wake.wait() and not self._closed.wait(self._interval_seconds()):
            self._wake.clear()
            stalled = time.monotonic() - self._stalled_at < STALL_VALIDITY_SECONDS
            probes = {name: probes.get(name) or LeaseProbe() for name in self._suspects[stalled]}
            with contextlib.suppress(EverstepError):  # no response proves nothing
                for name, probe in probes.items():
                    self._probe(name, probe)
            if self._suspects[False]:
                self._wake.set()

    def _interval_seconds(self) -> float:
        """Return the time between two probes.

        The lapse of a lease is proven within `BURST_SECONDS`. Workers that stall for longer wait for a straggler,
        whose lease is valid: then all agents together send few requests, which must not delay renewals.
        """
        now = time.monotonic()
        waits_for_straggler = now - self._stalled_at < NEW_STALL_SECONDS
        if waits_for_straggler and now - self._stall_began > BURST_SECONDS:
            return max(1.0, self._members / STRAGGLER_PROBES_PER_SECOND)
        return PROBE_INTERVAL_SECONDS

    def _probe(self, name: str, probe: LeaseProbe) -> None:
        probe.lease = probe.lease or self._keys.lease_of(name)
        requested_at = time.monotonic()
        seconds_left = self._etcd.seconds_left(probe.lease, request_seconds=PROBE_TIMEOUT_SECONDS)
        if seconds_left is None:  # its owner may put its key back under another lease
            probe.lease = 0
        elif probe.observe(seconds_left, requested_at, time.monotonic()):
            log.info("the lease of %s has lapsed", name)
            self._etcd.revoke(probe.lease)
