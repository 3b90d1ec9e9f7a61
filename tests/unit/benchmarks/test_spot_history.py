"""The plan of a compressed spot history: what happens to which machine and when."""

from hypothesis import given
from hypothesis.strategies import integers

from benchmarks.spot_history import BACK, LEAST_AWAY_SECONDS, NAMES, plan


def test_ten_minutes_have_at_least_thirty_events_and_every_kind_of_loss():
    for seed in range(20):
        kinds = [one.kind for one in plan(seed, 600, 34)]

        assert len(kinds) >= 30
        assert min(kinds.count(kind) for kind in ("kill", "vanish", "freeze", "drain")) >= 3


@given(seed=integers(0, 10_000), events=integers(1, 60))
def test_one_machine_always_stays_and_only_who_left_comes_back(seed, events):
    left = {}
    before = 0.0
    for one in plan(seed, 600, events):
        assert before <= one.at <= 600
        before = one.at
        if one.kind in BACK.values():
            since, kind = left.pop(one.node)
            assert one.kind == BACK[kind]
            assert one.at - since >= LEAST_AWAY_SECONDS
        else:
            assert one.node not in left
            if one.kind in BACK:
                left[one.node] = (one.at, one.kind)
        assert len(left) < len(NAMES)


def test_a_seed_gives_its_history_again():
    assert plan(3, 600, 34) == plan(3, 600, 34) != plan(4, 600, 34)
