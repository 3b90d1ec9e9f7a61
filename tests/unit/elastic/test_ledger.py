from hypothesis import given
from hypothesis.strategies import integers, lists

from everstep.elastic.ledger import Account, digest, from_limbs, to_limbs
from everstep.elastic.sampler import Plan, share

WORDS = integers(min_value=0, max_value=2**64 - 1)


@given(digests=lists(WORDS, min_size=1, max_size=300))
def test_the_digests_of_all_workers_add_up_exactly_whatever_they_are(digests):
    sums = [sum(limbs) for limbs in zip(*map(to_limbs, digests), strict=True)]

    assert max(sums) < 2**24, "float32 holds no larger whole number exactly"
    assert from_limbs(sums) == sum(digests) % 2**64


@given(world_size=integers(1, 9), step=integers(0, 12))
def test_who_trained_which_sample_does_not_matter(world_size, step):
    ids = Plan(samples=50, global_batch=7, epochs=2, seed=3).batch(step)
    shares = [digest(step, ids[share(len(ids), rank, world_size)]) for rank in range(world_size)]

    assert sum(shares) % 2**64 == digest(step, ids)


def test_a_sample_left_out_taken_twice_or_in_another_step_shows():
    ids = Plan(samples=50, global_batch=7, epochs=1, seed=3).batch(0)
    due = digest(0, ids)

    assert digest(0, ids[1:]) != due
    assert digest(0, ids.repeat(2)) != due
    assert digest(1, ids) != due


@given(samples=integers(0, 2**40), words=WORDS)
def test_an_account_survives_being_a_tensor(samples, words):
    account = Account(samples, words)

    assert Account.from_signed(*account.to_signed()) == account
