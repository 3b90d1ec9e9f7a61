"""An agent's own key in etcd and the lease under it: registration, announcements, renewals.

The deciding thread puts and removes the key; a separate thread renews the lease.
"""

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from everstep.elastic.membership.etcd_client import (
    NOT_FOUND,
    Etcd,
    EtcdRefusedError,
    EtcdUnreachableError,
)
from everstep.elastic.membership.events import (
    Announce,
    Event,
    LeaseLapsed,
    Reachable,
    Reclaim,
    Registered,
    Superseded,
    Unreachable,
)
from everstep.elastic.membership.generations import Member
from everstep.elastic.membership.run_keys import RunKeys
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

T = TypeVar("T")

TTL_SECONDS = 2  # the shortest lease that etcd grants with its default election timeout
MEMBERS_PER_SECOND = 200
"""Members for each second of a lease: larger groups have longer leases, which limits the renewals per second."""
RENEWALS = 3
"""Renewals per lease duration: the more, the longer the lease of a lost node stays valid."""
DECIDER_STALL_SECONDS = 10.0
"""Time without a decision, although etcd responds, after which the lease is no longer renewed."""


def lease_seconds(max_members: int) -> int:
    """Return the duration of a lease: all members together send at most 600 renewals per second."""
    return max(TTL_SECONDS, -(-max_members // MEMBERS_PER_SECOND))


@dataclass(frozen=True)
class AgentIdentity:
    """Name and address that an agent registers."""

    name: str
    address: str


class OwnKey:
    """The key of one agent, under its lease.

    Args:
        etcd: client of etcd.
        keys: keys of the run.
        node: name and address of this node.
        ttl_seconds: duration of the lease.
        endpoint: function that returns the `host:port` at which this agent responds to probes.
        report: called with each event of the key.

    Attributes:
        lease: ID of the lease that is renewed; 0 if there is none.
        decided_at: monotonic time in seconds of the deciding thread's last decision.
    """

    def __init__(
        self,
        etcd: Etcd,
        keys: RunKeys,
        node: AgentIdentity,
        *,
        ttl_seconds: int,
        endpoint: Callable[[], str],
        report: Callable[[Event], None],
    ) -> None:
        self._etcd, self._keys, self._node = etcd, keys, node
        self._ttl_seconds = ttl_seconds
        self._endpoint, self._report = endpoint, report
        self._closed = threading.Event()
        self._is_stuck = False  # whether the deciding thread is stuck
        # Guards `lease`: the lapse of an old lease must not clear a new one.
        self._lock = threading.Lock()
        self.lease = 0
        self.decided_at = time.monotonic()

    # --- the deciding thread ---

    def register(self, after: int, avoids: tuple[str, ...]) -> None:
        """Write the key under a new identity and a new lease."""
        identity = f"{self._node.name}-{uuid.uuid4().hex[:8]}"
        member = self._member(identity, after, avoids=avoids)
        lease, _ = self._put_under_new_lease(lambda lease: self._keys.put_member(member, lease))
        self._adopt(lease, Registered(identity))

    def reclaim(self, claim: Reclaim) -> None:
        """Restore the lapsed key, in one transaction that fails if the generation has changed."""
        member = self._member(
            claim.identity, claim.after, leaving=claim.leaving, avoids=claim.avoids
        )
        lease, is_restored = self._put_under_new_lease(
            lambda lease: self._keys.restore_member(member, lease, claim.revision)
        )
        log.warning(
            "the lease lapsed; %s",
            "the key is back under a new lease"
            if is_restored
            else "the others continued without this node",
        )
        if is_restored:
            self._adopt(lease, Registered(claim.identity))
        else:
            self._adopt(0, Superseded())

    def _adopt(self, lease: int, event: Event) -> None:
        """Record the key's lease, and report the event; remove the key if this agent was closed in the meantime."""
        with self._lock:
            self.lease = lease
            self._report(event)
        if self._closed.is_set():
            self.remove()

    def announce(self, identity: str | None, update: Announce) -> None:
        """Update the key; do nothing without a registration."""
        if identity is None:
            return
        lease = self.lease  # read once: the lease thread may clear it
        if not lease:  # without a lease the key would never be removed
            self._report(LeaseLapsed())
            return
        member = self._member(identity, update.after, leaving=update.leaving, avoids=update.avoids)
        try:
            self._keys.put_member(member, lease)
        except EtcdRefusedError:  # the lease has lapsed in the meantime: the key must not come back
            self._report(LeaseLapsed())

    def coordinate(self, identity: str | None) -> None:
        """Write this agent's key as a coordinator; do nothing without a registration."""
        lease = self.lease  # read once: the lease thread may clear it
        if identity is None or not lease:  # the end of the lease is reported already
            return
        try:
            self._keys.put_coordinator(self._member(identity, 0), lease)
        except EtcdRefusedError:
            self._report(LeaseLapsed())

    def remove(self) -> None:
        """Revoke the lease, and with it the key.

        If etcd does not respond, or refuses, the lease lapses, since it is no longer renewed. So a node whose
        worker has crashed, or that leaves, does not depend on etcd.
        """
        with self._lock:
            lease, self.lease = self.lease, 0
        if lease:
            try:
                self._etcd.revoke(lease)
            except EverstepError as error:
                log.warning("the key of this node stays until its lease lapses: %s", error.problem)

    def _put_under_new_lease(self, put: Callable[[int], T]) -> tuple[int, T]:
        """Grant a lease and put a key under it; repeat if the lease lapses before the key is put.

        That happens if etcd takes longer than the lease lasts, for instance when all agents return after an outage.
        """
        while True:
            lease = self._etcd.grant(self._ttl_seconds)
            try:
                return lease, put(lease)
            except EtcdRefusedError as refused:
                if refused.code != NOT_FOUND or self._closed.is_set():
                    raise
                log.warning("lease %x lapsed before its key was put; retrying", lease)

    def _member(
        self, identity: str, after: int, *, leaving: bool = False, avoids: tuple[str, ...] = ()
    ) -> Member:
        return Member(
            identity,
            self._node.name,
            self._node.address,
            after,
            leaving,
            endpoint=self._endpoint(),
            avoids=avoids,
        )

    # --- the lease thread ---

    def close(self) -> None:
        """Stop the renewals."""
        self._closed.set()

    def keep_lease(self) -> None:
        """Renew the lease until closed."""
        unreachable, unreachable_at = False, -math.inf
        while not self._closed.wait(self._ttl_seconds / RENEWALS):
            lease = self.lease
            if not lease or not self._is_deciding(unreachable_at):
                continue
            is_valid = self._renew(lease)
            was_unreachable, unreachable = unreachable, is_valid is None
            unreachable_at = time.monotonic() if unreachable else unreachable_at
            if unreachable != was_unreachable:
                # Reported before LeaseLapsed, whose handling depends on it.
                log.warning("etcd %s", "does not respond" if unreachable else "responds again")
                self._report(Unreachable() if unreachable else Reachable())
            if is_valid is False:
                self._end_lease(lease)

    def _end_lease(self, lease: int) -> None:
        """Record and report that a lease has lapsed, unless the deciding thread has replaced or revoked it."""
        with self._lock:
            if lease == self.lease:
                self.lease = 0
                self._report(LeaseLapsed())

    def _is_deciding(self, unreachable_at: float) -> bool:
        """Return False if the deciding thread is stuck although etcd responds.

        Such an agent does not act. If it kept its lease, all others would wait for it.
        """
        stuck_seconds = time.monotonic() - max(self.decided_at, unreachable_at)
        was_stuck, self._is_stuck = self._is_stuck, stuck_seconds > DECIDER_STALL_SECONDS
        if self._is_stuck and not was_stuck:
            log.error("no decision for %.0f s: the lease is not renewed", stuck_seconds)
        return not self._is_stuck

    def _renew(self, lease: int) -> bool | None:
        """Renew a lease; return False if it has lapsed, None if etcd does not respond, which does not end a lease."""
        try:
            return self._etcd.keep_alive(
                lease,
                request_seconds=self._ttl_seconds / RENEWALS,
                retry_seconds=self._ttl_seconds / 2,
            )
        except EtcdRefusedError:
            return False
        except EtcdUnreachableError:
            return None
