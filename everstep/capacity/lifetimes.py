"""Expected lifetime of spot machines in a zone, estimated from the group's own machines. Pure functions.

A zone that offers many machines may also take them back soon. Machine time and losses are counted for each zone, and
old observations decay, because the demand in a zone changes within days. The estimate is a Bayesian mean: the losses
of a zone are assumed to be a Poisson process with a gamma prior, so that a zone without observations has the prior
lifetime, and a single loss changes little.

The controller imports this module. Its image has only a part of Everstep, so this module imports only `catalog`.
"""

from dataclasses import dataclass
from math import expm1, log

from everstep.catalog.units import HOUR_SECONDS

PRIOR_LOSSES = 4.0
"""Weight of the prior: after this number of observed losses, the observations weigh as much as the prior."""

PRIOR_SECONDS = PRIOR_LOSSES * 4 * HOUR_SECONDS
"""Machine time of the prior: one loss in 4 machine-hours. In the 100 histories of `benchmarks.capacity`, which are
fitted to published traces (2023-08-27), the three zones have one loss in 3.4, 3.6 and 5.6 machine-hours."""

PRIOR_LIFETIME_SECONDS = PRIOR_SECONDS / PRIOR_LOSSES
"""Expected lifetime of a machine in a zone without observations."""

HALF_LIFE_SECONDS = 24 * HOUR_SECONDS
"""Time in which an observation loses half of its weight: regimes of the fitted histories last about a day."""

START_SECONDS = 312.0
"""Time from the request of a machine until it trains, as `everstep plan` assumes."""


@dataclass(frozen=True)
class LifetimeRecord:
    """Weighted observations of the spot machines of one zone.

    Attributes:
        seconds: machine-seconds, each weighted by its age.
        losses: machines that were interrupted or lost, each weighted by its age.
    """

    seconds: float = 0.0
    losses: float = 0.0

    @property
    def expected_seconds(self) -> float:
        """Expected lifetime of a machine."""
        return (PRIOR_SECONDS + self.seconds) / (PRIOR_LOSSES + self.losses)

    def decayed(self, seconds: float) -> "LifetimeRecord":
        """Return the record with its weights after `seconds` more; unchanged if `seconds` is not positive."""
        weight = _weight(max(seconds, 0.0))
        return LifetimeRecord(self.seconds * weight, self.losses * weight)

    def plus(self, seconds: float, losses: float) -> "LifetimeRecord":
        """Return the record with further weighted machine-seconds and losses."""
        return LifetimeRecord(self.seconds + seconds, self.losses + losses)


def weighted_seconds(begin_age: float, end_age: float = 0.0) -> float:
    """Return the weighted machine-seconds of one machine.

    The weight is integrated, so that the result does not depend on how often machine time is counted.

    Args:
        begin_age: seconds since the machine began to run, or since its time was last counted.
        end_age: seconds since it ended; 0 for a machine that runs.
    """
    end_age = max(end_age, 0.0)
    begin_age = max(begin_age, end_age)
    rate = log(2) / HALF_LIFE_SECONDS
    # Not computed as the difference of two weights, which would lose all significant digits for a short time.
    return _weight(end_age) * -expm1(-rate * (begin_age - end_age)) / rate


def productive_share(lifetime_seconds: float, start_seconds: float) -> float:
    """Return the share of its time that a machine trains if it is lost and replaced repeatedly.

    Args:
        lifetime_seconds: expected time for which a machine trains until it is lost; more than 0.
        start_seconds: time from the request of a machine until it trains.
    """
    return lifetime_seconds / (lifetime_seconds + start_seconds)


def _weight(age: float) -> float:
    result: float = 0.5 ** (age / HALF_LIFE_SECONDS)
    return result
