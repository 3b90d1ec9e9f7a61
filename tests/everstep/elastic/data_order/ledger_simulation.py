"""Random schedules of faults in which every worker reads samples, as input of `trainer.verify`.

Like `recovery_simulation`, but each step of a state also has the number and digest of the samples that its workers
have read, including results kept from an interrupted step, as the trainer sums them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from everstep.elastic.data_order.sample_ledger import SampleLedger, digest
from everstep.elastic.data_order.sampler import SampleOrder
from tests.everstep.elastic.membership.simulation import Agent
from tests.everstep.elastic.recovery.recovery_simulation import LiveWorld, Worker

# The last step of an epoch is smaller, since the batch does not divide the samples.
SAMPLES, BATCH, SEED = 50, 7, 11
MAX_MOVES = 5000


class LedgerWorld(LiveWorld):
    """A schedule whose states record the samples they were trained on."""

    def __init__(self, seed: int, nodes: int, min_members: int) -> None:
        self.order = SampleOrder(SAMPLES, BATCH, epochs=10_000, seed=SEED)
        self.events = 0
        # By generation and index of the collective in it, then by rank: number of samples and their digest.
        self.samples_read: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        super().__init__(seed, nodes, min_members)

    def begin(self, worker: Worker, kind: str, payload: object) -> None:
        key = (worker.core.generation, worker.count)
        super().begin(worker, kind, payload)
        if kind == "sum" and worker.state is not None:
            step = len(worker.state)
            ids = self.order.batch(step)
            own_ids = np.concatenate(
                [ids[:0], *(ids[slice(*span)] for span in worker.computed_units)]
            )
            self.samples_read.setdefault(key, {})[worker.core.rank] = (
                len(own_ids),
                digest(step, own_ids),
            )

    def units(self, worker: Worker) -> int:
        """Return the number of samples of the step in flight."""
        return len(self.order.batch(len(worker.state or ())))

    def apply(self, worker: Worker) -> None:
        sample_counts = self.samples_read[worker.core.generation, worker.count - 1].values()
        super().apply(worker)
        assert worker.state is not None
        step, generation = worker.state[-1]
        assert isinstance(generation, int)
        sums = (
            sum(samples for samples, _ in sample_counts),
            sum(digest for _, digest in sample_counts) % 2**64,
        )
        worker.state = (*worker.state[:-1], (step, (generation, *sums)))

    def move(self) -> None:
        """Make one move; if no agent is awake, first thaw or start one: without one, no further event occurs."""
        if not self.awake():
            self.events += 1
            frozen_agents = [agent for agent in self.alive() if agent.frozen]
            if frozen_agents:
                self.random.choice(frozen_agents).frozen = False
            else:
                self.spawn()
        super().move()

    def inject_fault(self, agent: Agent) -> None:
        self.events += 1
        super().inject_fault(agent)


def play(seed: int, events: int) -> LedgerWorld:
    """Run a schedule of at least `events` events, after which all live agents form a group and continue."""
    world = LedgerWorld(seed, nodes=4, min_members=1 + seed % 2)
    for _ in range(MAX_MOVES):
        if world.events >= events:
            break
        world.move()
    assert world.events >= events, f"seed {seed}: only {world.events} events"
    while sum(not agent.core.leaving for agent in world.alive()) < world.limits.min_members:
        world.spawn()
    world.end_faults()
    reached_step = max(len(agent.worker.state or ()) for agent in world.alive())
    for _ in range(MAX_MOVES):  # until that step is committed, too: the disk may be slow
        if world.etcd.committed and len(world.etcd.committed[-1][1]) >= reached_step:
            return world
        world.train()
    raise AssertionError(f"seed {seed}: step {reached_step} was never committed")


def ledger_of(state: tuple[Any, ...]) -> SampleLedger:
    """Return the ledger of a state."""
    ledger = SampleLedger()
    for _, (_, samples, samples_digest) in state:
        ledger = ledger.with_step(samples, samples_digest)
    return ledger


def write_run(world: LedgerWorld, folder: Path) -> None:
    """Write the folder of this run, as input of `trainer.verify`."""
    folder.mkdir(parents=True, exist_ok=True)
    run = {"samples": SAMPLES, "fingerprint": {"global_batch": BATCH, "seed": SEED}}
    (folder / "run.json").write_text(json.dumps(run))
    lines = []
    for progress, state in world.etcd.committed:
        ledger = ledger_of(state)
        lines.append(
            {
                "at": 0,
                "kind": "commit",
                "step": len(state),
                "generation": progress.agreed_generation,
                "samples": ledger.samples,
                "digest": f"{ledger.digest:016x}",
            }
        )
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
