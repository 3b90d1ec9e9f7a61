"""The faults of one chaos run, as a pure function of its seed.

A schedule is a list of rounds. The faults of a round overlap; the next round begins when all nodes train
together again. Random numbers decide kinds, targets and durations, and nothing that the cluster does
changes them: a seed replays the same faults.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

NODES = ("w0", "w1", "w2", "w3")
ONE_MEMBER, THREE_MEMBERS = ("e0",), ("e0", "e1", "e2")

NODE_FAULTS = (
    "kill-worker",
    "kill-agent",
    "kill-node",
    "freeze-node",
    "freeze-worker",
    "drain",
    "out-of-memory",
    "clock-step",
    "disk-hang",
)
"""Faults of one node; the faults of a round have different nodes."""

NETWORK_FAULTS = (
    "isolate",
    "one-direction",
    "cut-workers",
    "cut-etcd",
    "split",
    "loss",
    "slow-link",
    "latency",
)
SHARED_FAULTS = (
    "etcd-kill",
    "etcd-freeze",
    "etcd-isolate",
    "etcd-compact",
    "etcd-slow-disk",
    "etcd-restore",
    "etcd-snapshot",
    "etcd-wipe",
    "disk-full",
    "torn-checkpoint",
    "kill-all",
)
"""Faults of components that all nodes share, or of all nodes; a round has at most one."""

KINDS = (*NODE_FAULTS, *NETWORK_FAULTS, *SHARED_FAULTS)
FAULTS_PER_ROUND = (1, 2, 2, 3)  # possible numbers of faults in a round
DURATION_SECONDS = (0.4, 1.0, 2.5, 4.0, 6.0, 10.0)
"""Durations shorter and longer than a lease (2 s), and than the time until a frozen worker is killed (8 s)."""
OFFSET_SECONDS = (0.0, 0.0, 0.3, 1.0, 2.0)
AMOUNTS = {
    "loss": (5, 20, 50),  # percent
    "slow-link": (512, 2048, 8192),  # kilobits per second
    "latency": (20, 100, 400),  # milliseconds
    "clock-step": (-48, -1, 1, 48),  # hours
    "split": (0, 1),  # 1 if both halves reach etcd, 0 if only one does
    "disk-hang": (0, 1),  # whether it hangs for all nodes
    "etcd-slow-disk": (50, 200, 1000),  # milliseconds added to each sync
}


@dataclass(frozen=True)
class ScheduledFault:
    """One fault.

    Attributes:
        kind: one of `KINDS`.
        targets: affected machines; for `split` (a network partition), the machines of one side.
        at: seconds from the beginning of its round.
        seconds: duration.
        amount: a value of `AMOUNTS`; 0 for other kinds.
    """

    kind: str
    targets: tuple[str, ...]
    at: float
    seconds: float
    amount: int = 0


@dataclass(frozen=True)
class Round:
    """Faults that overlap, and the pause before them.

    Attributes:
        pause: seconds between the moment when all nodes train and the beginning of the round.
        faults: the faults, in the order in which they begin.
    """

    pause: float
    faults: tuple[ScheduledFault, ...]


def members(seed: int) -> tuple[str, ...]:
    """Return the names of the etcd members for a seed: one or three, in turn."""
    return THREE_MEMBERS if seed % 2 else ONE_MEMBER


def schedule(
    seed: int, faults: int, *, nodes: Sequence[str] = NODES, kinds: Sequence[str] = KINDS
) -> tuple[Round, ...]:
    """Return rounds with this number of faults of these kinds in total."""
    rng = random.Random(seed)
    deck: list[str] = []
    rounds: list[Round] = []
    while (remaining := faults - sum(len(round_.faults) for round_ in rounds)) > 0:
        if not deck:  # every kind once, in random order, before any kind repeats
            deck = rng.sample(kinds, len(kinds))
        drawn_kinds = _draw_kinds(deck, min(remaining, rng.choice(FAULTS_PER_ROUND)))
        rounds.append(_round(rng, drawn_kinds, nodes, members(seed)))
    return tuple(rounds)


def _draw_kinds(deck: list[str], count: int) -> list[str]:
    """Draw kinds that can overlap from the deck: at most one of `SHARED_FAULTS`."""
    kinds: list[str] = []
    for kind in list(deck):
        if len(kinds) < count and not (kind in SHARED_FAULTS and set(kinds) & set(SHARED_FAULTS)):
            kinds.append(kind)
            deck.remove(kind)
    return kinds


def _round(
    rng: random.Random, kinds: Sequence[str], nodes: Sequence[str], etcd: Sequence[str]
) -> Round:
    unused_nodes = rng.sample(list(nodes), len(nodes))  # nodes for faults of a single node
    faults = []
    for kind in kinds:
        if kind in NODE_FAULTS:
            targets: tuple[str, ...] = (unused_nodes.pop(),)
        else:
            targets = tuple(_targets(rng, kind, nodes, etcd))
        offset, seconds = rng.choice(OFFSET_SECONDS), rng.choice(DURATION_SECONDS)
        amount = rng.choice(AMOUNTS[kind]) if kind in AMOUNTS else 0
        faults.append(ScheduledFault(kind, targets, offset, seconds, amount))
    pause = round(rng.uniform(0.2, 1.5), 2)
    return Round(pause, tuple(sorted(faults, key=lambda fault: fault.at)))


def _targets(rng: random.Random, kind: str, nodes: Sequence[str], etcd: Sequence[str]) -> list[str]:
    """Return the targets of a network fault or of a fault of a shared component."""
    if kind == "split":
        return rng.sample(list(nodes), len(nodes) // 2)
    if kind == "one-direction":
        return rng.sample(list(nodes), 2)
    if kind in NETWORK_FAULTS:
        return [rng.choice(list(nodes))]
    if kind in ("etcd-restore", "etcd-snapshot", "etcd-wipe"):
        return list(etcd)
    return [rng.choice(list(etcd))] if kind.startswith("etcd") else list(nodes)
