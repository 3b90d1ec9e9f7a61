"""Proof, by etcd's own clock, that another member's lease has lapsed. Pure.

etcd checks for lapsed leases twice a second, so the lease of a lost node outlives its duration by up to half a second.
But etcd also returns the remaining time of a lease, in whole seconds, rounded down. A 2 s lease that its owner renews
three times in 2 s always has more than a second left, so the response is never 0. From the first 0 on, less than a
second is left: if every response is 0 until a second later, the lease has lapsed, and the prober may revoke it, as
etcd would do at its next check.
"""

from dataclasses import dataclass

LONGEST_GAP_SECONDS = 0.5
"""Longest time between two consecutive responses: a renewal between them would show in the later response."""


@dataclass
class LeaseProbe:
    """The responses about one lease; times are seconds of any monotonic clock.

    Attributes:
        lease: ID of a lease of at least 2 s in etcd; 0 if unknown.
    """

    lease: int = 0
    _zero_since: float | None = None  # arrival of the first of the consecutive zeros
    _responded_at: float = float("-inf")

    def observe(self, remaining_seconds: int, requested_at: float, responded_at: float) -> bool:
        """Record the remaining time, rounded down; return True if the lease has certainly lapsed.

        The response describes some moment between the two times, at which less than `remaining_seconds + 1` seconds
        were left.
        """
        is_consecutive = responded_at - self._responded_at <= LONGEST_GAP_SECONDS
        self._responded_at = responded_at
        if remaining_seconds > 0:
            self._zero_since = None
            return False
        if self._zero_since is None or not is_consecutive:
            self._zero_since = responded_at
        return requested_at - self._zero_since >= 1.0
