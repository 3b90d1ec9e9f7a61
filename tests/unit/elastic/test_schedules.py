"""Whatever comes and goes, every sample is trained exactly once: judged by a program that shares no code."""

import pytest

from tests.unit.elastic.ledger_simulation import BATCH, SAMPLES, SEED, accounts, play
from trainer.verify import Commit, verify

RUN = {"samples": SAMPLES, "fingerprint": {"global_batch": BATCH, "seed": SEED}}
EVENTS = 10


def commits(world) -> list[Commit]:
    return [
        Commit(len(state), standing.lineage, accounts(state).samples, accounts(state).digest)
        for standing, state in world.etcd.committed
    ]


def living(world) -> list[Commit]:
    states = [agent.worker.state for agent in world.alive() if agent.worker.state]
    return [Commit(len(s), 0, accounts(s).samples, accounts(s).digest) for s in states]


@pytest.mark.parametrize("seed", range(8))
def test_every_state_was_made_of_every_sample_exactly_once(seed):
    world = play(seed, EVENTS)

    assert world.events >= EVENTS
    assert verify(RUN, commits(world)) == []
    assert verify(RUN, living(world)) == []


def test_a_worker_that_reads_another_s_share_shows():
    world = play(1, EVENTS)
    standing, state = world.etcd.committed[-1]
    step, (generation, samples, words) = state[-1]
    world.etcd.committed[-1] = (
        standing,
        (*state[:-1], (step, (generation, samples, words + 1))),
    )

    assert len(verify(RUN, commits(world))) == 1
