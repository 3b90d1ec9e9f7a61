"""`everstep market`, on pools that stand in books only."""

import json

import pytest

from everstep.cli.commands import market
from everstep.errors import EverstepError
from tests.unit.twin.clouds.capacity.builders import pool
from twin.clouds.capacity import PoolStore, Settings


class Somewhere:
    """As much of a place as the market asks for."""

    def __init__(self, state):
        self.state, self.stack = state, "eks-dev"

    @property
    def workspace(self):
        return self


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(market, "place_to_look", lambda _stack: Somewhere(tmp_path))
    return tmp_path


def shown(capsys):
    capsys.readouterr()
    market.show(stack="eks-dev", as_json=True)
    return json.loads(capsys.readouterr().out)


def test_an_open_market_says_what_each_spot_pool_has_and_will_have(state, capsys):
    PoolStore(state).put(pool("spot"))
    PoolStore(state).put(pool("fallback", capacity="on-demand"))

    market.open_(stack="eks-dev", seed="storm", speed=60, changes_per_hour=0.6)

    said = shown(capsys)
    assert said["seed"] == "storm"
    assert list(said["pools"]) == ["spot"], "an on-demand pool is not for sale"
    assert said["pools"]["spot"]["room"] == 8
    later = [change["in_seconds"] for change in said["pools"]["spot"]["coming"]]
    assert later == sorted(later)
    assert len(later) == market.SHOWN


def test_a_closed_market_has_no_say_and_time_passes_as_it_does(state, capsys):
    PoolStore(state).put(pool("spot"))
    market.open_(stack="eks-dev", seed="storm", speed=60, changes_per_hour=0.6)

    market.close(stack="eks-dev")

    assert shown(capsys)["pools"]["spot"] == {"room": None, "coming": []}
    assert Settings.load(state) == Settings()


def test_a_stack_without_spot_pools_is_told_what_to_do(state):
    with pytest.raises(EverstepError, match="has no spot pools") as caught:
        market.open_(stack="eks-dev", seed="storm", speed=60, changes_per_hour=0.6)
    assert "everstep up --stack eks-dev --twin" in caught.value.remedy
