"""Pools on disk, and the machines they describe."""

import threading
from itertools import islice

import pytest

from everstep.errors import EverstepError
from tests.unit.twin.clouds.capacity.builders import pool
from twin.clouds.capacity import (
    Parameters,
    PoolStore,
    Settings,
    Supply,
    close_market,
    compress_time,
    open_market,
)
from twin.clouds.capacity.pools import AKS_SPOT
from twin.nodes.model import MachineSpec, Role, Taint

TAINT = Taint("everstep/spot", "true")
AGENT = Taint("fsx.csi.aws.com/agent-not-ready", "", "NoExecute")


@pytest.fixture
def store(tmp_path):
    return PoolStore(tmp_path)


def test_what_is_read_is_what_was_put(store):
    one = pool(labels={"a": "b"}, taints=(TAINT,), startup_taints=(AGENT,), zone="us-east-1a")
    other = pool("system", cloud="azure", role=Role.SYSTEM, capacity="on-demand", autoscaled=True)
    store.put(other)
    store.put(one)

    assert store.all() == (one, other)
    assert store.get("spot") == one
    assert store.get("none") is None


def test_a_new_size_leaves_the_rest_of_a_pool_alone_and_makes_none(store):
    store.put(pool(labels={"a": "b"}))

    store.resize("spot", 5)
    store.resize("gone", 2)

    assert store.all() == (pool(labels={"a": "b"}, desired=5),)


def test_a_deleted_pool_is_gone_and_may_be_deleted_again(store):
    store.put(pool())

    store.delete("spot")
    store.delete("spot")

    assert store.all() == ()


def test_changes_at_the_same_moment_are_all_kept(store):
    def put(index):
        store.put(pool(f"p{index}"))
        store.resize(f"p{index}", index)

    threads = [threading.Thread(target=put, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [(p.name, p.desired) for p in store.all()] == [(f"p{i}", i) for i in range(8)]


def test_a_machine_of_eks_has_what_was_declared_and_what_eks_adds():
    declared = pool(
        labels={"everstep/pool": "gpu-spot"},
        taints=(TAINT,),
        startup_taints=(AGENT,),
        zone="us-east-1a",
        region="us-east-1",
        gpus=4,
    )

    assert declared.machine("spot-3") == MachineSpec(
        name="spot-3",
        role=Role.GPU,
        gpus=4,
        labels={
            "everstep/pool": "gpu-spot",
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
    )


@pytest.mark.parametrize(("capacity", "label"), [("spot", "spot"), ("on-demand", None)])
def test_aks_says_of_spot_machines_alone_that_they_are(capacity, label):
    labels = pool(cloud="azure", capacity=capacity).machine("x").labels

    assert labels.get("kubernetes.azure.com/scalesetpriority") == label
    assert labels["kubernetes.azure.com/mode"] == "user"


def test_aks_puts_its_taint_on_spot_machines_whether_declared_or_not():
    declared = pool(cloud="azure", taints=(AKS_SPOT, TAINT))

    assert declared.machine("x").taints == (AKS_SPOT, TAINT)
    assert pool(cloud="azure").machine("x").taints == (AKS_SPOT,)
    assert pool(cloud="azure", capacity="on-demand").machine("x").taints == ()


@pytest.mark.parametrize("wrong", [{"minimum": 3, "maximum": 2}, {"instance_types": ()}])
def test_a_pool_that_no_cloud_would_have_is_a_fault_of_its_provider(wrong):
    with pytest.raises(ValueError, match="pool spot"):
        pool(**wrong)


def test_a_limit_holds_for_its_time_or_until_it_is_lifted(tmp_path):
    supply = Supply(tmp_path)

    supply.limit("a", 0)
    supply.limit("b", 2, seconds=60)
    supply.limit("over", 1, seconds=-1)
    assert supply.limits() == {"a": 0, "b": 2}

    supply.lift("a")
    assert supply.limits() == {"b": 2}


def test_time_and_market_are_kept_and_do_not_disturb_each_other(tmp_path):
    assert Settings.load(tmp_path) == Settings()

    compress_time(tmp_path, 60)
    open_market(tmp_path, "seed", Parameters(sweep=1.0))
    compress_time(tmp_path, 30)

    settings = Settings.load(tmp_path)
    assert (settings.factor, settings.seed) == (30, "seed")
    assert settings.parameters == Parameters(sweep=1.0)
    assert (settings.notice_seconds("aws"), settings.notice_seconds("azure")) == (4, 1)
    close_market(tmp_path)
    assert Settings.load(tmp_path) == Settings(factor=30)


def test_a_market_concerns_spot_pools_and_begins_with_room_for_all():
    opened = Settings(factor=3600, seed="s", began=1000.0)

    assert opened.room(pool(), 1000.0) == 8
    assert opened.room(pool(capacity="on-demand"), 1000.0) is None
    assert Settings().room(pool(), 1000.0) is None
    rooms = [opened.room(pool(), 1000.0 + hour) for hour in range(100)]
    others = [opened.room(pool("other"), 1000.0 + hour) for hour in range(100)]
    assert 0 in rooms, "an hour passes in a second, and in a hundred all is gone at some time"
    assert others != rooms, "each pool has a market of its own"


@pytest.mark.parametrize("factor", [0, -1])
def test_time_neither_stands_still_nor_runs_backwards(tmp_path, factor):
    with pytest.raises(EverstepError, match="Time cannot pass"):
        compress_time(tmp_path, factor)


def test_a_market_needs_a_seed(tmp_path):
    with pytest.raises(EverstepError, match="needs a seed"):
        open_market(tmp_path, "")


def test_what_a_market_will_do_is_told_ahead_and_comes_true():
    opened = Settings(factor=3600, seed="s", began=1000.0)

    coming = list(islice(opened.coming(pool(), 1010.0), 20))

    assert all(change.at > 0 for change in coming), "what has been is not told"
    for change in coming:
        assert opened.room(pool(), 1010.0 + change.at + 1e-6) == change.machines
    assert list(Settings().coming(pool(), 1010.0)) == []
