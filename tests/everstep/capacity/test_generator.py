"""Generated histories: reproducible, and with the statistics of the published traces."""

from statistics import NormalDist, mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.capacity.generator import (
    PUBLISHED,
    MarketStatistics,
    ZoneStatistics,
    fit,
    generate,
)
from everstep.capacity.history import CapacityHistory, HistoryStatistics, describe
from tests.effort import examples

MODEL = fit()


@pytest.fixture(scope="module")
def sample() -> list[HistoryStatistics]:
    return [describe(generate(MODEL, seed=seed, hours=2400, machines=16)) for seed in range(8)]


def test_the_same_seed_gives_the_same_history() -> None:
    history, repeated_history, other_history = (
        generate(MODEL, seed=seed, hours=50, machines=16) for seed in (1, 1, 2)
    )

    assert history == repeated_history
    assert history != other_history


def test_a_longer_history_begins_like_a_shorter_one() -> None:
    short_history, long_history = (
        generate(MODEL, seed=3, hours=hours, machines=16) for hours in (20, 60)
    )

    assert long_history.machines[: len(short_history.machines)] == short_history.machines


def test_zones_have_the_published_capacity(sample: list[HistoryStatistics]) -> None:
    for zone, published_zone in enumerate(PUBLISHED.zones):
        mean_machines = mean(statistics.means[zone] for statistics in sample)
        none_share = mean(statistics.none_shares[zone] for statistics in sample)
        assert mean_machines == pytest.approx(16 * published_zone.mean_share, abs=0.8)
        assert none_share == pytest.approx(published_zone.none_share, abs=0.05)


def test_the_best_zone_is_as_good_as_published_and_changes_as_often(
    sample: list[HistoryStatistics],
) -> None:
    assert mean(statistics.best_mean for statistics in sample) == pytest.approx(13.3, abs=0.5)
    assert mean(statistics.none_anywhere for statistics in sample) == pytest.approx(0.13, abs=0.03)
    moves = mean(statistics.best_zone_moves for statistics in sample) * 270 / 2400
    assert moves == pytest.approx(30, abs=6)


def test_capacity_changes_as_often_as_in_the_published_traces(
    sample: list[HistoryStatistics],
) -> None:
    rates = [mean(statistics.changes_per_hour[zone] for statistics in sample) for zone in range(3)]

    assert all(0.2 <= rate <= 1.05 for rate in rates), "published: 0.29 to 1.05 an hour"


@settings(max_examples=examples(20))
@given(none_share=st.floats(0.05, 0.9), full_share=st.floats(0.3, 0.95))
def test_any_zone_statistics_can_be_fitted(none_share: float, full_share: float) -> None:
    # The mean is below the share of the time with a machine.
    zone = ZoneStatistics((1 - none_share) * full_share, none_share)
    none_anywhere = none_share * none_share
    statistics = MarketStatistics(
        zones=(zone, zone), none_anywhere=none_anywhere, source="this test"
    )

    model = fit(statistics)

    history = generate(model, seed=0, hours=30, machines=7)
    assert all(0 <= count <= 7 for tick in history.machines for count in tick)
    for zone_model in model.zones:
        assert NormalDist().cdf(zone_model.threshold) == pytest.approx(none_share)
        assert abs(zone_model.loading) < 0.1, "independent zones share nothing"


def test_the_share_of_the_time_without_any_machine_can_be_fitted() -> None:
    zone = ZoneStatistics(0.45, 0.5)
    statistics = MarketStatistics(zones=(zone, zone, zone), none_anywhere=0.35, source="this test")

    model = fit(statistics)

    samples = [describe(generate(model, seed=seed, hours=3000, machines=4)) for seed in range(4)]
    assert mean(sample.none_anywhere for sample in samples) == pytest.approx(0.35, abs=0.06)


def test_statistics_of_a_history_with_a_known_result() -> None:
    history = CapacityHistory(("a", "b"), 1800, ((4, 0), (4, 4), (0, 2), (0, 0)))

    statistics = describe(history)

    assert list(statistics.means) == [2, 1.5]
    assert list(statistics.none_shares) == [0.5, 0.5]
    assert list(statistics.changes_per_hour) == [0.5, 1.5]
    assert statistics.best_mean == 2.5
    assert statistics.none_anywhere == 0.25
    assert statistics.best_zone_moves == 1, "a tie is not a reason to move"
