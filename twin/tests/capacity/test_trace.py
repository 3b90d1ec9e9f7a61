"""Replays of recorded capacity."""

from pathlib import Path

import pytest
from cloudtwin.capacity import MarketConfig, PoolStore, Trace, open_market, replay_market
from cloudtwin.errors import TwinError
from cloudtwin.facade import replay_market as replay
from cloudtwin.facade import spot_pools
from hypothesis import given
from hypothesis.strategies import floats, integers, lists

from twin.tests.capacity.builders import pool

NOW = 1000.0  # seconds since the epoch
TRACE = Trace(gap_seconds=300, machines={"us-east-1a": [3, 3, 0, 2], "1": [9]})
POOL = pool(zone="us-east-1a", region="us-east-1")


def test_a_pool_has_the_machines_of_its_zone_at_each_tick() -> None:
    capacities = [TRACE.capacity_at(POOL, seconds) for seconds in (0, 299, 300, 600, 899, 900)]

    assert capacities == [3, 3, 3, 0, 0, 2]


def test_the_last_values_apply_after_the_end_of_a_trace() -> None:
    assert TRACE.capacity_at(POOL, 1e6) == 2


def test_a_zone_of_azure_is_named_without_its_region() -> None:
    azure_pool = pool(cloud="azure", zone="eastus-1", region="eastus")

    assert TRACE.capacity_at(azure_pool, 0) == azure_pool.max_size == 8, (
        "a pool has its own maximum"
    )


def test_a_zone_that_is_not_recorded_has_no_limit() -> None:
    other_pool = pool(zone="us-east-1b", region="us-east-1")

    assert MarketConfig(trace=TRACE).capacity(other_pool, 0.0) is None


@given(values=lists(integers(0, 9), min_size=1), gap=floats(1, 900), seconds=floats(0, 1e4))
def test_the_changes_match_the_capacity(values: list[int], gap: float, seconds: float) -> None:
    trace = Trace(gap_seconds=gap, machines={"us-east-1a": values})
    tick = int(seconds / gap)

    past_changes = [change for change in trace.changes(POOL) if change.at_seconds <= tick * gap]

    assert past_changes[-1].machines == trace.capacity_at(POOL, (tick + 0.5) * gap)


def test_a_replay_limits_pools_without_a_zone(tmp_path: Path) -> None:
    regional_pool = pool(zone="", region="eastus")
    PoolStore(tmp_path).put(regional_pool)

    assert replay(tmp_path, {"": [2, 0]}, 300.0, speed=1.0) == {"spot": ""}
    config = MarketConfig.load(tmp_path)
    assert config.capacity(regional_pool, config.opened_at) == 2


def test_a_replay_is_compressed_and_starts_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PoolStore(tmp_path).put(POOL)
    monkeypatch.setattr("time.time", lambda: NOW)

    zones = replay(tmp_path, TRACE.machines, 300.0, speed=100.0)

    config = MarketConfig.load(tmp_path)
    assert zones == {POOL.name: POOL.zone}
    assert config.opened_at == NOW
    assert config.capacity(POOL, NOW + 5.99) == 3
    assert config.capacity(POOL, NOW + 6.01) == 0
    (spot_pool,) = spot_pools(tmp_path, 5)
    assert spot_pool.changes == ((6.0, 0), (9.0, 2))


def test_on_demand_machines_are_not_limited() -> None:
    on_demand_pool = pool(zone="us-east-1a", capacity="on-demand")

    assert MarketConfig(trace=TRACE).capacity(on_demand_pool, 0.0) is None


def test_a_replay_without_a_pool_in_its_zones_is_refused(tmp_path: Path) -> None:
    PoolStore(tmp_path).put(POOL)

    with pytest.raises(TwinError, match="eu-west-1a") as error:
        replay(tmp_path, {"eu-west-1a": [1]}, 300.0, speed=1.0)
    assert "us-east-1a" in error.value.fix
    assert MarketConfig.load(tmp_path) == MarketConfig()


def test_a_market_with_a_seed_ends_a_replay(tmp_path: Path) -> None:
    replay_market(tmp_path, TRACE)
    open_market(tmp_path, "seed")

    config = MarketConfig.load(tmp_path)
    assert config.seed == "seed"
    assert not config.trace.machines


@pytest.mark.parametrize("machines", [{"a": []}, {"a": [-1]}])
def test_a_zone_without_values_or_with_a_negative_value_is_refused(
    machines: dict[str, list[int]],
) -> None:
    with pytest.raises(ValueError, match="must be one or more numbers of machines"):
        Trace(machines=machines)


def test_a_trace_without_a_positive_interval_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^gap_seconds=0 must be above 0"):
        Trace(gap_seconds=0)


def test_a_trace_whose_machines_are_a_list_is_refused() -> None:
    with pytest.raises(TypeError, match="must be an object"):
        MarketConfig.parse({"trace": {"machines": [1]}})
