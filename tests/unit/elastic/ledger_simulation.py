"""Random schedules of faults in which every worker reads samples: what `trainer.verify` is then asked about.

As `recovery_simulation`, and each step of a state also holds what its workers have really read: their number
of samples and digest, what was kept of a broken step included, as the trainer adds them up.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from everstep.elastic.ledger import Account, digest
from everstep.elastic.sampler import Plan
from tests.unit.elastic.recovery_simulation import LiveWorld, Operation, Worker
from tests.unit.elastic.simulation import Agent

SAMPLES, BATCH, SEED = (
    50,
    7,
    11,
)  # neither divides the other: the last step of an epoch is a smaller one
MOST_MOVES = 5000


@dataclass
class Reading(Operation):
    """A collective, and what each rank read for it: samples and digest."""

    read: dict[int, tuple[int, int]] = field(default_factory=dict)


class LedgerWorld(LiveWorld):
    """A schedule whose states know which samples made them."""

    def __init__(self, seed: int, nodes: int, min_members: int) -> None:
        self.plan = Plan(SAMPLES, BATCH, epochs=10_000, seed=SEED)
        self.events = 0
        self.read: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        super().__init__(seed, nodes, min_members)

    def begin(self, worker: Worker, kind: str, payload: object) -> None:
        key = (worker.core.generation, worker.count)
        super().begin(worker, kind, payload)
        if kind == "sum" and worker.state is not None:
            step = len(worker.state)
            ids = self.plan.batch(step)
            mine = np.concatenate([ids[:0], *(ids[slice(*span)] for span in worker.mine)])
            self.read.setdefault(key, {})[worker.core.rank] = (len(mine), digest(step, mine))

    def units(self, worker: Worker) -> int:
        """Samples."""
        return len(self.plan.batch(len(worker.state or ())))

    def apply(self, worker: Worker) -> None:
        read = self.read[worker.core.generation, worker.count - 1].values()
        super().apply(worker)
        step, generation = worker.state[-1]
        sums = (sum(samples for samples, _ in read), sum(words for _, words in read) % 2**64)
        worker.state = (*worker.state[:-1], (step, (generation, *sums)))

    def move(self) -> None:
        """Where nobody is awake a machine comes back: without one a schedule would have no more events."""
        if not self.awake():
            self.events += 1
            frozen = [agent for agent in self.alive() if agent.frozen]
            if frozen:
                self.random.choice(frozen).frozen = False
            else:
                self.spawn()
        super().move()

    def disturb(self, agent: Agent) -> None:
        self.events += 1
        super().disturb(agent)


def play(seed: int, events: int) -> LedgerWorld:
    """A schedule of at least so many events, after which all that live find together and go on."""
    world = LedgerWorld(seed, nodes=4, min_members=1 + seed % 2)
    for _ in range(MOST_MOVES):
        if world.events >= events:
            break
        world.move()
    assert world.events >= events, f"seed {seed}: only {world.events} events"
    while sum(not agent.core.leaving for agent in world.alive()) < world.rules.min_members:
        world.spawn()
    world.calm()
    reached = max(len(agent.worker.state or ()) for agent in world.alive())
    for _ in range(MOST_MOVES):  # until that is committed too: its disk may be a slow one
        if world.etcd.committed and len(world.etcd.committed[-1][1]) >= reached:
            return world
        world.train()
    raise AssertionError(f"seed {seed}: step {reached} was never committed")


def accounts(state: tuple) -> Account:
    """What a state says that it was made of."""
    account = Account()
    for _, (_, samples, words) in state:
        account = account.plus(samples, words)
    return account


def write_run(world: LedgerWorld, folder: Path) -> None:
    """The folder of a run that went like this: what `trainer.verify` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    run = {"samples": SAMPLES, "fingerprint": {"global_batch": BATCH, "seed": SEED}}
    (folder / "run.json").write_text(json.dumps(run))
    lines = []
    for standing, state in world.etcd.committed:
        account = accounts(state)
        lines.append(
            {
                "at": 0,
                "kind": "commit",
                "step": len(state),
                "generation": standing.lineage,
                "samples": account.samples,
                "digest": f"{account.digest:016x}",
            }
        )
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
