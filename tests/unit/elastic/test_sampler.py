from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists

from everstep.elastic.sampler import Plan, epoch_order, share


@given(
    samples=integers(1, 400),
    batch=integers(1, 97),
    seed=integers(0, 2**31),
    worlds=lists(integers(1, 9)),
)
@settings(max_examples=60, deadline=None)
def test_every_sample_is_trained_exactly_once_an_epoch_whatever_the_workers_do(
    samples, batch, seed, worlds
):
    plan = Plan(samples, batch, epochs=2, seed=seed)
    for epoch in range(2):
        trained: list[int] = []
        for step in range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch):
            world = worlds[step % len(worlds)] if worlds else 1
            ids = plan.batch(step)
            trained += [int(i) for rank in range(world) for i in ids[share(len(ids), rank, world)]]
        assert sorted(trained) == list(range(samples)), (
            "a lost or doubled sample changes the outcome"
        )


@given(samples=integers(0, 1000), world=integers(1, 64))
def test_shares_differ_by_one_at_most_and_leave_no_sample_out(samples, world):
    parts = [share(samples, rank, world) for rank in range(world)]

    assert parts[0].start == 0
    assert parts[-1].stop == samples
    assert all(before.stop == after.start for before, after in pairwise(parts))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(ValueError, match=r"rank must be in 0\.\.2"):
        share(10, 3, 3)


def test_the_last_smaller_batch_counts():
    plan = Plan(samples=10, global_batch=4, epochs=1, seed=1)

    assert [len(plan.batch(step)) for step in range(plan.total_steps)] == [4, 4, 2]


def test_an_epoch_ends_after_its_last_step_only():
    plan = Plan(samples=10, global_batch=4, epochs=2, seed=1)

    assert [step for step in range(7) if plan.ends_epoch(step)] == [3, 6]


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {tuple(epoch_order(seed, epoch, 50)) for seed in range(3) for epoch in range(3)}

    assert len(orders) == 9


def test_the_order_is_the_same_on_every_version_of_everything():
    assert list(epoch_order(7, 3, 8)) == [2, 7, 0, 6, 4, 1, 3, 5]


@pytest.mark.parametrize("field", ["samples", "global_batch", "epochs"])
def test_a_plan_of_nothing_is_refused(field):
    with pytest.raises(ValueError, match=field):
        Plan(**{"samples": 1, "global_batch": 1, "epochs": 1, "seed": 0, field: 0})
