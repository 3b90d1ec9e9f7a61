"""Interruption of machines on command, as a spot market would interrupt them: for drills and tests."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cloudtwin.capacity.config import MarketConfig
from cloudtwin.capacity.limits import CapacityLimits
from cloudtwin.capacity.pools import PoolStore
from cloudtwin.nodes import Power, Twin
from cloudtwin.nodes.layout import Layout
from cloudtwin.progress import Progress, Silent


def reclaim(
    state: Path,
    names: Sequence[str],
    notice_seconds: float | None = None,
    unavailable_seconds: float | None = None,
    progress: Progress | None = None,
) -> None:
    """Interrupt machines at the same time: notice, drain, removal. Return when they are removed.

    Args:
        state: the twin's folder.
        names: names of the machines.
        notice_seconds: time between notice and removal; by default the cloud's, in compressed time.
        unavailable_seconds: time without capacity for replacements, from the notice on; by default
            they start immediately.
        progress: receiver of the steps.

    Raises:
        TwinError: a machine does not exist, is not running or belongs to no cloud; then no machine receives a notice.
    """
    names = list(dict.fromkeys(names))
    twin, config = Twin(Layout(state)), MarketConfig.load(state)
    specs = {name: twin.reclaimable(name) for name in names}
    seconds = {
        name: config.notice_seconds(spec.cloud) if notice_seconds is None else notice_seconds
        for name, spec in specs.items()
    }
    with PoolStore(state).exclusive():  # otherwise replacements would start before the limit is set
        for name in names:
            twin.notice(name, seconds[name], terminate=True)
        if unavailable_seconds is not None:
            _limit_pools(twin, names, unavailable_seconds)
    with ThreadPoolExecutor(max_workers=max(len(names), 1)) as workers:
        list(
            workers.map(lambda name: twin.reclaim(name, seconds[name], progress or Silent()), names)
        )


def _limit_pools(twin: Twin, names: Sequence[str], seconds: float) -> None:
    machines_left = [m for m in twin.status().machines if m.power is not Power.GONE]
    pools = {m.spec.name: m.spec.pool for m in machines_left}
    for pool, machines in remaining_machines(pools, names).items():
        CapacityLimits(twin.state).set(pool, machines, seconds)


def remaining_machines(pools: Mapping[str, str], interrupted: Collection[str]) -> dict[str, int]:
    """Return the number of machines that each affected pool keeps.

    Args:
        pools: the pool of each machine; empty for a machine without one.
        interrupted: names of machines.
    """
    affected = {pool for name, pool in pools.items() if name in interrupted and pool}
    return {
        pool: sum(other == pool and name not in interrupted for name, other in pools.items())
        for pool in sorted(affected)
    }
