"""Groups of GPUs: communicators, all-reduces, copies, and lost peers, with the real NCCL."""

import pytest

from tests.gpu.ranks import (
    LOST,
    Work,
    all_reduce_every_dtype,
    build_use_and_abort_twice,
    lose_a_killed_peer,
    lose_a_silent_peer,
    running_ranks,
    take_state_of_rank_0,
)

pytestmark = pytest.mark.gpu
two_gpus = pytest.mark.gpu(count=2, purpose="NCCL between two GPUs")


def test_other_threads_can_build_and_abort_a_communicator_without_ending_the_process() -> None:
    with running_ranks(build_use_and_abort_twice, 1) as ranks:
        for was_initialized, is_initialized, is_equal, still_aborts in ranks.results(1)[0]:
            assert not was_initialized
            assert is_initialized, (
                "the first all-reduce would build it on the training loop's thread"
            )
            assert is_equal
            assert not still_aborts

        assert ranks.exit_code(0) == 0, "torch's watchdog has ended the process"


@two_gpus
def test_an_all_reduce_covers_all_gpus_in_every_dtype_that_steps_use() -> None:
    with running_ranks(all_reduce_every_dtype, 2) as ranks:
        assert ranks.results(2) == {0: [3.0] * 8, 1: [3.0] * 8}


@pytest.mark.gpu(count=2, purpose="copies of a state between GPUs with batched send/recv")
def test_batched_sends_and_receives_copy_tensors_of_all_types() -> None:
    with running_ranks(take_state_of_rank_0, 2) as ranks:
        results = ranks.results(2)

    assert results[0] == results[1]
    assert all(minimum == maximum > 0 for minimum, maximum in results[1])


@pytest.mark.gpu(count=2, purpose="an aborted all-reduce, and survivors of a lost peer with NCCL")
@pytest.mark.parametrize("work", [lose_a_silent_peer, lose_a_killed_peer])
def test_an_aborted_all_reduce_reports_a_lost_peer_and_the_survivor_continues(work: Work) -> None:
    with running_ranks(work, 2) as ranks:
        results = ranks.results(1)
        assert results.keys() == {0}, results
        first_sum, outcome, was_aborted, later_sum = results[0]
        ranks.release()

        assert (first_sum, later_sum) == (2.0, 1.0)
        assert was_aborted
        assert outcome == LOST, (
            "the optimizer would apply gradients without the peer's contribution"
        )
        assert ranks.exit_code(0) == 0, "torch's watchdog has ended the survivor"
