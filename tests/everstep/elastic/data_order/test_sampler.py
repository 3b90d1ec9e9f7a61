"""The order of samples and the shares of the workers, for any sequence of groups."""

import sys
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists

from everstep.elastic.data_order.sampler import SampleOrder, epoch_order, share
from tests.effort import examples


@given(
    samples=integers(1, 400),
    batch=integers(1, 97),
    seed=integers(0, 2**31),
    world_sizes=lists(integers(1, 9)),
)
@settings(max_examples=examples(60))
def test_every_sample_is_trained_exactly_once_per_epoch_for_any_sequence_of_groups(
    samples: int, batch: int, seed: int, world_sizes: list[int]
) -> None:
    order = SampleOrder(samples, batch, epochs=2, seed=seed)
    for epoch in range(2):
        trained_ids: list[int] = []
        for step in range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch):
            world_size = world_sizes[step % len(world_sizes)] if world_sizes else 1
            ids = order.batch(step)
            trained_ids += [
                int(i) for rank in range(world_size) for i in ids[share(len(ids), rank, world_size)]
            ]
        assert sorted(trained_ids) == list(range(samples)), (
            "a lost or repeated sample changes the result"
        )


@given(samples=integers(0, 1000), world_size=integers(1, 64))
def test_shares_differ_by_at_most_one_and_cover_all_samples(samples: int, world_size: int) -> None:
    parts = [share(samples, rank, world_size) for rank in range(world_size)]

    assert parts[0].start == 0
    assert parts[-1].stop == samples
    assert all(before.stop == after.start for before, after in pairwise(parts))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_rank_outside_the_world_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=rf"rank must be in 0\.\.2, got {rank}"):
        share(10, rank, 3)


def test_a_smaller_last_batch_is_not_dropped() -> None:
    order = SampleOrder(samples=10, global_batch=4, epochs=1, seed=1)

    assert [len(order.batch(step)) for step in range(order.total_steps)] == [4, 4, 2]


def test_an_epoch_ends_only_after_its_last_step() -> None:
    order = SampleOrder(samples=10, global_batch=4, epochs=2, seed=1)

    assert [step for step in range(7) if order.ends_epoch(step)] == [3, 6]


def test_epochs_and_seeds_have_different_orders() -> None:
    orders = {tuple(epoch_order(seed, epoch, 50)) for seed in range(3) for epoch in range(3)}

    assert len(orders) == 9


def test_the_order_does_not_change_between_versions() -> None:
    assert list(epoch_order(7, 3, 8)) == [2, 7, 0, 6, 4, 1, 3, 5]


@pytest.mark.parametrize("field", ["samples", "global_batch", "epochs"])
def test_an_order_without_samples_batch_or_epochs_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be at least 1, got 0"):
        SampleOrder(**{"samples": 1, "global_batch": 1, "epochs": 1, "seed": 0, field: 0})


def test_threads_that_use_different_epochs_receive_their_own_orders() -> None:
    expected = [epoch_order(1, epoch, 50).copy() for epoch in range(2)]
    wrong_orders = list[int]()

    def use(epoch: int) -> None:
        for _ in range(3000):
            if not np.array_equal(epoch_order(1, epoch, 50), expected[epoch]):
                wrong_orders.append(epoch)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=use, args=(epoch,)) for epoch in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
    finally:
        sys.setswitchinterval(interval)

    assert wrong_orders == []
