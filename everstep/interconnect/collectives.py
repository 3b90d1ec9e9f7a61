"""Collectives and their bandwidths, as NVIDIA's nccl-tests define them.

https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md: the algorithm bandwidth is size / time. The bus
bandwidth is the algorithm bandwidth multiplied by a factor, so that it can be compared with the speed of the hardware.
With n ranks, the factor is 2(n-1)/n for all-reduce, and (n-1)/n for all-gather and reduce-scatter. For the last two,
the size is n times the part of a rank: the whole array. In send_recv, each rank sends an array to the next one and
receives one from the previous one at the same time: the factor is 1. One GB is 10^9 bytes.
"""

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
SEND_RECV = "send_recv"
COLLECTIVES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND_RECV)
WHOLE = (ALL_REDUCE, SEND_RECV)  # collectives whose arrays are not divided among the ranks

ELEMENT_BYTES = 4  # float32
MIN_BYTES, MAX_BYTES = 8, 4 * 2**30


def bus_factor(collective: str, ranks: int) -> float:
    """Return the factor from the algorithm bandwidth to the bus bandwidth."""
    if collective == SEND_RECV:
        return 1.0
    return (2 if collective == ALL_REDUCE else 1) * (ranks - 1) / ranks


def algorithm_bandwidth(size: int, seconds: float) -> float:
    """Return the algorithm bandwidth in bytes per second."""
    return size / seconds


def bus_bandwidth(collective: str, ranks: int, size: int, seconds: float) -> float:
    """Return the bus bandwidth in bytes per second."""
    return algorithm_bandwidth(size, seconds) * bus_factor(collective, ranks)


def array_sizes(collective: str, ranks: int, min_bytes: int, max_bytes: int) -> "list[int]":
    """Return the sizes of the whole array in bytes: doubled from `min_bytes` to `max_bytes`.

    An array of all-gather and reduce-scatter has equal parts of whole elements for all ranks, at least one each.
    """
    unit = ELEMENT_BYTES * (1 if collective in WHOLE else ranks)
    sizes, size = [], min_bytes
    while size <= max_bytes:
        sizes.append(max(size // unit, 1) * unit)
        size *= 2
    return sorted({size for size in sizes if size <= max(max_bytes, unit)})
