"""The computed units of a step whose sum this worker has not received yet."""

from collections.abc import Iterable
from dataclasses import dataclass

from everstep.elastic.data_order.leftover import Span, merge_spans
from everstep.elastic.data_order.sample_ledger import digest
from everstep.elastic.data_order.sampler import Ids


@dataclass(frozen=True)
class InFlight:
    """Units of one step; the reducer holds their gradients. A unit is a sample, or a shard in mode `exact`.

    Attributes:
        own_spans: units that this worker has computed.
        group_spans: units that all workers together had computed when this group began.
        spans_to_recompute: units of `group_spans` whose gradients this worker has discarded and must compute again.
        loss: this worker's share of the mean loss over the global batch; in `exact` times `LOSS_SCALE`, an integer.
        unusable_shards: number of shards with a non-finite loss or an unusable gradient.
        samples: number of samples that were actually read.
        digest: digest of these samples, for the ledger.
    """

    own_spans: tuple[Span, ...] = ()
    group_spans: tuple[Span, ...] = ()
    spans_to_recompute: tuple[Span, ...] = ()
    loss: float = 0
    unusable_shards: int = 0
    samples: int = 0
    digest: int = 0

    def with_units(
        self, spans: tuple[Span, ...], loss: float, ids: Ids, step: int, *, unusable: bool = False
    ) -> "InFlight":
        """Return a copy with additional computed units."""
        return InFlight(
            own_spans=merge_spans([*self.own_spans, *spans]),
            group_spans=self.group_spans,
            spans_to_recompute=self.spans_to_recompute,
            loss=self.loss + loss,
            unusable_shards=self.unusable_shards + unusable,
            samples=self.samples + len(ids),
            digest=(self.digest + digest(step, ids)) % 2**64,
        )

    def without_gradients(self) -> "InFlight":
        """Return the units that remain when this worker discards its gradients.

        The others rely on this worker's units of `group_spans`, which it must compute again.
        """
        lost_spans = intersect_spans(self.own_spans, self.group_spans)
        spans_to_recompute = merge_spans([*self.spans_to_recompute, *lost_spans])
        return InFlight(group_spans=self.group_spans, spans_to_recompute=spans_to_recompute)


def intersect_spans(spans: Iterable[Span], others: Iterable[Span]) -> tuple[Span, ...]:
    """Return the intersection of two lists of spans."""
    others = list(others)
    intersections = [
        (max(start, other_start), min(end, other_end))
        for start, end in spans
        for other_start, other_end in others
    ]
    return merge_spans((start, end) for start, end in intersections if start < end)
