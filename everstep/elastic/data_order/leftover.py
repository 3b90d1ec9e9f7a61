"""The remaining units of a step in flight when its group breaks, and their new division.

A step's sum is over the units of its global batch (samples, or shards of them), whichever worker
computes them. So the survivors' units stay valid, and only the lost ones are computed again, by all
workers of the next group. A span is a half-open range of units.
"""

from collections.abc import Iterable

from everstep.elastic.data_order.sampler import share

Span = tuple[int, int]


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the same units in as few spans as possible, in order."""
    result: list[Span] = []
    for first, last in sorted(spans):
        if first == last:
            continue
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


def remaining(units: int, done: Iterable[Span]) -> tuple[Span, ...]:
    """Return the units that are not done."""
    edges = [0, *(edge for span in merged(done) for edge in span), units]
    return merged(zip(edges[::2], edges[1::2], strict=True))


def split_share(
    spans: Iterable[Span], rank: int, world_size: int, *, min_units: int = 1
) -> tuple[Span, ...]:
    """Return this worker's share of these units.

    Shares differ by one unit at most and have at least `min_units`: if there are too few units for all
    workers, the lowest ranks receive them.
    """
    spans = list(spans)
    units = sum(last - first for first, last in spans)
    parts = world_size if min_units == 1 else max(1, min(world_size, units // min_units))
    if rank >= parts:
        return ()
    own_share = share(units, rank, parts)
    parts_of_worker, before = [], 0
    for first, last in spans:
        shift = first - before
        parts_of_worker.append(
            (max(first, own_share.start + shift), max(first, min(last, own_share.stop + shift)))
        )
        before += last - first
    return merged((first, last) for first, last in parts_of_worker if first < last)
