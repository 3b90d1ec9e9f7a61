"""The daemon: compares pools with machines twice a second, and starts and stops machines.

`daemon.start` starts it. Pools, machine records, notices and limits are on disk: a killed daemon can be replaced at any
moment.
"""

import argparse
import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from cloudtwin import files
from cloudtwin.capacity import daemon, fleet, quotas, shortage
from cloudtwin.capacity.config import MarketConfig
from cloudtwin.capacity.fleet import FleetPlan, PoolMachine
from cloudtwin.capacity.limits import CapacityLimits
from cloudtwin.capacity.pod_identity import PodIdentityInjector, PodIdentityStore
from cloudtwin.capacity.pools import Pool, PoolStore
from cloudtwin.capacity.quotas import QuotaStore
from cloudtwin.capacity.scaler import Scaler
from cloudtwin.errors import TwinError
from cloudtwin.kubernetes_api import ApiError
from cloudtwin.nodes import Twin, node_objects, records
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.linux.processes import Process
from cloudtwin.nodes.machine.machine import Machine
from cloudtwin.nodes.metadata import notices
from cloudtwin.nodes.metadata.notices import Notice
from cloudtwin.progress import Lines

TICK_SECONDS = 0.5
IDLE_DRAIN_SECONDS = 8.0  # minutes in the clouds; a twin's time is compressed
REPLACE_DRAIN_SECONDS = 60.0  # EKS waits 15 minutes in a node group update
OVERDUE_SECONDS = 1.0
"""Delay of the daemon after a notice is due: until then, a running `Twin.reclaim` removes the machine."""
RETRY_SECONDS = 5.0
MAX_MACHINE_THREADS = 32
FAILURES = (TwinError, ApiError, OSError)


@dataclass
class Daemon:
    """The machines of one twin's pools.

    Attributes:
        twin: the twin.
        scaler: its autoscaler.
        injector: its injection of variables for pod identities.
        workers: threads that start and stop machines.
        starting_machines: key of the pool of each machine that is being started, by name of the machine.
        busy_machines: machines that a worker is changing.
        leaving_machines: the busy machines that are being removed, other than by an interruption.
        retry_at: time of the next attempt to start machines after a failure, by key of the pool; monotonic clock.
        faults: reasons why machines failed to start, by key of the pool.
        interrupted_machines: key of the pool of each machine that will be terminated, by name of the machine.
        last_errors: the errors last logged, by machine.
        logged_reasons: the autoscaler's reasons last logged.
    """

    twin: Twin
    scaler: Scaler
    injector: PodIdentityInjector
    workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(MAX_MACHINE_THREADS)
    )
    starting_machines: dict[str, str] = field(default_factory=dict)
    busy_machines: set[str] = field(default_factory=set)
    leaving_machines: set[str] = field(default_factory=set)
    retry_at: dict[str, float] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    interrupted_machines: dict[str, str] = field(default_factory=dict)
    last_errors: dict[str, str] = field(default_factory=dict)
    logged_reasons: set[str] = field(default_factory=set)

    @property
    def store(self) -> PoolStore:
        """The pools."""
        return PoolStore(self.twin.state)

    def run(self) -> None:
        """Run until the twin is taken down."""
        while self.twin.layout.settings.exists():
            try:
                with self.store.exclusive():
                    self.tick()
            except (TwinError, OSError, ValueError, KeyError, TypeError) as error:
                # A file is damaged or being removed, or another version of the twin wrote it: retry.
                log(
                    f"cannot read the state: {error if isinstance(error, TwinError) else repr(error)}"
                )
                time.sleep(RETRY_SECONDS)
            time.sleep(TICK_SECONDS)

    def tick(self) -> None:
        """Compare pools with machines once, and start the changes."""
        # Copied before the records are read: a machine whose start ends in between is in one of them.
        starting = dict(self.starting_machines)
        machines = self.machines()
        self.shrink_pools_of_evicted_machines(machines)
        pools = {pool.key: pool for pool in self.store.all()}  # after shrinking
        config = MarketConfig.load(self.twin.state)
        for machine, notice in machines:
            if (
                notice
                and notice.terminate
                and notices.is_due(machine.folder, notice, OVERDUE_SECONDS)
            ):
                self.run_in_background(machine.name, self.twin.terminate, machine.name, notice)
        observed = self.observe(machines, pools, starting)
        plan = fleet.decide(list(pools.values()), observed, self.limits(pools, config))
        self.clear_faults(plan, starting.values())
        self.act(plan, pools)
        clouds = {machine.name: machine.record.spec.cloud for machine, _ in machines}
        for name in plan.reclaim:
            # Without a record the start is not complete: a later tick reclaims the machine.
            if name in clouds:
                seconds = config.notice_seconds(clouds[name])
                self.run_in_background(name, self.twin.reclaim, name, seconds)
        self.scale(pools, machines, plan, config)
        self.write_faults(plan)
        self.inject_pod_identities()

    def limits(self, pools: dict[str, Pool], config: MarketConfig) -> dict[str, int]:
        """Return the capacity for pools: the lowest of the market's, the quotas' and the manual limit.

        A pool whose price is above its maximum price has the limit 0.
        """
        limits = CapacityLimits(self.twin.state).current()
        for name, pool in pools.items():
            if (capacity := config.available(pool, time.time())) is not None:
                limits[name] = min(capacity, limits.get(name, capacity))
        for name, machine_count in self.quotas(pools).items():
            limits[name] = min(machine_count, limits.get(name, machine_count))
        return limits

    def quotas(self, pools: dict[str, Pool]) -> dict[str, int]:
        """Return the number of machines of each pool that the account's quotas allow."""
        return quotas.limits(pools.values(), QuotaStore(self.twin.state).all())

    def shrink_pools_of_evicted_machines(
        self, machines: list[tuple[Machine, Notice | None]]
    ) -> None:
        """Lower the sizes of Azure pools with evicted machines: a scale set does not replace these machines."""
        machine_names = {machine.name for machine, _ in machines}
        for name in [name for name in self.interrupted_machines if name not in machine_names]:
            pool = self.store.get(self.interrupted_machines.pop(name))
            if pool and pool.cloud == "azure":
                min_size = pool.min_size if pool.autoscaled else 0
                self.store.resize(pool.key, max(pool.desired_size - 1, min_size))
        for machine, notice in machines:
            if notice and notice.terminate:
                self.interrupted_machines[machine.name] = machine.record.spec.pool

    def scale(
        self,
        pools: dict[str, Pool],
        machines: list[tuple[Machine, Notice | None]],
        plan: FleetPlan,
        config: MarketConfig,
    ) -> None:
        """Apply the autoscaler's decision."""
        pool_by_machine = {
            m.name: m.record.spec.pool
            for m, notice in machines
            # A busy machine may be about to get a notice.
            if m.name not in self.busy_machines and not (notice and notice.terminate)
        }
        decision = self.scaler.decide(
            list(pools.values()), pool_by_machine, plan.shortages, config.time_factor
        )
        if decision is None:
            return
        for reason in set(decision.reasons) - self.logged_reasons:
            log(f"autoscaler: {reason}")
        self.logged_reasons = set(decision.reasons)
        for name, size in decision.sizes.items():
            self.store.resize(name, size)
        for name in decision.remove:
            self.remove(name, self.retire)
            pool = pools[pool_by_machine[name]]
            self.store.resize(pool.key, (self.store.get(pool.key) or pool).desired_size - 1)

    def inject_pod_identities(self) -> None:
        """Make the associations of pod identities effective; after a failure, the next tick continues."""
        try:
            self.injector.sync()
            self.last_errors.pop(PodIdentityInjector.__name__, None)
        except FAILURES as error:
            if self.last_errors.get(PodIdentityInjector.__name__) != str(error):
                log(f"pod identities: {error}")
            self.last_errors[PodIdentityInjector.__name__] = str(error)

    def machines(self) -> list[tuple[Machine, Notice | None]]:
        """Return the machines of all pools with their notices, oldest first."""
        cgroups, layout = CgroupHierarchies.detect(), self.twin.layout
        machines = [Machine(layout, cgroups, record) for record in records.all_of(layout)]
        # Records are sorted by address.
        machines.sort(key=lambda machine: fleet.machine_number(machine.name))
        return [(m, Notice.load(m.folder.notice)) for m in machines if m.record.spec.pool]

    def observe(
        self,
        machines: list[tuple[Machine, Notice | None]],
        pools: dict[str, Pool],
        starting: dict[str, str],
    ) -> list[PoolMachine]:
        """Return the machines for the decision.

        Args:
            machines: the machines with a record, and their notices.
            pools: the pools by key.
            starting: machines that are being started -> keys of their pools.
        """
        releases = {name: pool.release for name, pool in pools.items()}
        has_old_release = any(
            m.record.spec.release != releases.get(m.record.spec.pool, m.record.spec.release)
            for m, _ in machines
        )
        ready = self.ready_nodes() if has_old_release else {m.name for m, _ in machines}
        present_machines = [
            PoolMachine(
                name=machine.name,
                pool=machine.record.spec.pool,
                alive=machine.name in starting or machine.process is not None,
                leaving=machine.name in self.leaving_machines,
                has_notice=bool(notice and notice.terminate),
                release=machine.record.spec.release,
                ready=machine.name in ready,
            )
            for machine, notice in machines
        ]
        present_names = {machine.name for machine in present_machines}
        starting_machines = [
            PoolMachine(name=name, pool=pool, release=releases.get(pool, ""), ready=False)
            for name, pool in starting.items()
            if name not in present_names
        ]
        return [*present_machines, *starting_machines]

    def ready_nodes(self) -> set[str]:
        """Return the names of the Nodes that are Ready; empty if the cluster does not respond."""
        with contextlib.suppress(*FAILURES):
            nodes = node_objects.nodes(admin_client(self.twin.layout))
            return {name for name, node in nodes.items() if node_objects.is_ready(node)}
        return set()

    def clear_faults(self, plan: FleetPlan, being_started: Collection[str]) -> None:
        """Remove the faults of pools that start no machines now: they are complete, or lack capacity."""
        for name in self.faults.keys() - plan.start.keys() - set(being_started):
            self.faults.pop(name, None)

    def act(self, plan: FleetPlan, pools: dict[str, Pool]) -> None:
        """Start the changes of a plan."""
        for name in plan.forget:
            self.remove(name, self.twin.remove)
        for name in plan.stop:
            self.remove(name, self.retire)
        for name in plan.replace:
            self.remove(name, self.replace)
        for name, count in plan.start.items():
            if time.monotonic() >= self.retry_at.get(name, 0.0):
                self.start(pools[name], count)

    def start(self, pool: Pool, count: int) -> None:
        """Start machines of a pool in the background."""
        names = self.new_names(pool.name, count)
        self.starting_machines.update(dict.fromkeys(names, pool.key))

        def work() -> None:
            try:
                self.twin.launch([pool.machine(name) for name in names], Lines())
                self.faults.pop(pool.key, None)
            except FAILURES as error:
                if self.faults.get(pool.key) != str(error):
                    log(f"{pool.key}: {error}")
                self.faults[pool.key] = str(error)
                self.retry_at[pool.key] = time.monotonic() + RETRY_SECONDS
            finally:
                for name in names:
                    del self.starting_machines[name]

        report_bugs(self.workers.submit(work))

    def new_names(self, pool: str, count: int) -> list[str]:
        """Return names for new machines, which no earlier machine of the twin had."""
        path = self.twin.state / "cloud" / "made.json"
        next_numbers = files.read_json(path) or {}
        prefix = fleet.name_prefix(pool)
        first = int(next_numbers.get(prefix, 0))
        files.write_json(path, next_numbers | {prefix: first + count})
        return [fleet.machine_name(pool, first + index) for index in range(count)]

    def run_in_background(self, name: str, action: Callable[..., None], *arguments: object) -> None:
        """Run an action on a machine, unless another one is running on it."""
        if name in self.busy_machines:
            return
        self.busy_machines.add(name)

        def work() -> None:
            try:
                action(*arguments)
                self.last_errors.pop(name, None)
            except FAILURES as error:
                if self.last_errors.get(name) != str(error):  # the next tick retries silently
                    log(f"{name}: {error}")
                self.last_errors[name] = str(error)
            finally:
                # In this order: while the machine is busy, `remove` does not add it to `leaving_machines`.
                self.leaving_machines.discard(name)
                self.busy_machines.discard(name)

        report_bugs(self.workers.submit(work))

    def remove(self, name: str, action: Callable[[str], None]) -> None:
        """Remove a machine by an action unless it is busy; it no longer counts as a machine of its pool."""
        if name not in self.busy_machines:
            self.leaving_machines.add(name)
            self.run_in_background(name, action, name)

    def retire(self, name: str, drain_seconds: float = IDLE_DRAIN_SECONDS) -> None:
        """Drain a machine for a while, then remove it."""
        log(f"{name}: no longer needed")
        with contextlib.suppress(*FAILURES):
            node_objects.drain(admin_client(self.twin.layout), name, drain_seconds)
        self.twin.remove(name)

    def replace(self, name: str) -> None:
        """Drain a machine of an old release, then remove it."""
        self.retire(name, REPLACE_DRAIN_SECONDS)

    def write_faults(self, plan: FleetPlan) -> None:
        """Write the reasons why pools lack machines to the file that `daemon.last_fault` reads."""
        pools = {pool.key: pool for pool in self.store.all()}
        quota_limits = self.quotas(pools)
        market, now = MarketConfig.load(self.twin.state), time.time()
        shortages = {
            name: quotas.reason(pools[name])
            if name in quota_limits and pools[name].desired_size > quota_limits[name]
            else shortage.reason(pools[name], count, market.price(pools[name], now))
            for name, count in plan.shortages.items()
        }
        faults = {**shortages, **self.faults}
        path = daemon.faults_file(self.twin.state)
        # A damaged file is replaced too: each write contains all reasons.
        if faults != files.read_json_if_valid(path):
            files.write_json(path, faults)


def log(line: str) -> None:
    """Write a line to the log."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def report_bugs(future: "Future[None]") -> None:
    """Log an unexpected exception of a worker, which would be lost with its thread."""

    def show(future: "Future[None]") -> None:
        if error := future.exception():
            log(f"a bug in the daemon, please report it: {error!r}")

    future.add_done_callback(show)


def acquire_lock(state: Path) -> bool:
    """Acquire the lock of a twin's daemon until this process ends; return False if another daemon holds it."""
    path = state / "cloud" / "daemon.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True  # the descriptor stays open on purpose


def main() -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m cloudtwin.capacity", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the twin's folder")
    state = parser.parse_args().state
    if not acquire_lock(state):
        log("another daemon serves this twin")
        return 0
    process = Process.of(os.getpid())
    assert process is not None, "this process exists"  # noqa: S101 - cannot happen
    layout = Layout(state)
    process.save(layout.process(daemon.NAME))
    try:
        api = admin_client(layout)
        injector = PodIdentityInjector(api, PodIdentityStore(state))
        Daemon(Twin(layout), Scaler(api), injector).run()
    except TwinError as error:
        log(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
