"""Under random schedules each sample is trained exactly once per epoch, as `trainer.verify` checks independently."""

import pytest

from tests.everstep.elastic.data_order.ledger_simulation import (
    BATCH,
    SAMPLES,
    SEED,
    LedgerWorld,
    ledger_of,
    play,
)
from trainer.verify import Commit, verify

RUN = {"samples": SAMPLES, "fingerprint": {"global_batch": BATCH, "seed": SEED}}
EVENTS = 10


def commits(world: LedgerWorld) -> list[Commit]:
    return [
        Commit(
            len(state),
            progress.agreed_generation,
            ledger_of(state).samples,
            ledger_of(state).digest,
        )
        for progress, state in world.etcd.committed
    ]


def live_states(world: LedgerWorld) -> list[Commit]:
    states = [agent.worker.state for agent in world.alive() if agent.worker.state]
    return [Commit(len(s), 0, ledger_of(s).samples, ledger_of(s).digest) for s in states]


@pytest.mark.parametrize("seed", range(8))
def test_every_state_was_trained_on_each_sample_of_its_steps_exactly_once(seed: int) -> None:
    world = play(seed, EVENTS)

    assert verify(RUN, commits(world)) == []
    assert verify(RUN, live_states(world)) == []


def test_a_commit_with_a_wrong_digest_is_detected() -> None:
    world = play(1, EVENTS)
    progress, state = world.etcd.committed[-1]
    step, (generation, samples, digest) = state[-1]
    world.etcd.committed[-1] = (
        progress,
        (*state[:-1], (step, (generation, samples, digest + 1))),
    )

    assert len(verify(RUN, commits(world))) == 1
