"""The remaining units of a step in flight when its group breaks, and their new division.

A step sums the gradients of the units of its global batch (samples, or shards of samples), regardless of the
worker that computes them. So the survivors' gradients stay valid, and only the gradients of lost units are computed
again, by all workers of the next group. A span is a half-open range of units.
"""

from collections.abc import Iterable

from everstep.elastic.data_order.sampler import share

Span = tuple[int, int]


def merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the same units in the fewest spans, in order."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def remaining_spans(units: int, done_spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the units that are not done."""
    edges = [0, *(edge for span in merge_spans(done_spans) for edge in span), units]
    return merge_spans(zip(edges[::2], edges[1::2], strict=True))


def split_share(
    spans: Iterable[Span], rank: int, world_size: int, *, min_units: int = 1
) -> tuple[Span, ...]:
    """Return this worker's share of these units.

    Non-empty shares differ by one unit at most. Each has at least `min_units` units, or all of them if there are
    fewer; if there are not enough for all workers, the highest ranks get none.
    """
    spans = list(spans)
    units = sum(end - start for start, end in spans)
    parts = world_size if min_units == 1 else max(1, min(world_size, units // min_units))
    if rank >= parts:
        return ()
    own_share = share(units, rank, parts)
    intersections, preceding_units = [], 0
    for start, end in spans:
        shift = start - preceding_units
        intersections.append(
            (max(start, own_share.start + shift), max(start, min(end, own_share.stop + shift)))
        )
        preceding_units += end - start
    return merge_spans((start, end) for start, end in intersections if start < end)
