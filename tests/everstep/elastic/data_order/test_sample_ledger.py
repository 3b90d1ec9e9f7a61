"""The digest of a run's samples."""

from hypothesis import given
from hypothesis.strategies import integers, lists

from everstep.elastic.data_order.sample_ledger import (
    SampleLedger,
    digest,
    from_limbs,
    to_limbs,
)
from everstep.elastic.data_order.sampler import SampleOrder, share

WORDS = integers(min_value=0, max_value=2**64 - 1)


@given(digests=lists(WORDS, min_size=1, max_size=300))
def test_the_digests_of_all_workers_are_summed_exactly(digests: list[int]) -> None:
    sums = [sum(limbs) for limbs in zip(*map(to_limbs, digests), strict=True)]

    assert from_limbs(sums) == sum(digests) % 2**64


@given(world_size=integers(1, 9), step=integers(0, 12))
def test_the_digest_does_not_depend_on_the_assignment_of_samples(
    world_size: int, step: int
) -> None:
    ids = SampleOrder(samples=50, global_batch=7, epochs=2, seed=3).batch(step)
    shares = [digest(step, ids[share(len(ids), rank, world_size)]) for rank in range(world_size)]

    assert sum(shares) % 2**64 == digest(step, ids)


def test_a_missing_repeated_or_misplaced_sample_changes_the_digest() -> None:
    ids = SampleOrder(samples=50, global_batch=7, epochs=1, seed=3).batch(0)
    expected = digest(0, ids)

    assert digest(0, ids[1:]) != expected
    assert digest(0, ids.repeat(2)) != expected
    assert digest(1, ids) != expected


def test_a_digest_stays_below_2_to_the_64() -> None:
    ledger = SampleLedger(samples=8, digest=2**64 - 1)

    assert ledger.with_step(8, 3) == SampleLedger(samples=16, digest=2)


def test_limbs_of_65_000_workers_are_summed_exactly_in_float32() -> None:
    largest_limb = max(to_limbs(2**64 - 1))

    assert largest_limb * 65_000 < 2**24, "float32 represents all integers up to 2^24 exactly"
