"""Decision on the machines to start and stop, so that pools reach their desired sizes. Pure.

Pools, machine records, notices and limits are on disk. Which machines are starting or leaving is in the daemon's
memory, and the readiness of Nodes comes from the cluster. A restarted daemon may therefore repeat a start or a removal
that was in progress.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloudtwin.capacity.pools import Pool


@dataclass(frozen=True, kw_only=True)
class PoolMachine:
    """A machine of a pool.

    Attributes:
        name: its name.
        pool: its pool.
        alive: True if it runs or starts.
        leaving: True if it is being removed, other than by an interruption.
        has_notice: True if the cloud has announced its interruption.
        release: the release that it started with.
        ready: True if its Node is Ready; relevant only while machines of another release are replaced.
    """

    name: str
    pool: str
    alive: bool = True
    leaving: bool = False
    has_notice: bool = False
    release: str = ""
    ready: bool = True


@dataclass(frozen=True, kw_only=True)
class FleetPlan:
    """Changes to the machines of all pools.

    Attributes:
        start: number of new machines of each pool.
        stop: machines to drain and remove.
        forget: machines that no longer exist and whose records are removed.
        reclaim: spot machines that the cloud reclaims because their pool exceeds its limit.
        shortages: number of machines that each pool lacks because of its limit.
        replace: machines of an old release to drain and remove, at most one per pool.
    """

    start: Mapping[str, int]
    stop: tuple[str, ...]
    forget: tuple[str, ...]
    reclaim: tuple[str, ...]
    shortages: Mapping[str, int]
    replace: tuple[str, ...] = ()


def decide(
    pools: Sequence[Pool], machines: Sequence[PoolMachine], limits: Mapping[str, int]
) -> FleetPlan:
    """Return the changes.

    EKS starts a replacement when an interruption is announced (capacity rebalancing, which managed
    node groups enable). AKS counts a machine until it is gone.

    Args:
        pools: all pools.
        machines: their machines, oldest first, including machines of deleted pools.
        limits: maximum number of machines of each pool; a pool that is absent has no limit.
    """
    pool_names = {pool.key for pool in pools}
    stop = [m.name for m in machines if m.alive and not m.leaving and m.pool not in pool_names]
    forget = [m.name for m in machines if not m.alive and not m.leaving]
    start: dict[str, int] = {}
    shortages: dict[str, int] = {}
    reclaim: list[str] = []
    replaced_names: list[str] = []
    for pool in pools:
        pool_machines = [m for m in machines if m.pool == pool.key and m.alive]
        surge_size = _surge_size(pool, pool_machines)
        desired = pool.desired_size + surge_size
        replaced_names += _machines_to_replace(pool, pool_machines, desired)
        limit = limits.get(pool.key)
        remaining_machines = [m for m in pool_machines if not m.leaving]
        active_machines = [m for m in remaining_machines if not m.has_notice]
        reclaimed_machines = (
            active_machines[limit:] if limit is not None and pool.capacity == "spot" else []
        )
        candidates = active_machines if pool.cloud == "aws" else remaining_machines
        counted_machines = [m for m in candidates if m not in reclaimed_machines]
        # Machines with a notice do not count: otherwise a machine without a notice, possibly busy, would be surplus.
        staying_machines = [m for m in active_machines if m not in reclaimed_machines]
        # Machines of an old release stop first.
        staying_machines.sort(key=lambda m: m.release != pool.release)
        surplus = len(staying_machines) - desired
        if surplus > 0:
            stop += [m.name for m in staying_machines[-surplus:]]
        missing = max(desired - len(counted_machines), 0)
        available = missing if limit is None else max(limit - len(active_machines), 0)
        reclaim += [m.name for m in reclaimed_machines]
        if missing and available:
            start[pool.key] = min(missing, available)
        if missing > available:
            shortages[pool.key] = missing - available
    return FleetPlan(
        start=start,
        stop=tuple(stop),
        replace=tuple(name for name in replaced_names if name not in stop),
        forget=tuple(forget),
        reclaim=tuple(reclaim),
        shortages=shortages,
    )


def _stale_machines(pool: Pool, machines: Sequence[PoolMachine]) -> list[PoolMachine]:
    """Return the machines of a pool that have another release, including those being removed."""
    return [machine for machine in machines if machine.release != pool.release]


def _surge_size(pool: Pool, machines: Sequence[PoolMachine]) -> int:
    """Return the number of machines that a pool has above its desired size during a replacement.

    It is negative while a pool without surge removes a machine, whose successor starts afterwards.
    """
    stale_machines = _stale_machines(pool, machines)
    return min(pool.surge, len(stale_machines)) - sum(machine.leaving for machine in stale_machines)


def _machines_to_replace(pool: Pool, machines: Sequence[PoolMachine], desired: int) -> list[str]:
    """Return the machine of an old release that is removed now: the oldest, once all successors are Ready."""
    staying_machines = [
        machine for machine in machines if not (machine.leaving or machine.has_notice)
    ]
    candidates = _stale_machines(pool, staying_machines)
    must_wait = any(machine.leaving for machine in machines) or len(staying_machines) < desired
    if must_wait or not all(m.ready for m in staying_machines if m.release == pool.release):
        return []
    return [machine.name for machine in candidates[:1]]


def name_prefix(pool: str) -> str:
    """Return the first part of the names of a pool's machines, which pools with similar names share.

    Characters that a Node's name does not allow, but the name of an EKS node group does, become hyphens.
    """
    valid_characters = "".join(
        c if c.isascii() and c.isalnum() else "-" for c in pool.lower()
    ).strip("-")
    return valid_characters[:30].rstrip("-") or "pool"


def machine_name(pool: str, number: int) -> str:
    """Return the name of a pool's machine with a number."""
    return f"{name_prefix(pool)}-{number}"


def machine_number(name: str) -> int:
    """Return the number at the end of a machine's name; 0 if there is none."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
