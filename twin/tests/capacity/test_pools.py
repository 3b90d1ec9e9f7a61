"""Pools on disk, and the machines that they describe."""

import math
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from cloudtwin import files
from cloudtwin.capacity import (
    CapacityLimits,
    MarketConfig,
    MarketParameters,
    PoolStore,
    QuotaStore,
    Trace,
    close_market,
    compress_time,
    open_market,
)
from cloudtwin.capacity.pools import AKS_SPOT
from cloudtwin.errors import TwinError
from cloudtwin.files import DamagedFileError
from cloudtwin.nodes.model import MachineSpec, Role, Taint

from twin.tests.capacity.builders import pool

TAINT = Taint("everstep.dev/spot", "true")
AGENT = Taint("fsx.csi.aws.com/agent-not-ready", "", "NoExecute")


@pytest.fixture
def store(tmp_path: Path) -> PoolStore:
    return PoolStore(tmp_path)


def run_concurrently(change: Callable[[int], None]) -> None:
    """Call a function with each number from 0 to 7, each in its own thread."""
    threads = [threading.Thread(target=change, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_stored_pool_is_read_back_unchanged(store: PoolStore) -> None:
    spot = pool(labels={"a": "b"}, taints=(TAINT,), startup_taints=(AGENT,), zone="us-east-1a")
    system = pool("system", cloud="azure", role=Role.SYSTEM, capacity="on-demand", autoscaled=True)
    store.put(system)
    store.put(spot)

    assert store.all() == (spot, system)
    assert store.get("c/spot") == spot
    assert store.get("c/none") is None


def test_pools_of_the_same_name_in_two_clusters_are_two_pools(store: PoolStore) -> None:
    first, second = pool(cluster="a", desired_size=1), pool(cluster="b", desired_size=2)
    store.put(first)
    store.put(second)

    store.resize("b/spot", 5)

    assert store.all() == (first, replace(second, desired_size=5))
    assert [item.machine("m").pool for item in store.all()] == ["a/spot", "b/spot"]
    store.delete("a/spot")
    assert store.all() == (replace(second, desired_size=5),)


def test_a_resize_changes_only_the_size_and_creates_no_pool(store: PoolStore) -> None:
    store.put(pool(labels={"a": "b"}))

    store.resize("c/spot", 5)
    store.resize("c/gone", 2)

    assert store.all() == (pool(labels={"a": "b"}, desired_size=5),)


def test_a_deleted_pool_is_gone_and_may_be_deleted_again(store: PoolStore) -> None:
    store.put(pool())

    store.delete("c/spot")
    store.delete("c/spot")

    assert store.all() == ()


def test_concurrent_changes_are_all_kept(store: PoolStore) -> None:
    def put(index: int) -> None:
        store.put(pool(f"p{index}"))
        store.resize(f"c/p{index}", index)

    run_concurrently(put)

    assert [(p.name, p.desired_size) for p in store.all()] == [(f"p{i}", i) for i in range(8)]


def test_an_eks_machine_has_the_declared_fields_and_the_fields_that_eks_adds() -> None:
    declared_pool = pool(
        labels={"everstep.dev/pool": "gpu-spot"},
        taints=(TAINT,),
        startup_taints=(AGENT,),
        zone="us-east-1a",
        region="us-east-1",
        gpus=4,
    )

    assert declared_pool.machine("spot-3") == MachineSpec(
        name="spot-3",
        role=Role.GPU,
        gpus=4,
        labels={
            "everstep.dev/pool": "gpu-spot",
            "eks.amazonaws.com/capacityType": "SPOT",
            "eks.amazonaws.com/nodegroup": "spot",
        },
        taints=(TAINT, AGENT),
        instance_type="g5.xlarge",
        zone="us-east-1a",
        region="us-east-1",
        cloud="aws",
        spot=True,
        group="spot",
        cluster="c",
    )


@pytest.mark.parametrize(("capacity", "label"), [("spot", "spot"), ("on-demand", None)])
def test_aks_labels_only_spot_machines_as_spot(capacity: str, label: str | None) -> None:
    labels = pool(cloud="azure", capacity=capacity).machine("x").labels

    assert labels.get("kubernetes.azure.com/scalesetpriority") == label
    assert labels["kubernetes.azure.com/mode"] == "user"


def test_aks_puts_its_taint_on_spot_machines_whether_declared_or_not() -> None:
    declared_pool = pool(cloud="azure", taints=(AKS_SPOT, TAINT))

    assert declared_pool.machine("x").taints == (AKS_SPOT, TAINT)
    assert pool(cloud="azure").machine("x").taints == (AKS_SPOT,)
    assert pool(cloud="azure", capacity="on-demand").machine("x").taints == ()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"min_size": 3, "max_size": 2}, "min_size=3 must be between 0 and max_size=2"),
        ({"instance_types": ()}, "has no instance type"),
    ],
)
def test_a_pool_that_no_cloud_accepts_is_an_error(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"pool spot:? {reason}"):
        pool(**fields)


def test_a_limit_applies_until_it_expires_or_is_removed(tmp_path: Path) -> None:
    limits = CapacityLimits(tmp_path)

    limits.set("a", 0)
    limits.set("b", 2, seconds=60)
    limits.set("over", 1, seconds=-1)
    assert limits.current() == {"a": 0, "b": 2}

    limits.remove("a")
    assert limits.current() == {"b": 2}


def test_limits_and_quotas_that_are_set_concurrently_are_all_kept(tmp_path: Path) -> None:
    limits, quotas = CapacityLimits(tmp_path), QuotaStore(tmp_path)

    def change(index: int) -> None:
        limits.set(f"gone-{index}", 0)
        limits.set(f"p{index}", index)
        limits.remove(f"gone-{index}")
        quotas.set(f"L-{index}", index)

    run_concurrently(change)

    assert limits.current() == {f"p{index}": index for index in range(8)}
    assert quotas.all() == {f"L-{index}": index for index in range(8)}


def test_a_market_that_opens_while_the_time_factor_changes_keeps_the_factor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_json, is_read, is_fast = files.read_json, threading.Event(), threading.Event()

    def read_slowly(path: Path) -> dict[str, Any] | None:
        document = read_json(path)
        if threading.current_thread() is opening:
            is_read.set()
            is_fast.wait(0.2)  # the change of the speed waits for the lock
        return document

    def accelerate() -> None:
        compress_time(tmp_path, 60)
        is_fast.set()

    opening = threading.Thread(target=open_market, args=(tmp_path, "seed"))
    monkeypatch.setattr(files, "read_json", read_slowly)
    accelerating = threading.Thread(target=accelerate)
    opening.start()
    is_read.wait(10)
    accelerating.start()
    opening.join()
    accelerating.join()

    config = MarketConfig.load(tmp_path)
    assert (config.seed, config.time_factor) == ("seed", 60)


def test_the_time_factor_and_the_market_are_stored_independently(tmp_path: Path) -> None:
    assert MarketConfig.load(tmp_path) == MarketConfig()

    compress_time(tmp_path, 60)
    open_market(tmp_path, "seed", MarketParameters(total_loss_share=1.0))
    compress_time(tmp_path, 30)

    config = MarketConfig.load(tmp_path)
    assert (config.time_factor, config.seed) == (30, "seed")
    assert config.parameters == MarketParameters(total_loss_share=1.0)
    assert (config.notice_seconds("aws"), config.notice_seconds("azure")) == (4, 1)
    close_market(tmp_path)
    assert MarketConfig.load(tmp_path) == MarketConfig(time_factor=30)


def test_a_market_applies_to_spot_pools_and_begins_with_full_capacity() -> None:
    market = MarketConfig(time_factor=3600, seed="s", opened_at=1000.0)

    assert market.capacity(pool(), 1000.0) == 8
    assert market.capacity(pool(capacity="on-demand"), 1000.0) is None
    assert MarketConfig().capacity(pool(), 1000.0) is None
    capacities = [market.capacity(pool(), 1000.0 + hour) for hour in range(100)]
    other_capacities = [market.capacity(pool("other"), 1000.0 + hour) for hour in range(100)]
    assert 0 in capacities, (
        "an hour passes in a second; within a hundred hours the capacity is 0 at least once"
    )
    assert other_capacities != capacities, "each pool has its own market"


@pytest.mark.parametrize("factor", [0, -1, math.nan, math.inf])
def test_a_time_factor_must_be_positive_and_finite(tmp_path: Path, factor: float) -> None:
    with pytest.raises(TwinError, match="The time factor cannot be"):
        compress_time(tmp_path, factor)


@pytest.mark.parametrize(
    "market",
    [
        MarketConfig(time_factor=3600, seed="s", opened_at=1000.0),
        MarketConfig(
            time_factor=3600,
            opened_at=1000.0,
            trace=Trace(machines={"us-east-1a": [n % 9 for n in range(1000)]}),
        ),
    ],
    ids=["seed", "trace"],
)
@pytest.mark.parametrize("factor", [60.0, 36000.0])
def test_a_new_time_factor_continues_an_open_market_from_its_current_state(
    market: MarketConfig, factor: float
) -> None:
    spot, now = pool(zone="us-east-1a", region="us-east-1"), 1050.25
    changed_market = market.at_speed(factor, now)
    ratio = market.time_factor / factor

    assert changed_market.capacity(spot, now) == market.capacity(spot, now)
    assert changed_market.price(spot, now) == market.price(spot, now)
    upcoming, changed = (
        list(islice(config.upcoming(spot, now), 5)) for config in (market, changed_market)
    )
    assert upcoming
    assert [change.machines for change in changed] == [change.machines for change in upcoming]
    assert [change.at_seconds for change in changed] == pytest.approx(
        [change.at_seconds * ratio for change in upcoming]
    )


def test_an_open_market_is_continued_after_the_time_factor_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 10_000.0
    monkeypatch.setattr("time.time", lambda: now - 3600)
    open_market(tmp_path, "s")

    monkeypatch.setattr("time.time", lambda: now)
    compress_time(tmp_path, 3600)

    config = MarketConfig.load(tmp_path)
    assert (now - config.opened_at) * config.time_factor == 3600, "an hour, not 3600 hours"


def test_a_market_needs_a_seed(tmp_path: Path) -> None:
    with pytest.raises(TwinError, match="needs a seed"):
        open_market(tmp_path, "")


def test_upcoming_changes_of_a_market_equal_the_changes_that_happen() -> None:
    market = MarketConfig(time_factor=3600, seed="s", opened_at=1000.0)

    changes = list(islice(market.upcoming(pool(), 1010.0), 20))

    assert all(change.at_seconds > 0 for change in changes), "past changes are left out"
    for change in changes:
        assert market.capacity(pool(), 1010.0 + change.at_seconds + 1e-6) == change.machines
    assert list(MarketConfig().upcoming(pool(), 1010.0)) == []


def test_a_damaged_pool_file_is_neither_read_as_empty_nor_overwritten(store: PoolStore) -> None:
    store.put(pool("spot"))
    damaged = store.path.read_text()[:-20]
    store.path.write_text(damaged)

    for use in (store.all, lambda: store.put(pool("other")), lambda: store.delete("c/spot")):
        with pytest.raises(DamagedFileError, match=re.escape(str(store.path))):
            use()
    assert store.path.read_text() == damaged
