"""The arrivals of a member's heartbeats, and an observer's false suspicions of its node. Pure.

Times are seconds in which the observer itself ran (`suspicion`), not the wall clock.
"""

from dataclasses import dataclass, field

BEAT_SECONDS = 0.1  # interval between two heartbeats of one member
MIN_SILENCE_SECONDS = 0.5  # a shorter silence is never suspicious: five heartbeats
MARGIN_SECONDS = 0.35  # a silence that exceeds the longest recent gap by this is suspicious
GAP_DECAY = 0.999  # decay of the longest recent gap per heartbeat: halved in 70 s
MIN_BEATS = 10  # heartbeats before a member may be suspected: they prove that some can arrive
LATE_SECONDS = 0.75  # a suspect that returns within this time was late, not lost
FORGET_SECONDS = 300.0  # time without a false suspicion after which one doubling is forgotten
MAX_DOUBLINGS = 4  # limit of the suspicious silence; the lease lapses long before
MAX_SUSPICIONS = 3  # per node in `SUSPICIONS_SECONDS`; then only its lease decides
SUSPICIONS_SECONDS = 60.0


@dataclass
class Arrivals:
    """The arrivals of one member's heartbeats.

    Attributes:
        count: heartbeats that have arrived.
        last_at: time of the last arrival.
        longest_gap: the longest recent time between two arrivals.
        stepped_at: time of the last step in which the member's workers took part.
    """

    count: int = 0
    last_at: float = 0.0
    longest_gap: float = 0.0
    stepped_at: float = float("-inf")

    def record(self, now: float) -> None:
        """Record an arrival."""
        if self.count:
            self.longest_gap = max(now - self.last_at, GAP_DECAY * self.longest_gap)
        self.count, self.last_at = self.count + 1, now

    @property
    def is_steady(self) -> bool:
        """True if enough heartbeats have arrived to judge a silence."""
        return self.count >= MIN_BEATS

    def level(self, now: float) -> float:
        """Return the level of suspicion of the current silence; 1 or more is suspicious.

        A training step ends a silence as a heartbeat does, but the gaps are measured between heartbeats only.

        The limit adapts: a member whose heartbeats are often late, because its CPUs are busy, is
        given more time than a punctual member. The margin is constant, as in Chen, Toueg and Aguilera, "On the
        Quality of Service of Failure Detectors" (2002): a multiple of the gap would make losses on a busy
        machine slow to detect, and would hardly reduce false suspicions.
        """
        if not self.is_steady:
            return 0.0
        silence = now - max(self.last_at, self.stepped_at)
        return silence / max(MIN_SILENCE_SECONDS, self.longest_gap + MARGIN_SECONDS)


@dataclass
class FalseSuspicions:
    """An observer's false suspicions of one node: each doubles the suspicious silence for some minutes."""

    _doublings: int = 0
    _last_false_at: float = 0.0
    _suspected_at: list[float] = field(default_factory=list)

    def threshold(self, now: float) -> float:
        """Return the level from which the node is a suspect; infinite if it was suspected too often."""
        recent = [time for time in self._suspected_at if now - time < SUSPICIONS_SECONDS]
        if len(recent) >= MAX_SUSPICIONS:
            return float("inf")
        return float(2 ** self._remaining_doublings(now))

    def record_suspicion(self, now: float) -> None:
        """Record that the node became a suspect."""
        self._suspected_at = [*self._suspected_at[1 - MAX_SUSPICIONS :], now]

    def record_return(self, now: float) -> None:
        """Record that the suspect has returned: if it was only late, the suspicion was false."""
        if self._suspected_at and now - self._suspected_at[-1] <= LATE_SECONDS:
            self._doublings = min(self._remaining_doublings(now) + 1, MAX_DOUBLINGS)
            self._last_false_at = now

    def _remaining_doublings(self, now: float) -> int:
        return max(0, self._doublings - int((now - self._last_false_at) / FORGET_SECONDS))
