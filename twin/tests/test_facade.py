"""The facade: the shared volume of a twin, and its spot market."""

from pathlib import Path

import pytest
from cloudtwin.capacity import MarketConfig, compress_time
from cloudtwin.errors import TwinError
from cloudtwin.facade import open_market, shared_volume
from cloudtwin.nodes.layout import Layout
from cloudtwin.providers import volumes


def test_the_shared_volume_is_the_volume_that_pods_may_mount(tmp_path: Path) -> None:
    # An account may also have containers with data that pods read without a mount.
    subject = "system:serviceaccount:elastic-job:trainer"
    volumes.write(
        tmp_path,
        "azure-native",
        {
            "data#account#photographs": {"folder": "account/photographs", "allowed": {}},
            "group#stack#training": {"folder": "stack/training", "allowed": {"id": [subject]}},
        },
    )

    assert shared_volume(tmp_path) == Layout(tmp_path).shared / "stack/training"


def test_there_is_no_shared_volume_before_a_pod_may_mount_one(tmp_path: Path) -> None:
    assert shared_volume(tmp_path) is None
    volumes.write(tmp_path, "aws", {"fs-0": {"folder": "fs-0", "allowed": False}})
    assert shared_volume(tmp_path) is None


@pytest.mark.parametrize(("seed", "speed"), [("", 60), ("seed", 0), ("", -1)])
def test_a_market_that_is_refused_changes_neither_market_nor_speed(
    tmp_path: Path, seed: str, speed: float
) -> None:
    compress_time(tmp_path, 5)

    with pytest.raises(TwinError):
        open_market(tmp_path, seed, speed=speed, changes_per_hour=1)

    assert MarketConfig.load(tmp_path) == MarketConfig(time_factor=5)


def test_a_market_opens_at_its_speed(tmp_path: Path) -> None:
    open_market(tmp_path, "seed", speed=60, changes_per_hour=1)

    market = MarketConfig.load(tmp_path)
    assert (market.seed, market.time_factor, market.parameters.changes_per_hour) == ("seed", 60, 1)
