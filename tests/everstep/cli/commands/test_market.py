"""`everstep market` on pools without machines."""

import json
from pathlib import Path
from typing import Any

import pytest
from cloudtwin.capacity import MarketConfig, PoolStore

from everstep.cli.commands import market
from everstep.errors import EverstepError
from twin.tests.capacity.builders import pool


class FakeContext:
    """The part of a stack context that the market uses."""

    def __init__(self, state: Path) -> None:
        self.state, self.stack = state, "eks-dev"

    @property
    def workspace(self) -> "FakeContext":
        return self


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(market, "open_running_stack", lambda _stack: FakeContext(tmp_path))
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    market.show(stack="eks-dev", as_json=True)
    return json.loads(capsys.readouterr().out)


def test_an_open_market_shows_current_and_future_capacity_of_spot_pools(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PoolStore(state).put(pool("spot"))
    PoolStore(state).put(pool("fallback", capacity="on-demand"))

    market.open_(stack="eks-dev", seed="example", speed=60, changes_per_hour=0.6)

    shown_market = shown(capsys)
    assert shown_market["seed"] == "example"
    assert list(shown_market["pools"]) == ["spot"], "the market offers no on-demand pools"
    assert shown_market["pools"]["spot"]["available"] == 8
    later = [change["in_seconds"] for change in shown_market["pools"]["spot"]["next"]]
    assert later == sorted(later)
    assert len(later) == market.MAX_CHANGES


def test_a_closed_market_limits_no_pool_and_resets_its_clock(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PoolStore(state).put(pool("spot"))
    market.open_(stack="eks-dev", seed="example", speed=60, changes_per_hour=0.6)

    market.close(stack="eks-dev")

    assert shown(capsys)["pools"]["spot"] == {"available": None, "next": []}
    assert MarketConfig.load(state) == MarketConfig()


def test_opening_a_market_without_spot_pools_suggests_up(state: Path) -> None:
    with pytest.raises(EverstepError, match="has no spot pools") as caught:
        market.open_(stack="eks-dev", seed="example", speed=60, changes_per_hour=0.6)
    assert "everstep up --stack eks-dev --twin" in caught.value.fix
