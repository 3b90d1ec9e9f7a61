"""A twin, and everything that can be done to it."""

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep.errors import EverstepError
from everstep.progress import Progress, Silent
from twin.images import ImageStore, ensure_images
from twin.nodes import (
    bring_up,
    cluster,
    components,
    events,
    image_aliases,
    launch,
    lock,
    machine_images,
    notices,
    processes,
    records,
    take_down,
)
from twin.nodes.api import Api, ApiError
from twin.nodes.cgroups import Tree
from twin.nodes.layout import Layout
from twin.nodes.machine import Machine
from twin.nodes.model import MachineSpec, MachineStatus, Power, TwinStatus
from twin.nodes.notices import Notice
from twin.paths import state_directory

DRAIN_SECONDS = 120.0
DOWN_SECONDS = 1.0  # a companion that was just killed lets go of the lock
TAKE_SECONDS = 10.0  # another verb may be at the machine
LAUNCH_SECONDS = 60.0  # `up` may hold the twin for so long


@dataclass(frozen=True)
class Twin:
    """One cluster of machines on this host, standing or not.

    Every verb may be repeated: what is so already stays so, and no event is noted. All raise EverstepError where
    the twin does not stand, or a machine's name is not known; it names those that are near.

    Attributes:
        layout: its folder.
        images: where a machine's images come from.
    """

    layout: Layout
    images: Callable[[Progress], ImageStore] = ensure_images

    @classmethod
    def open(cls, name: str | None = None) -> "Twin":
        """Return the twin of this name; whether it stands is another matter."""
        return cls(Layout(state_directory(name)))

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig; the server is on 127.0.0.1."""
        return self.layout.kubeconfig

    @property
    def state(self) -> Path:
        """The folder that holds all of the twin."""
        return self.layout.state

    @property
    def shared(self) -> Path:
        """The folder that every machine sees at /mnt/everstep."""
        return self.layout.shared

    @property
    def events(self) -> Path:
        """One JSON line for every verb: at, kind, node."""
        return self.layout.events

    def up(self, machines: Sequence[MachineSpec], progress: Progress) -> None:
        """Make the twin stand with at least these machines, and repair what of it is broken.

        With no machine it is a control plane only, and needs no images.
        """
        bring_up.check(self.layout, machines)
        with lock.held(self.layout.lock, self._subject, "up"):
            bring_up.bring_up(self.layout, Tree.here(), machines, self.images, progress)

    def down(self, progress: Progress) -> None:
        """Remove the twin and all that belongs to it, whatever state it is in."""
        if companion := processes.load(self.layout.process(components.COMPANION)):
            companion.kill()  # first, or it would start machines as fast as they are taken down
        with lock.held(self.layout.lock, self._subject, "down", patience_seconds=DOWN_SECONDS):
            take_down.take_down(self.layout, Tree.here(), progress)

    def status(self) -> TwinStatus:
        """Say how everything is; works whatever state it is in."""
        nodes, api_ready = {}, False
        if self.layout.settings.exists() and self.layout.pki.exists():
            with contextlib.suppress(ApiError, OSError):
                nodes, api_ready = cluster.nodes(self._api), True
        tree = Tree.here()
        return TwinStatus(
            name=self.layout.name,
            api_ready=api_ready,
            components=components.running(self.layout),
            machines=tuple(
                Machine(self.layout, tree, record).status(nodes.get(record.spec.name))
                for record in records.all_of(self.layout)
            ),
        )

    def add(self, spec: MachineSpec, progress: Progress) -> None:
        """Add a machine to a twin that stands; one that is there already is repaired if it must be.

        It gets the images that the others have, however old: `up` is what looks for newer ones.
        """
        bring_up.check(self._standing, [spec])
        with lock.held(self.layout.lock, self._subject, f"add {spec.name}"):
            if all(spec.name != record.spec.name for record in records.all_of(self.layout)):
                self._note("add", spec.name)
            images = machine_images.in_use(self.layout)
            bring_up.bring_up(
                self.layout, Tree.here(), [spec], lambda p: images or self.images(p), progress
            )

    def launch(self, specs: Sequence[MachineSpec], progress: Progress) -> None:
        """Boot new machines and do not wait for their Nodes; other verbs may go on meanwhile.

        Raises:
            EverstepError: also where somebody holds the whole twin for too long.
        """
        with lock.held(
            self._standing.lock,
            self._subject,
            "launch",
            shared=True,
            patience_seconds=LAUNCH_SECONDS,
        ):
            for spec in specs:
                self._note("add", spec.name)
            launch.launch(self.layout, Tree.here(), specs, self.images, progress)

    def remove(self, name: str) -> None:
        """Take a machine away for good, its Node too; drain it first where its pods should leave in order."""
        with self._machine(name, "remove") as machine:
            self._note("remove", name)
            machine.remove()
            with answers():
                cluster.forget(self._api, name)

    def drain(self, name: str, timeout_seconds: float = DRAIN_SECONDS) -> None:
        """Evict the pods of a machine, within their disruption budgets, and let no new ones come.

        Raises:
            EverstepError: the machine is not running, or a pod is still there after the time-out.
        """
        # Without the machine's lock: it may vanish while it is drained, as spot machines do.
        with (
            lock.held(self._standing.lock, self._subject, f"drain {name}", shared=True),
            answers(),
        ):
            machine = self._find(name)
            _require(machine, {Power.RUNNING}, "drained")
            if not cluster.is_drained(self._api, name):
                self._note("drain", name)
                cluster.drain(self._api, name, timeout_seconds)

    def freeze(self, name: str) -> None:
        """Stop every process of a machine where it is, as a stuck hypervisor does."""
        with self._machine(name, "freeze") as machine:
            _require(machine, {Power.RUNNING, Power.FROZEN}, "frozen")
            if machine.power is Power.RUNNING:
                self._note("freeze", name)
                machine.freeze(frozen=True)

    def thaw(self, name: str) -> None:
        """Let the processes of a frozen machine go on."""
        with self._machine(name, "thaw") as machine:
            _require(machine, {Power.RUNNING, Power.FROZEN}, "thawed")
            if machine.power is Power.FROZEN:
                self._note("thaw", name)
                machine.freeze(frozen=False)

    def cut(self, name: str) -> None:
        """Cut a machine off the network; it goes on running and reaches nobody."""
        with self._machine(name, "cut") as machine:
            _require(machine, {Power.RUNNING, Power.FROZEN}, "cut off")
            if machine.connected:
                self._note("cut", name)
                machine.connect(connected=False)

    def mend(self, name: str) -> None:
        """Connect a machine that was cut off."""
        with self._machine(name, "mend") as machine:
            _require(machine, {Power.RUNNING, Power.FROZEN}, "connected")
            if not machine.connected:
                self._note("mend", name)
                machine.connect(connected=True)

    def vanish(self, name: str) -> None:
        """Let a machine disappear between two packets; nobody is told, the cloud notices after a while."""
        with self._machine(name, "vanish") as machine:
            if machine.power is not Power.GONE:
                self._note("vanish", name)
                machine.halt()

    def notice(self, name: str, seconds: float, *, take: bool = False) -> None:
        """Announce to a cloud's machine that it will be taken in so many seconds, and return at once.

        Its metadata service tells it to whoever asks there, as the cloud's own does. Nothing is taken by that,
        unless `take` says so and somebody looks after the twin's pools.
        """
        with self._machine(name, "notice") as machine:
            _require(machine, {Power.RUNNING, Power.FROZEN}, "noticed")
            self._announce(machine, seconds, take=take)

    def reclaim(self, name: str, notice_seconds: float, progress: Progress | None = None) -> None:
        """Take a cloud's machine as spot machines are taken: notice, drain, and after so long it is no more.

        On Azure it goes sooner when a program there acknowledges the event. Its Node and its record go too.
        """
        with (progress or Silent()).step(f"Reclaiming {name}") as step:
            with self._machine(name, "reclaim") as machine:
                _require(machine, {Power.RUNNING, Power.FROZEN}, "reclaimed")
                notice = self._announce(machine, notice_seconds, take=True)
            step.note(f"it goes in {notice_seconds:g} s")
            spec = machine.record.spec
            notices.await_due(machine.folder, notice, lambda: notices.prepare(self._api, spec))
            self.take(name, notice)

    def take(self, name: str, notice: Notice) -> None:
        """Take a machine whose notice has run out; one that is gone, or has got another notice, is left alone."""
        if self.layout.machine(name).record.exists():
            with self._machine(name, "reclaim", patience_seconds=TAKE_SECONDS) as machine:
                if Notice.load(machine.folder.notice) == notice:
                    self._note("reclaim", name)
                    machine.remove()
                    with answers():
                        cluster.forget(self._api, name)

    def alias_images(self, aliases: Mapping[str, str]) -> None:
        """Let local images answer for published ones, on machines that run and on those to come.

        Args:
            aliases: local references by published ones; added to those there are.

        Raises:
            EverstepError: a machine has no such local image.
        """
        with lock.held(self._standing.lock, self._subject, "alias images", shared=True):
            tree = Tree.here()
            machines = [Machine(self.layout, tree, r) for r in records.all_of(self.layout)]
            running = {
                m.name: m.process.pid for m in machines if m.power is Power.RUNNING and m.process
            }
            image_aliases.add(self.layout, aliases, running)

    def come_back(self, name: str, progress: Progress | None = None) -> None:
        """Let a machine take part again, whatever befell it.

        One that is gone boots anew: same name and address, another disk, and no memory of its former pods.
        One that is frozen, cut off or drained is thawed, connected and open to pods again.
        """
        shown = progress or Silent()
        with self._machine(name, "return") as machine, answers():
            if _takes_part(machine.status(cluster.nodes(self._api).get(name))):
                return
            self._note("return", name)
            bring_up.start_machines(self.layout, machine.tree, [machine.record], shown)
            cluster.set_schedulable(self._api, name, schedulable=True)

    @property
    def _api(self) -> Api:
        return bring_up.admin_api(self.layout)

    @property
    def _subject(self) -> str:
        return f"twin {self.layout.name!r}"

    @property
    def _standing(self) -> Layout:
        """The layout of a twin that stands.

        Raises:
            EverstepError: it does not.
        """
        if not self.layout.settings.exists():
            raise EverstepError(f"The {self._subject} does not stand.", "Start it with `up`.")
        return self.layout

    def _announce(self, machine: Machine, seconds: float, *, take: bool) -> Notice:
        before = Notice.load(machine.folder.notice)
        notice = notices.give(machine.record.spec, machine.folder, seconds, take=take)
        if notice != before:
            self._note("notice", machine.name, notice.at)
        return notice

    @contextlib.contextmanager
    def _machine(self, name: str, verb: str, *, patience_seconds: float = 0.0) -> Iterator[Machine]:
        """Hold one machine while something is done to it; other machines may be changed meanwhile."""
        patience = patience_seconds
        with lock.held(
            self._standing.lock, self._subject, verb, shared=True, patience_seconds=patience
        ):
            machine = self._find(name)
            subject = f"machine {name!r}"
            with lock.held(machine.folder.lock, subject, verb, patience_seconds=patience):
                yield machine

    def _find(self, name: str) -> Machine:
        known = {record.spec.name: record for record in records.all_of(self.layout)}
        if name in known:
            return Machine(self.layout, Tree.here(), known[name])
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or list(known)
        raise EverstepError(
            f"The {self._subject} has no machine {name!r}.",
            f"Did you mean {' or '.join(near)}?" if near else "It has no machine at all.",
        )

    def _note(self, kind: str, node: str, at: float | None = None) -> None:
        events.note(self.layout.events, kind, node, at)


@contextlib.contextmanager
def answers() -> Iterator[None]:
    """Turn a silent or unwilling API server into an error with a way out.

    Raises:
        EverstepError: instead of what the request raised.
    """
    try:
        yield
    except ApiError as error:
        raise EverstepError(f"The API server refused: {error.message}") from error
    except OSError as error:
        raise EverstepError(
            f"The API server does not answer: {error}", "`up` repairs the twin."
        ) from error


def _require(machine: Machine, powers: set[Power], participle: str) -> None:
    if (power := machine.power) not in powers:
        cure = {Power.GONE: "`return` boots it again.", Power.FROZEN: "`thaw` lets it go on."}
        raise EverstepError(
            f"The machine {machine.name!r} is {power} and cannot be {participle}.",
            cure.get(power, ""),
        )


def _takes_part(status: MachineStatus) -> bool:
    well = status.power is Power.RUNNING and status.connected
    return well and bool(status.ready) and bool(status.schedulable)
