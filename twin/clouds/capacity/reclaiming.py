"""Takes machines back as a spot market does, at somebody's word: for drills, demonstrations and tests."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from everstep.progress import Progress, Silent
from twin.clouds.capacity.pools import PoolStore
from twin.clouds.capacity.settings import Settings
from twin.clouds.capacity.supply import Supply
from twin.nodes import Power, Twin
from twin.nodes.layout import Layout


def reclaim(
    state: Path,
    names: Sequence[str],
    notice_seconds: float | None = None,
    back_after_seconds: float | None = None,
    progress: Progress | None = None,
) -> None:
    """Take machines, all at once: notice, drain, gone. Returns when they are.

    Args:
        state: the twin's folder.
        names: of the machines.
        notice_seconds: between the notice and the end; by default the cloud's own, in compressed time.
        back_after_seconds: how long there is no room for others in their place, from the notice on; by default
            there is room at once.
        progress: told of each machine.

    Raises:
        EverstepError: there is no such machine, or it is of no cloud.
    """
    twin, settings = Twin(Layout(state)), Settings.load(state)
    specs = {machine.spec.name: machine.spec for machine in twin.status().machines}
    seconds = {
        name: notice_seconds
        if notice_seconds is not None
        else settings.notice_seconds(specs[name].cloud if name in specs else "")
        for name in names
    }
    with PoolStore(state).undisturbed():  # or others would come before the room is closed
        for name in names:
            twin.notice(name, seconds[name], take=True)
        if back_after_seconds is not None:
            _keep_room_closed(twin, names, back_after_seconds)
    with ThreadPoolExecutor(max_workers=max(len(names), 1)) as workers:
        list(
            workers.map(lambda name: twin.reclaim(name, seconds[name], progress or Silent()), names)
        )


def _keep_room_closed(twin: Twin, names: Sequence[str], seconds: float) -> None:
    there = [m for m in twin.status().machines if m.power is not Power.GONE]
    pools = {m.spec.name: m.spec.group for m in there}
    for pool, room in room_left(pools, names).items():
        Supply(twin.state).limit(pool, room, seconds)


def room_left(pools: Mapping[str, str], taken: Collection[str]) -> dict[str, int]:
    """Return how many machines each pool that loses some keeps: there is room for those, and for no others.

    Args:
        pools: the pool of each machine; empty for a machine of none.
        taken: machines' names.
    """
    losing = {pool for name, pool in pools.items() if name in taken and pool}
    return {
        pool: sum(each == pool and name not in taken for name, each in pools.items())
        for pool in sorted(losing)
    }
