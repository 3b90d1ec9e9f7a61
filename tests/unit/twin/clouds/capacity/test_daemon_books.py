"""What the daemon reads and writes on disk, without a machine."""

import time

import pytest

from tests.unit.twin.clouds.capacity.builders import pool
from twin.clouds.capacity import PoolStore, Settings, Supply, daemon
from twin.clouds.capacity.__main__ import Daemon
from twin.clouds.capacity.fleet import Plan
from twin.clouds.capacity.scaling import Scaling
from twin.nodes import Twin, files
from twin.nodes.api import Api
from twin.nodes.cgroups import Tree
from twin.nodes.layout import Layout
from twin.nodes.machine import Machine
from twin.nodes.notices import Notice
from twin.nodes.records import MachineRecord

NOTICE = Notice("e", 0.0, 0.0, take=True)


@pytest.fixture
def keeper(tmp_path):
    return Daemon(Twin(Layout(tmp_path)), Scaling(Api(tmp_path, "admin")))


def machine(keeper, of, name="spot-0"):
    record = MachineRecord(of.machine(name), 1, {}, "images")
    return Machine(keeper.twin.layout, Tree(keeper.twin.state, 1), record)


def plan(start=(), **short):
    wanted = dict.fromkeys(start, 1)
    return Plan(start=wanted, stop=(), forget=(), reclaim=(), short=short)


def test_of_the_market_and_what_was_set_by_hand_the_lesser_holds(keeper):
    one, other = pool("a"), pool("b", capacity="on-demand")
    opened = Settings(factor=1.0, seed="s", began=time.time() - 1)
    pools = {"a": one, "b": other}

    assert keeper.limits(pools, opened) == {"a": 8}, "a young market has room for the maximum"
    Supply(keeper.twin.state).limit("a", 3)
    Supply(keeper.twin.state).limit("b", 1)
    assert keeper.limits(pools, opened) == {"a": 3, "b": 1}
    assert keeper.limits(pools, Settings()) == {"a": 3, "b": 1}


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"cloud": "azure"}, 2),
        ({"cloud": "azure", "minimum": 3}, 2),
        ({"cloud": "azure", "minimum": 3, "autoscaled": True}, 3),
        ({"cloud": "aws"}, 3),
    ],
)
def test_a_scale_set_of_azure_is_smaller_by_each_machine_that_was_evicted(keeper, fields, left):
    evicted = pool(desired=3, **fields)
    PoolStore(keeper.twin.state).put(evicted)

    keeper.decay([(machine(keeper, evicted), NOTICE)])
    assert keeper.store.get("spot").desired == 3, "it is still there"
    keeper.decay([])
    keeper.decay([])

    assert keeper.store.get("spot").desired == left


def test_names_are_never_given_twice_also_by_a_successor(keeper):
    first = keeper.new_names("spot", 2)
    successor = Daemon(keeper.twin, keeper.scaling)

    assert first == ["spot-0", "spot-1"]
    assert successor.new_names("spot", 1) == ["spot-2"]


def test_whoever_waits_for_a_pool_is_told_why_it_lacks_machines(keeper):
    keeper.tell(plan(spot=2))
    assert daemon.last_fault(keeper.twin.state, "spot") == "The cloud has no capacity for 2 more."

    keeper.tell(plan())
    assert daemon.last_fault(keeper.twin.state, "spot") == ""
    assert files.read_json(daemon.faults_file(keeper.twin.state)) == {}


@pytest.mark.parametrize(
    ("now", "being_made", "told"),
    [
        (plan(start=["spot"]), [], "no memory"),
        (plan(), ["spot"], "no memory"),
        (plan(), [], ""),
        (plan(spot=1), [], "The cloud has no capacity for 1 more."),
    ],
    ids=["to be tried again", "on its way", "nothing lacks", "no room any more"],
)
def test_why_machines_failed_to_start_is_told_as_long_as_they_may_be_started(
    keeper, now, being_made, told
):
    keeper.faults["spot"] = "no memory"

    keeper.forgive(now, being_made)
    keeper.tell(now)

    assert daemon.last_fault(keeper.twin.state, "spot") == told
