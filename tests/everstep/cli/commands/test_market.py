"""`everstep market` on pools without machines."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cloudtwin.capacity import MarketConfig, PoolStore
from cloudtwin.errors import TwinError

from everstep.cli.commands import market
from everstep.errors import EverstepError
from twin.tests.capacity.builders import pool


class FakeContext:
    """The part of a stack context that the market uses."""

    def __init__(self, state: Path, kind: str = "eks") -> None:
        self.state, self.stack = state, "eks-dev"
        self.config = SimpleNamespace(cluster=SimpleNamespace(kind=kind))

    @property
    def workspace(self) -> "FakeContext":
        return self

    def require_own_project(self) -> None:
        """Accept the project."""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(market, "open_running_stack", lambda _stack: FakeContext(tmp_path))
    return tmp_path


def show_market(capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    market.show(stack="eks-dev", as_json=True)
    return json.loads(capsys.readouterr().out)


def test_an_open_market_shows_current_and_future_capacity_of_spot_pools(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PoolStore(state).put(pool("spot"))
    PoolStore(state).put(pool("fallback", capacity="on-demand"))

    market.open_(stack="eks-dev", seed="example", speed=60, changes_per_hour=0.6)

    report = show_market(capsys)
    assert report["seed"] == "example"
    assert list(report["pools"]) == ["spot"], "the market does not limit on-demand pools"
    assert report["pools"]["spot"]["available"] == 8
    change_times = [change["in_seconds"] for change in report["pools"]["spot"]["next"]]
    assert change_times == sorted(change_times)
    assert len(change_times) == market.MAX_CHANGES


def test_pools_of_the_same_name_in_two_clusters_are_shown_with_their_clusters(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for cluster, size in (("a", 3), ("b", 5)):
        PoolStore(state).put(pool("spot", cluster=cluster, max_size=size))
    PoolStore(state).put(pool("other", cluster="a"))

    market.open_(stack="eks-dev", seed="example", speed=60, changes_per_hour=0.6)

    pools = show_market(capsys)["pools"]
    assert {name: entry["available"] for name, entry in pools.items()} == {
        "other": 8,
        "a/spot": 3,
        "b/spot": 5,
    }


def test_an_open_market_shows_current_and_future_prices_and_a_price_above_the_maximum(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = {"instance_types": ("Standard_NC4as_T4_v3",), "cloud": "azure", "region": "eastus"}
    PoolStore(state).put(pool("spot", max_price=0.01, **size))

    market.open_(stack="aks-dev", seed="example", speed=60, changes_per_hour=0.6)

    assert "0.149 of 0.01" in " ".join(capsys.readouterr().out.split())
    report = show_market(capsys)["pools"]["spot"]
    assert report["available"] == 0, "its price is above its maximum"
    assert report["usd_per_hour"] > report["max_usd_per_hour"] == 0.01
    assert len({price["usd_per_hour"] for price in report["next_prices"]}) == market.MAX_CHANGES
    assert 0 < report["next_prices"][0]["in_seconds"] <= 60, "an hour of the cloud in a minute"


def test_a_closed_market_limits_no_pool_and_resets_its_clock(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PoolStore(state).put(pool("spot"))
    market.open_(stack="eks-dev", seed="example", speed=60, changes_per_hour=0.6)

    market.close(stack="eks-dev")

    report = show_market(capsys)["pools"]["spot"]
    assert (report["available"], report["next"], report["next_prices"]) == (None, [], [])
    assert MarketConfig.load(state) == MarketConfig()


def test_opening_a_market_without_spot_pools_suggests_up(state: Path) -> None:
    with pytest.raises(EverstepError, match="has no spot pools") as error:
        market.open_(stack="eks-dev", seed="example", speed=60, changes_per_hour=0.6)
    assert "everstep up --stack eks-dev --twin" in error.value.fix


def test_opening_a_market_on_an_existing_cluster_suggests_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = FakeContext(tmp_path, "existing")
    monkeypatch.setattr(market, "open_running_stack", lambda _stack: context)

    with pytest.raises(EverstepError, match="has no spot pools") as error:
        market.open_(stack="local", seed="example", speed=60, changes_per_hour=0.6)
    assert "everstep vanish" in error.value.fix
    assert "everstep up" not in error.value.fix


def test_a_market_cannot_be_closed_where_there_are_no_pools(state: Path) -> None:
    with pytest.raises(EverstepError, match="has no spot pools"):
        market.close(stack="eks-dev")
    assert not list(state.iterdir()), "a stack that is down has no files"


def write_trace(folder: Path, **zones: list[int]) -> Path:
    path = folder / "trace.json"
    data = {zone.replace("_", "-"): values for zone, values in zones.items()}
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": data}))
    return path


def test_a_replay_shows_the_recorded_capacity(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PoolStore(state).put(pool("a", zone="us-east-1a", region="us-east-1"))
    PoolStore(state).put(pool("b", zone="us-east-1b", region="us-east-1"))
    trace = write_trace(tmp_path, us_east_1a=[2, 0, 1])

    market.replay(stack="eks-prod", trace=[trace], speed=0.5)

    pools = show_market(capsys)["pools"]
    assert pools["a"]["available"] == 2
    assert [change["available"] for change in pools["a"]["next"]] == [0, 1]
    assert 310 < pools["a"]["next"][0]["in_seconds"] <= 600, "half as fast as it was recorded"
    assert (pools["b"]["available"], pools["b"]["next"]) == (None, []), "its zone is not recorded"


def test_a_replay_reports_the_zones_of_the_trace_without_a_pool(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PoolStore(state).put(pool("a", zone="us-east-1a", region="us-east-1"))
    PoolStore(state).put(pool("b", zone="us-east-1b", region="us-east-1"))
    trace = write_trace(tmp_path, us_east_1a=[2], us_east_1c=[3], us_east_1b=[1], us_east_1d=[4])

    market.replay(stack="eks-prod", trace=[trace], speed=60)

    message = " ".join(capsys.readouterr().err.split())
    assert "hours of us-east-1a, us-east-1b are replayed for a, b" in message
    assert "warning: not replayed: us-east-1c, us-east-1d of the trace" in message


def test_a_replay_of_exactly_the_zones_of_the_pools_has_no_warning(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PoolStore(state).put(pool("a", zone="eastus-1", region="eastus"))

    market.replay(stack="aks-prod", trace=[write_trace(tmp_path, **{"1": [2]})], speed=60)

    assert "warning" not in capsys.readouterr().err


def test_a_replay_of_another_region_names_the_zones_of_the_pools(
    state: Path, tmp_path: Path
) -> None:
    PoolStore(state).put(pool("a", zone="us-east-1a", region="us-east-1"))

    with pytest.raises(TwinError, match="eu-west-1a") as error:
        market.replay(
            stack="eks-prod", trace=[write_trace(tmp_path, **{"eu-west-1a": [1]})], speed=60
        )
    assert "us-east-1a" in error.value.fix


def test_a_replay_of_a_damaged_trace_is_refused(state: Path, tmp_path: Path) -> None:
    PoolStore(state).put(pool("a"))

    with pytest.raises(EverstepError, match=r"data.a\[1\] is -1, negative"):
        market.replay(stack="eks-prod", trace=[write_trace(tmp_path, a=[1, -1])], speed=60)
    assert MarketConfig.load(state) == MarketConfig()
