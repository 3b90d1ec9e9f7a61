"""The data of a run that crossed zones: gradients of every step, and states that workers sent to others.

Pure functions of the journals and the zones of the machines. Gradients are assumed to be
summed by a ring all-reduce, as in gloo, and in NCCL unless it chooses a tree: each of N ranks sends 2 (N - 1) / N of
its gradients' bytes to the next rank.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everstep.cli.report.run_record import JournalEntry, RunRecord, is_number


@dataclass(frozen=True, kw_only=True)
class ZoneTraffic:
    """Data that crossed zones.

    Attributes:
        gradient_bytes: bytes of gradients.
        state_bytes: bytes of states that workers sent to others.
        unknown_steps: steps of groups with a machine whose zone is unknown; they are not counted.
    """

    gradient_bytes: float = 0.0
    state_bytes: int = 0
    unknown_steps: int = 0


def zone_traffic(run: RunRecord, zones: Mapping[str, str]) -> ZoneTraffic:
    """Return the data of a run that crossed zones.

    Args:
        run: the run.
        zones: zone of each node; the zone of a node without an entry, or with an empty string, is unknown.
    """
    steps = _steps_by_generation(run)
    groups = {generation: zones_by_rank(run, generation, zones) for generation in steps}
    summed_bytes = max((start.number("summed_bytes") for start in run.starts), default=0)
    return ZoneTraffic(
        gradient_bytes=sum(
            count * ring_bytes(groups[generation], summed_bytes)
            for generation, count in steps.items()
            if _is_known(groups[generation])
        ),
        state_bytes=sum(_state_bytes(run, entry, zones) for entry in run.of_kind("generation")),
        unknown_steps=sum(
            count for generation, count in steps.items() if not _is_known(groups[generation])
        ),
    )


def ring_bytes(zones: Sequence[str], summed_bytes: int) -> float:
    """Return the bytes that cross zones during a ring all-reduce of `summed_bytes`.

    Args:
        zones: zone of each rank, in order.
        summed_bytes: bytes that each rank contributes.
    """
    next_zones = [*zones[1:], *zones[:1]]
    crossings = sum(zone != next_zone for zone, next_zone in zip(zones, next_zones, strict=True))
    return crossings * 2 * summed_bytes * (len(zones) - 1) / max(len(zones), 1)


def zones_by_rank(run: RunRecord, generation: int, zones: Mapping[str, str]) -> tuple[str, ...]:
    """Return the zone of each rank of a generation, in order; an unknown zone is empty."""
    return tuple(zones.get(node, "") for _, node in sorted(run.members(generation).items()))


def _steps_by_generation(run: RunRecord) -> Counter[int]:
    """Return the number of steps that each generation computed; a repeated step counts again."""
    steps = Counter[int]()
    for step in run.steps:
        steps[step.generation] += step.count
    return steps


def _state_bytes(run: RunRecord, entry: JournalEntry, zones: Mapping[str, str]) -> int:
    """Return the bytes that a worker received from other zones when its group formed."""
    received_bytes = entry.values.get("received_bytes")
    if not isinstance(received_bytes, Mapping):
        return 0
    members = run.members(entry.number("generation"))
    own_zone = zones.get(run.node_of(entry.worker, entry.at), "")
    return sum(
        int(size)
        for rank, size in received_bytes.items()
        if is_number(size) and _crosses_zones(own_zone, zones.get(members.get(_rank(rank), ""), ""))
    )


def _is_known(group: Sequence[str]) -> bool:
    return bool(group) and all(group)


def _crosses_zones(zone: str, other: str) -> bool:
    """Return True if both zones are known and differ."""
    return bool(zone and other) and zone != other


def _rank(text: str) -> int:
    return int(text) if text.isdecimal() else -1
