"""The step in flight when a group breaks: what of it is left to compute, and by whom.

A step's sum is over the units of its global batch (samples, or shards of them), whoever computes
which. So what the survivors have computed stays good, and only what was lost with the others is
computed again, by all who are there now. Spans are units from a first to before a last.
"""

from collections.abc import Iterable

from everstep.elastic.sampler import share

Span = tuple[int, int]


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same units in as few spans as there can be, in order."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if first == last:
            continue
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def rest(units: int, done: Iterable[Span]) -> tuple[Span, ...]:
    """What is left of so many units."""
    edges = [0, *(edge for span in merged(done) for edge in span), units]
    return merged(zip(edges[::2], edges[1::2], strict=True))


def part(spans: Iterable[Span], rank: int, world_size: int, *, least: int = 1) -> tuple[Span, ...]:
    """This worker's part of these units.

    Parts differ by one unit at most, and have at least so many units: where there are too few for all
    workers, the first ones in rank have them all.
    """
    spans = list(spans)
    units = sum(last - first for first, last in spans)
    parts = world_size if least == 1 else max(1, min(world_size, units // least))
    if rank >= parts:
        return ()
    mine = share(units, rank, parts)
    found, before = [], 0
    for first, last in spans:
        shift = first - before
        found.append((max(first, mine.start + shift), max(first, min(last, mine.stop + shift))))
        before += last - first
    return merged((first, last) for first, last in found if first < last)
