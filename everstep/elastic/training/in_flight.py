"""The computed units of a step whose sum this worker has not received yet."""

from collections.abc import Iterable
from dataclasses import dataclass

from everstep.elastic.data_order.leftover import Span, merged
from everstep.elastic.data_order.sample_ledger import digest
from everstep.elastic.data_order.sampler import Ids


@dataclass(frozen=True)
class InFlight:
    """Units of one step; the reducer holds their gradients. A unit is a sample, or a shard in mode `exact`.

    Attributes:
        own: units that this worker has computed.
        group: units that all workers together had computed when this group began.
        owed: units of `group` whose gradients this worker has discarded and must compute again.
        loss: this worker's share of the mean loss over the global batch; in `exact` an integer.
        unusable: number of shards with a non-finite loss or an unusable gradient.
        samples: number of samples that were actually read.
        digest: digest of these samples, for the ledger.
    """

    own: tuple[Span, ...] = ()
    group: tuple[Span, ...] = ()
    owed: tuple[Span, ...] = ()
    loss: float = 0
    unusable: int = 0
    samples: int = 0
    digest: int = 0

    def plus(
        self, spans: tuple[Span, ...], loss: float, ids: Ids, step: int, *, unusable: bool = False
    ) -> "InFlight":
        """Return a copy with additional computed units."""
        return InFlight(
            own=merged([*self.own, *spans]),
            group=self.group,
            owed=self.owed,
            loss=self.loss + loss,
            unusable=self.unusable + unusable,
            samples=self.samples + len(ids),
            digest=(self.digest + digest(step, ids)) % 2**64,
        )

    def discarded(self) -> "InFlight":
        """Return the units that remain when this worker discards its gradients: the others count on some of them."""
        return InFlight(group=self.group, owed=merged([*self.owed, *common(self.own, self.group)]))


def common(spans: Iterable[Span], others: Iterable[Span]) -> tuple[Span, ...]:
    """Return the intersection of two lists of spans."""
    others = list(others)
    intersections = [(max(a, c), min(b, d)) for a, b in spans for c, d in others]
    return merged((first, last) for first, last in intersections if first < last)
