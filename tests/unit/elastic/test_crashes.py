"""Who starts a worker again after which history of crashes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.crashes import CRASHES, Crashes, Verdict


@pytest.fixture
def crashes():
    return Crashes()


def test_a_worker_that_has_trained_starts_again_alone_as_often_as_it_likes(crashes):
    for worker in range(3 * CRASHES):
        crashes.called([worker])
        crashes.proven(worker)
        assert crashes.judge(worker) is Verdict.ALONE


def test_a_worker_that_dies_in_its_very_first_step_starts_again_alone_too(crashes):
    crashes.called([1, 2])

    assert crashes.judge(1) is Verdict.ALONE


def test_a_worker_that_dies_while_it_warms_up_is_torchruns(crashes):
    assert crashes.judge(1) is Verdict.WITH_ALL


def test_workers_that_only_crash_are_given_up(crashes):
    verdicts = []
    for worker in range(CRASHES):
        crashes.called([worker])
        verdicts.append(crashes.judge(worker))

    assert verdicts == [Verdict.ALONE] * (CRASHES - 1) + [Verdict.GIVE_UP]


def test_a_process_id_that_another_worker_gets_carries_no_merit_over(crashes):
    crashes.called([7])
    crashes.judge(7)

    assert crashes.judge(7) is Verdict.WITH_ALL


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_nothing_is_given_up_before_so_many_crashes_have_followed_the_last_step(history):
    crashes, since = Crashes(), 0
    for worker, trains in history:
        crashes.called([worker])
        if trains:
            crashes.proven(worker)
            since = 0
        else:
            since += 1
        given_up = crashes.judge(worker) is Verdict.GIVE_UP
        assert given_up == (since >= CRASHES)
