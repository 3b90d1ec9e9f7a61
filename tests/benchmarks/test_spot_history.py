"""The plan of a compressed spot history: its events, their machines and times."""

from hypothesis import given
from hypothesis.strategies import integers

from benchmarks.schedules import KINDS
from benchmarks.spot_history import MIN_AWAY_SECONDS, RETURN_KINDS, plan
from tests.trainer.elastic.nodes import NAMES


def test_ten_minutes_have_at_least_thirty_events_and_every_kind_of_loss() -> None:
    for seed in range(20):
        kinds = [event.kind for event in plan(seed, 600, 34)]

        assert len(kinds) >= 30
        assert min(kinds.count(kind) for kind in KINDS) >= 3


@given(seed=integers(0, 10_000), events=integers(1, 60))
def test_one_machine_always_stays_and_only_lost_machines_return(seed: int, events: int) -> None:
    lost: dict[str, tuple[float, str]] = {}
    previous_at = 0.0
    for event in plan(seed, 600, events):
        assert previous_at <= event.at <= 600
        previous_at = event.at
        if event.kind in RETURN_KINDS.values():
            since, kind = lost.pop(event.node)
            assert event.kind == RETURN_KINDS[kind]
            assert event.at - since >= MIN_AWAY_SECONDS
        else:
            assert event.node not in lost
            if event.kind in RETURN_KINDS:
                lost[event.node] = (event.at, event.kind)
        assert len(lost) < len(NAMES)


def test_the_same_seed_yields_the_same_history() -> None:
    assert plan(3, 600, 34) == plan(3, 600, 34) != plan(4, 600, 34)
