"""The daemon: looks at pools and machines twice a second, and starts, stops and takes machines.

Started by `daemon.start`. It holds nothing that is not on disk: killed at any moment, its successor goes on.
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

from everstep.errors import EverstepError
from everstep.progress import Lines
from twin.clouds.capacity import daemon, fleet
from twin.clouds.capacity.fleet import Plan, Seen
from twin.clouds.capacity.pools import Pool, PoolStore
from twin.clouds.capacity.scaling import Scaling
from twin.clouds.capacity.settings import Settings
from twin.clouds.capacity.supply import Supply
from twin.nodes import Twin, cluster, files, notices, records
from twin.nodes.api import ApiError
from twin.nodes.bring_up import admin_api
from twin.nodes.cgroups import Tree
from twin.nodes.layout import Layout
from twin.nodes.machine import Machine
from twin.nodes.notices import Notice
from twin.nodes.processes import Process

TICK_SECONDS = 0.5
DRAIN_SECONDS = 8.0  # the clouds wait for minutes; a twin's time is compressed
OVERDUE_SECONDS = 1.0  # whoever gave the notice takes the machine; after that it is left to us
RETRY_SECONDS = 5.0
MOST_AT_ONCE = 32


@dataclass
class Daemon:
    """The machines of one twin's pools."""

    twin: Twin
    scaling: Scaling
    workers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_AT_ONCE))
    starting: dict[str, str] = field(default_factory=dict)  # pools by the machines being made
    busy: set[str] = field(default_factory=set)  # machines that somebody of ours is at
    leaving: set[str] = field(default_factory=set)  # those of them that nobody wants any more
    waiting: dict[str, float] = field(
        default_factory=dict
    )  # until when a pool that failed is left alone
    faults: dict[str, str] = field(default_factory=dict)
    announced: dict[str, str] = field(default_factory=dict)  # pools by the machines to be taken
    troubles: dict[str, str] = field(default_factory=dict)  # of machines, as last said
    said: set[str] = field(default_factory=set)

    @property
    def store(self) -> PoolStore:
        """The pools."""
        return PoolStore(self.twin.state)

    def run(self) -> None:
        """Work until the twin is taken down."""
        while self.twin.layout.settings.exists():
            try:
                with self.store.undisturbed():
                    self.tick()
            except (OSError, ValueError, KeyError, TypeError) as error:
                # A file that is being removed, or one of another version: the next look may fare better.
                say(f"cannot look: {error!r}")
                time.sleep(RETRY_SECONDS)
            time.sleep(TICK_SECONDS)

    def tick(self) -> None:
        """Look once, and set going what is to be done."""
        being_made = list(self.starting.values())  # before anything is read that they may change
        machines = self.machines()
        self.decay(machines)
        pools = {
            pool.name: pool for pool in self.store.all()
        }  # after that: it changes what they want
        settings = Settings.load(self.twin.state)
        for machine, notice in machines:
            if notice and notice.take and notices.is_due(machine.folder, notice, OVERDUE_SECONDS):
                self.go(machine.name, self.twin.take, machine.name, notice)
        plan = fleet.decide(list(pools.values()), self.seen(machines), self.limits(pools, settings))
        self.forgive(plan, being_made)
        self.act(plan, pools)
        for name in plan.reclaim:
            cloud = next(m.record.spec.cloud for m, _ in machines if m.name == name)
            self.go(name, self.twin.reclaim, name, settings.notice_seconds(cloud))
        self.scale(pools, machines, plan, settings)
        self.tell(plan)

    def limits(self, pools: dict[str, Pool], settings: Settings) -> dict[str, int]:
        """Return how much room the cloud has for pools: the market's and what was set by hand, the lesser of both."""
        limits = Supply(self.twin.state).limits()
        for name, pool in pools.items():
            if (room := settings.room(pool, time.time())) is not None:
                limits[name] = min(room, limits.get(name, room))
        return limits

    def decay(self, machines: list[tuple[Machine, Notice | None]]) -> None:
        """Want one machine fewer of an Azure pool for each that was evicted: a scale set does not replace it."""
        there = {machine.name for machine, _ in machines}
        for name in [name for name in self.announced if name not in there]:
            pool = self.store.get(self.announced.pop(name))
            if pool and pool.cloud == "azure":
                least = pool.minimum if pool.autoscaled else 0
                self.store.resize(pool.name, max(pool.desired - 1, least))
        for machine, notice in machines:
            if notice and notice.take:
                self.announced[machine.name] = machine.record.spec.group

    def scale(
        self,
        pools: dict[str, Pool],
        machines: list[tuple[Machine, Notice | None]],
        plan: Plan,
        settings: Settings,
    ) -> None:
        """Let the autoscaler size the pools."""
        staying = {
            m.name: m.record.spec.group
            for m, notice in machines
            if m.name not in self.leaving and not (notice and notice.take)
        }
        decision = self.scaling.decide(list(pools.values()), staying, plan.short, settings.factor)
        if decision is None:
            return
        for reason in set(decision.reasons) - self.said:
            say(f"autoscaler: {reason}")
        self.said = set(decision.reasons)
        for name, size in decision.sizes.items():
            self.store.resize(name, size)
        for name in decision.remove:
            self.give_up(name, self.retire)
            pool = pools[staying[name]]
            self.store.resize(pool.name, (self.store.get(pool.name) or pool).desired - 1)

    def machines(self) -> list[tuple[Machine, Notice | None]]:
        """Return every machine of a pool, with what was announced to it, in the order in which they came."""
        tree, layout = Tree.here(), self.twin.layout
        found = [Machine(layout, tree, record) for record in records.all_of(layout)]
        found.sort(key=lambda machine: fleet.number_of(machine.name))  # records go by address
        return [(m, Notice.load(m.folder.notice)) for m in found if m.record.spec.group]

    def seen(self, machines: list[tuple[Machine, Notice | None]]) -> list[Seen]:
        """Return the machines as the decision wants them, those being made included."""
        there = [
            Seen(
                name=machine.name,
                pool=machine.record.spec.group,
                alive=machine.name in self.starting or machine.process is not None,
                leaving=machine.name in self.leaving,
                noticed=bool(notice and notice.take),
            )
            for machine, notice in machines
        ]
        names = {seen.name for seen in there}
        coming = [Seen(name=n, pool=p) for n, p in dict(self.starting).items() if n not in names]
        return [*there, *coming]

    def forgive(self, plan: Plan, being_made: Collection[str]) -> None:
        """Forget why a pool's last machines failed to start, where it can start no more and none is on its way.

        Some of them may have come to life all the same, or they are not wanted any more.
        """
        for name in self.faults.keys() - plan.start.keys() - set(being_made):
            self.faults.pop(name, None)

    def act(self, plan: Plan, pools: dict[str, Pool]) -> None:
        """Set going what was decided."""
        for name in plan.forget:
            self.give_up(name, self.twin.remove)
        for name in plan.stop:
            self.give_up(name, self.retire)
        for name, count in plan.start.items():
            if time.monotonic() >= self.waiting.get(name, 0.0):
                self.start(pools[name], count)

    def start(self, pool: Pool, count: int) -> None:
        """Make machines for a pool."""
        names = self.new_names(pool.name, count)
        self.starting.update(dict.fromkeys(names, pool.name))

        def work() -> None:
            try:
                self.twin.launch([pool.machine(name) for name in names], Lines())
                self.faults.pop(pool.name, None)
            except (EverstepError, ApiError, OSError) as error:
                if self.faults.get(pool.name) != str(error):
                    say(f"{pool.name}: {error}")
                self.faults[pool.name] = str(error)
                self.waiting[pool.name] = time.monotonic() + RETRY_SECONDS
            finally:
                for name in names:
                    del self.starting[name]

        watch(self.workers.submit(work))

    def new_names(self, pool: str, count: int) -> list[str]:
        """Return names that no machine of the twin has ever had, as a cloud gives new ids."""
        path = self.twin.state / "cloud" / "made.json"
        made = files.read_json(path) or {}
        first = int(made.get(pool, 0))
        files.write_json(path, made | {pool: first + count})
        return [fleet.next_name(pool, first + index) for index in range(count)]

    def go(self, name: str, action: Callable[..., None], *arguments: object) -> None:
        """Do something to a machine in the background, one thing at a time."""
        if name in self.busy:
            return
        self.busy.add(name)

        def work() -> None:
            try:
                action(*arguments)
                self.troubles.pop(name, None)
            except (EverstepError, ApiError, OSError) as error:
                if self.troubles.get(name) != str(error):  # the next look tries again, in silence
                    say(f"{name}: {error}")
                self.troubles[name] = str(error)
            finally:
                self.busy.discard(name)
                self.leaving.discard(name)

        watch(self.workers.submit(work))

    def give_up(self, name: str, action: Callable[[str], None]) -> None:
        """Take a machine away that is no longer wanted; from now on it does not count."""
        if name not in self.busy:
            self.leaving.add(name)
            self.go(name, action, name)

    def retire(self, name: str) -> None:
        """Drain a machine for a while, then take it away."""
        say(f"{name}: no longer wanted")
        with contextlib.suppress(EverstepError, ApiError, OSError):
            cluster.drain(admin_api(self.twin.layout), name, DRAIN_SECONDS)
        self.twin.remove(name)

    def tell(self, plan: Plan) -> None:
        """Say why pools lack machines, where whoever waits for them looks."""
        short = {pool: f"The cloud has no capacity for {n} more." for pool, n in plan.short.items()}
        told = {**short, **self.faults}
        path = daemon.faults_file(self.twin.state)
        if told != (files.read_json(path) or {}):
            files.write_json(path, told)


def say(what: str) -> None:
    """Write a line to the log."""
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


def watch(future: "Future[None]") -> None:
    """Let a fault of our own show in the log instead of being lost with its thread."""

    def show(done: "Future[None]") -> None:
        if error := done.exception():
            say(f"a fault of ours, please report it: {error!r}")

    future.add_done_callback(show)


def alone(state: Path) -> bool:
    """Whether no other daemon serves this twin; if so, none will while this process lives."""
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
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m twin.clouds.capacity", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the twin's folder")
    state = parser.parse_args().state
    if not alone(state):
        say("another daemon serves this twin")
        return 0
    me = Process.of(os.getpid())
    assert me is not None, "we are alive"  # noqa: S101 - cannot happen
    layout = Layout(state)
    me.save(layout.process(daemon.NAME))
    Daemon(Twin(layout), Scaling(admin_api(layout))).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
