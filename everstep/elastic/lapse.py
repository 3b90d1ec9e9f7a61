"""When another member's lease has lapsed, by etcd's own clock. Pure.

etcd looks for lapsed leases twice a second, so a lost node's lease outlives itself by up to half a second. But etcd
also tells how much of a lease is left, in whole seconds, rounded down. As long as its owner renews it, a lease of 2 s
that is renewed in thirds has more than a second left, so the answer is never 0. From the first 0 on, less than a second
is left: if the answer is 0 each time it is asked for until a second later, the lease has lapsed, and whoever asked may
revoke it, which is what etcd would have done at its next look.
"""

from dataclasses import dataclass

LONGEST_GAP_SECONDS = 0.5  # a renewal between two answers leaves its trace in the second for longer


@dataclass
class Lapse:
    """What one lease's answers say; times are of any clock that only goes forward, in seconds.

    Attributes:
        lease: etcd's number of it, of at least 2 s; 0 where it is not known.
    """

    lease: int = 0
    _zero_since: float | None = None  # when the first 0 of those in a row had arrived
    _answered_at: float = float("-inf")

    def told(self, left_seconds: int, asked_at: float, answered_at: float) -> bool:
        """Learn what etcd says is left, rounded down; whether the lease has lapsed for certain.

        An answer is about some moment between the two: there the lease had less than `left_seconds + 1` left.
        """
        unbroken = answered_at - self._answered_at <= LONGEST_GAP_SECONDS
        self._answered_at = answered_at
        if left_seconds > 0:
            self._zero_since = None
            return False
        if self._zero_since is None or not unbroken:
            self._zero_since = answered_at
        return asked_at - self._zero_since >= 1.0
