"""What is to be done so that pools have the machines they want: a pure decision.

Nothing is remembered between two decisions but what stands on disk: pools, machines and notices. So whoever acts on
them may be killed at any moment, and its successor decides the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twin.clouds.capacity.pools import Pool


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A machine of a pool, as it is.

    Attributes:
        name: its name.
        pool: the pool it was made for.
        alive: whether it runs, or is being started.
        leaving: whether it is being taken away.
        noticed: whether the cloud has announced that it will take it.
    """

    name: str
    pool: str
    alive: bool = True
    leaving: bool = False
    noticed: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done.

    Attributes:
        start: how many new machines each pool gets.
        stop: machines to be drained and taken away.
        forget: machines that are no more and must only be removed from the books.
        reclaim: spot machines for which there is no room any more.
        short: pools that want machines for which there is no capacity, and how many.
    """

    start: Mapping[str, int]
    stop: tuple[str, ...]
    forget: tuple[str, ...]
    reclaim: tuple[str, ...]
    short: Mapping[str, int]


def decide(pools: Sequence[Pool], machines: Sequence[Seen], limits: Mapping[str, int]) -> Plan:
    """Decide what is to be done.

    EKS starts a replacement as soon as a machine is announced to go (capacity rebalancing, which managed node
    groups have on); AKS counts a machine until it is gone.

    Args:
        pools: all there are.
        machines: all that belong to a pool, one of a deleted pool too, in the order in which they came.
        limits: how many machines of a pool the cloud has room for; a pool that is not named has no limit.
    """
    known = {pool.name for pool in pools}
    stop = [m.name for m in machines if m.alive and not m.leaving and m.pool not in known]
    forget = [m.name for m in machines if not m.alive and not m.leaving]
    start: dict[str, int] = {}
    short: dict[str, int] = {}
    reclaim: list[str] = []
    for pool in pools:
        limit = limits.get(pool.name)
        mine = [m for m in machines if m.pool == pool.name and m.alive and not m.leaving]
        active = [m for m in mine if not m.noticed]
        taken = active[limit:] if limit is not None and pool.capacity == "spot" else []
        counted = [m for m in (active if pool.cloud == "aws" else mine) if m not in taken]
        # A machine that is going anyway is no reason to take another one, which may be at work.
        staying = [m.name for m in active if m not in taken]
        surplus = len(staying) - pool.desired
        if surplus > 0:
            stop += staying[-surplus:]
        lacking = max(pool.desired - len(counted), 0)
        room = lacking if limit is None else max(limit - len(active), 0)
        reclaim += [m.name for m in taken]
        if lacking and room:
            start[pool.name] = min(lacking, room)
        if lacking > room:
            short[pool.name] = lacking - room
    return Plan(
        start=start,
        stop=tuple(stop),
        forget=tuple(forget),
        reclaim=tuple(reclaim),
        short=short,
    )


def next_name(pool: str, number: int) -> str:
    """Return the name of the machine of a pool that was the `number`-th to be made.

    Kubernetes and the twin allow fewer characters in a Node's name than EKS in the name of a node group.
    """
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in pool.lower()).strip("-")
    return f"{kept[:30].rstrip('-') or 'pool'}-{number}"


def number_of(name: str) -> int:
    """Return the number that `next_name` gave a machine; 0 for a name of another origin."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
