"""Files that the daemon reads and writes, without a machine."""

import time
from collections.abc import Iterable
from typing import Any

import pytest
from cloudtwin import files
from cloudtwin.capacity import CapacityLimits, MarketConfig, Pool, PoolStore, daemon, shortage
from cloudtwin.capacity.__main__ import Daemon
from cloudtwin.capacity.autoscaler import ScalingDecision
from cloudtwin.capacity.fleet import FleetPlan
from cloudtwin.capacity.scaler import Scaler
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.machine.machine import Machine
from cloudtwin.nodes.metadata.notices import Notice
from cloudtwin.nodes.records import MachineRecord

from twin.tests.capacity.builders import pool

NOTICE = Notice("e", 0.0, 0.0, terminate=True)


def machine(pool_daemon: Daemon, pool: Pool, name: str = "spot-0") -> Machine:
    record = MachineRecord(pool.machine(name), 1, {}, "images")
    return Machine(pool_daemon.twin.layout, CgroupHierarchies(pool_daemon.twin.state, 1), record)


def desired_size(pool_daemon: Daemon) -> int:
    stored_pool = pool_daemon.store.get("c/spot")
    assert stored_pool is not None
    return stored_pool.desired_size


def plan(start: Iterable[str] = (), **short: int) -> FleetPlan:
    """Return a plan that starts one machine in each pool of `start` and lacks machines in the pools of `short`."""
    return FleetPlan(
        start=dict.fromkeys(start, 1),
        stop=(),
        forget=(),
        reclaim=(),
        shortages={f"c/{name}": count for name, count in short.items()},
    )


def test_the_lower_of_the_market_and_the_limit_set_by_hand_applies(pool_daemon: Daemon) -> None:
    spot, on_demand = pool("a"), pool("b", capacity="on-demand")
    market = MarketConfig(time_factor=1.0, seed="s", opened_at=time.time() - 1)
    pools = {item.key: item for item in (spot, on_demand)}

    assert pool_daemon.limits(pools, market) == {"c/a": 8}, (
        "a new market has capacity for the maximum"
    )
    CapacityLimits(pool_daemon.twin.state).set("c/a", 3)
    CapacityLimits(pool_daemon.twin.state).set("c/b", 1)
    assert pool_daemon.limits(pools, market) == {"c/a": 3, "c/b": 1}
    assert pool_daemon.limits(pools, MarketConfig()) == {"c/a": 3, "c/b": 1}


def test_a_pool_above_its_maximum_price_has_no_capacity_and_says_so(pool_daemon: Daemon) -> None:
    fields = {
        "cloud": "azure",
        "region": "eastus",
        "zone": "eastus-1",
        "instance_types": ("Standard_NC4as_T4_v3",),
    }
    pools = {
        "c/low": pool("low", max_price=0.01, **fields),
        "c/high": pool("high", max_price=0.5, **fields),
        "c/any": pool("any", **fields),
    }
    for item in pools.values():
        PoolStore(pool_daemon.twin.state).put(item)

    assert pool_daemon.limits(pools, MarketConfig()) == {"c/low": 0}
    pool_daemon.write_faults(plan(low=1, any=1))
    assert "SpotPriceGreaterThanProvidedMaxPrice" in daemon.last_fault(
        pool_daemon.twin.state, "c/low"
    )
    assert "OverconstrainedZonalAllocationRequest" in daemon.last_fault(
        pool_daemon.twin.state, "c/any"
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"cloud": "azure"}, 2),
        ({"cloud": "azure", "min_size": 3}, 2),
        ({"cloud": "azure", "min_size": 3, "autoscaled": True}, 3),
        ({"cloud": "aws"}, 3),
    ],
)
def test_an_eviction_shrinks_only_an_azure_scale_set_and_an_autoscaled_one_only_to_its_minimum(
    pool_daemon: Daemon, fields: dict[str, Any], expected: int
) -> None:
    evicted_pool = pool(desired_size=3, **fields)
    PoolStore(pool_daemon.twin.state).put(evicted_pool)

    pool_daemon.shrink_pools_of_evicted_machines([(machine(pool_daemon, evicted_pool), NOTICE)])
    assert desired_size(pool_daemon) == 3, "the machine still exists"
    pool_daemon.shrink_pools_of_evicted_machines([])
    pool_daemon.shrink_pools_of_evicted_machines([])

    assert desired_size(pool_daemon) == expected


def test_machine_names_are_never_reused_even_by_a_new_daemon(pool_daemon: Daemon) -> None:
    first_names = pool_daemon.new_names("spot", 2)
    successor = Daemon(pool_daemon.twin, pool_daemon.scaler, pool_daemon.injector)

    assert first_names == ["spot-0", "spot-1"]
    assert successor.new_names("spot", 1) == ["spot-2"]


def test_pools_whose_names_differ_only_in_characters_invalid_in_node_names_share_no_machine_name(
    pool_daemon: Daemon,
) -> None:
    pools = ("gpu.a", "gpu-a", "GPU_a", "gpu")
    names = [name for pool_name in pools for name in pool_daemon.new_names(pool_name, 2)]

    assert len(set(names)) == len(names), names


def test_a_shortage_of_machines_is_reported_with_its_reason(pool_daemon: Daemon) -> None:
    PoolStore(pool_daemon.twin.state).put(pool("spot"))
    pool_daemon.write_faults(plan(spot=2))
    fault = daemon.last_fault(pool_daemon.twin.state, "c/spot")
    assert "InsufficientInstanceCapacity" in fault
    assert fault.endswith("(2 more of spot)")

    pool_daemon.write_faults(plan())
    assert daemon.last_fault(pool_daemon.twin.state, "c/spot") == ""
    assert files.read_json(daemon.faults_file(pool_daemon.twin.state)) == {}


@pytest.mark.parametrize(
    ("fleet_plan", "starting_pools", "fault"),
    [
        (plan(start=["c/spot"]), [], "no memory"),
        (plan(), ["c/spot"], "no memory"),
        (plan(), [], ""),
        (plan(spot=1), [], shortage.reason(pool("spot"), 1)),
    ],
    ids=["to be retried", "starting", "complete", "no capacity"],
)
def test_a_start_failure_is_reported_while_the_pool_may_still_start_machines(
    pool_daemon: Daemon, fleet_plan: FleetPlan, starting_pools: list[str], fault: str
) -> None:
    PoolStore(pool_daemon.twin.state).put(pool("spot"))
    pool_daemon.faults["c/spot"] = "no memory"

    pool_daemon.clear_faults(fleet_plan, starting_pools)
    pool_daemon.write_faults(fleet_plan)

    assert daemon.last_fault(pool_daemon.twin.state, "c/spot") == fault


def test_a_damaged_pool_file_is_logged_and_removes_no_machine(
    pool_daemon: Daemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machines = [(machine(pool_daemon, pool()), None)]
    pool_daemon.twin.layout.settings.parent.mkdir(parents=True, exist_ok=True)
    pool_daemon.twin.layout.settings.write_text("{}")
    pool_daemon.store.path.parent.mkdir()
    pool_daemon.store.path.write_text("{")
    monkeypatch.setattr(Daemon, "machines", lambda _: machines)
    monkeypatch.setattr(Daemon, "remove", lambda *_: pytest.fail("a machine is removed"))

    def end(_: float) -> None:
        pool_daemon.twin.layout.settings.unlink(missing_ok=True)

    monkeypatch.setattr("time.sleep", end)
    pool_daemon.run()

    assert f"cannot read the state: {pool_daemon.store.path} is damaged" in capsys.readouterr().out


def test_a_damaged_faults_file_is_replaced(pool_daemon: Daemon) -> None:
    path = daemon.faults_file(pool_daemon.twin.state)
    path.parent.mkdir()
    path.write_text("{")

    pool_daemon.write_faults(plan())

    assert files.read_json(path) == {}


def test_capacity_that_shrinks_while_a_machine_is_being_started_does_not_end_the_daemon(
    pool_daemon: Daemon,
) -> None:
    pool_daemon.store.put(pool(desired_size=1))
    CapacityLimits(pool_daemon.twin.state).set("c/spot", 0)
    pool_daemon.starting_machines["spot-0"] = "c/spot"  # it has no record yet

    pool_daemon.tick()

    assert not pool_daemon.busy_machines, "a machine without a record cannot get a notice"


def test_a_machine_that_finishes_its_start_during_a_tick_is_not_missing(
    pool_daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool_daemon.store.put(pool(desired_size=1))
    pool_daemon.starting_machines["spot-0"] = "c/spot"

    def machines(_: Daemon) -> list[tuple[Machine, Notice | None]]:
        pool_daemon.starting_machines.clear()  # its record was written after the records were read
        return []

    monkeypatch.setattr(Daemon, "machines", machines)
    monkeypatch.setattr(Daemon, "start", lambda *_: pytest.fail("a second machine is started"))

    pool_daemon.tick()


def test_an_idle_machine_that_is_being_reclaimed_does_not_shrink_its_pool_twice(
    pool_daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_pool = pool(cloud="azure", desired_size=2, autoscaled=True)
    pool_daemon.store.put(idle_pool)
    # The thread that reclaims it has not written the notice yet.
    pool_daemon.busy_machines.add("spot-0")
    scaled_machines: list[str] = []

    def decide(
        _: Scaler, __: object, pool_by_machine: dict[str, str], *___: object
    ) -> ScalingDecision:
        scaled_machines.extend(pool_by_machine)
        return ScalingDecision(sizes={}, remove=tuple(pool_by_machine), reasons=())

    monkeypatch.setattr(Scaler, "decide", decide)
    pool_daemon.scale(
        {"c/spot": idle_pool}, [(machine(pool_daemon, idle_pool), None)], plan(), MarketConfig()
    )

    assert (scaled_machines, desired_size(pool_daemon)) == ([], 2), "its eviction shrinks the pool"
