"""A twin and the operations on it and its machines."""

import contextlib
import difflib
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudtwin import owned_folders
from cloudtwin.errors import TwinError
from cloudtwin.images import ImageStore, ensure_images
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes import (
    bring_up,
    events,
    launch,
    lock,
    node_objects,
    options,
    records,
    take_down,
)
from cloudtwin.nodes.control_plane import components
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.machine import image_aliases, image_copies
from cloudtwin.nodes.machine.machine import Machine
from cloudtwin.nodes.metadata import notices
from cloudtwin.nodes.metadata.notices import Notice
from cloudtwin.nodes.model import MachineSpec, MachineStatus, Power, TwinStatus
from cloudtwin.nodes.options import TwinOptions
from cloudtwin.paths import state_directory
from cloudtwin.progress import Progress, Silent

DRAIN_SECONDS = 120.0
MACHINE_SECONDS = 100.0  # operations on machines may run, such as a start by the capacity daemon
TERMINATE_SECONDS = 100.0  # the capacity daemon may be removing the machine
LAUNCH_SECONDS = 60.0  # `up` may hold the twin's lock
ALIVE = frozenset({Power.RUNNING, Power.FROZEN})


@dataclass(frozen=True)
class Twin:
    """One cluster of machines on this host; it may be running or not.

    If there is nothing to do, an operation changes nothing and records no event. Operations on a machine raise
    TwinError if the twin is not running or has no machine of this name; the message then suggests similar names.

    Attributes:
        layout: its folder.
        options: additions of the caller; None: the additions that the last `up` stored.
    """

    layout: Layout
    options: TwinOptions | None = None

    @classmethod
    def open(cls, name: str | None = None, options: TwinOptions | None = None) -> "Twin":
        """Return the twin of this name, running or not."""
        return cls(Layout(state_directory(name)), options)

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig; its server is on 127.0.0.1."""
        return self.layout.kubeconfig

    @property
    def state(self) -> Path:
        """The folder that holds all state of the twin."""
        return self.layout.state

    @property
    def shared(self) -> Path:
        """The folder that every machine mounts at the shared mount point."""
        return self.layout.shared

    @property
    def events(self) -> Path:
        """Event log, with one JSON line for each operation that changed a machine: at, kind, node."""
        return self.layout.events

    def up(self, machines: Sequence[MachineSpec], progress: Progress) -> None:
        """Start the twin with at least these machines, and repair what is broken.

        Without machines it is only a control plane and needs no images.

        Raises:
            TwinError: the host lacks a requirement, a machine is invalid, or a component does not start.
        """
        bring_up.check(self.layout, machines)
        with self._exclusive("up", progress), api_errors():
            owned_folders.claim(self.layout.state, may_have_data=True)
            if self.options:
                self.options.save(self.layout)
            bring_up.bring_up(
                self.layout, CgroupHierarchies.detect(), machines, self.images, progress
            )

    def images(self, progress: Progress) -> ImageStore:
        """Return the twin's images, built from their current sources."""
        twin_options = self.options or options.load(self.layout)
        return ensure_images(progress, twin_options.recipes)

    def down(self, progress: Progress) -> None:
        """Remove the twin and everything that belongs to it, regardless of its state.

        Raises:
            TwinError: its folder has files of another origin, and nothing was changed; or a part cannot be removed.
        """
        owned_folders.require_no_foreign_files(self.layout.state)
        if daemon := processes.load(self.layout.process(components.CAPACITY)):
            daemon.kill()  # first, otherwise it starts machines while they are removed
        with self._exclusive("down", progress):
            take_down.take_down(self.layout, CgroupHierarchies.detect(), progress)

    def status(self) -> TwinStatus:
        """Return the state of the twin; works in any state.

        Raises:
            DamagedFileError: the record of a machine is damaged.
        """
        nodes, api_ready = {}, False
        if self.layout.settings.exists() and self.layout.pki.exists():
            with contextlib.suppress(ApiError, OSError):
                nodes, api_ready = node_objects.nodes(self._client), True
        return TwinStatus(
            name=self.layout.name,
            api_ready=api_ready,
            components=components.running_components(self.layout),
            machines=tuple(
                machine.status(nodes.get(machine.name))
                for machine in _machines(self.layout, CgroupHierarchies.detect())
            ),
        )

    def add(self, spec: MachineSpec, progress: Progress) -> None:
        """Add a machine to a running twin, or repair it if it exists; the rest of the twin is repaired too.

        It gets the images of the other machines. Only `up` builds newer images.
        """
        bring_up.check(self._running_layout, [spec])
        with self._exclusive(f"add {spec.name}", progress), api_errors():
            if all(spec.name != record.spec.name for record in records.all_of(self.layout)):
                self._note("add", spec.name)
            images = image_copies.newest_copy(self.layout)
            bring_up.bring_up(
                self.layout,
                CgroupHierarchies.detect(),
                [spec],
                lambda p: images or self.images(p),
                progress,
            )

    def launch(self, specs: Sequence[MachineSpec], progress: Progress) -> None:
        """Boot new machines without waiting for their Nodes; other operations can run meanwhile.

        Raises:
            TwinError: another command holds the twin's lock for too long, or a machine does not start.
        """
        with self._held("launch", LAUNCH_SECONDS), api_errors():
            for spec in specs:
                self._note("add", spec.name)
            launch.launch(self.layout, CgroupHierarchies.detect(), specs, self.images, progress)

    def remove(self, name: str) -> None:
        """Remove a machine and its Node; call `drain` first so that its pods end gracefully."""
        with self._machine(name, "remove") as machine:
            self._remove(machine, "remove")

    def drain(self, name: str, timeout_seconds: float = DRAIN_SECONDS) -> None:
        """Cordon a machine's Node and evict its pods within their disruption budgets.

        Raises:
            TwinError: the machine is not running, or a pod remains after the timeout.
        """
        # Without the machine's lock: a spot machine can vanish while it is drained.
        with self._held(f"drain {name}"), api_errors():
            machine = self._find(name)
            _require(machine, {Power.RUNNING}, "drained")
            if not node_objects.is_drained(self._client, name):
                self._note("drain", name)
                node_objects.drain(self._client, name, timeout_seconds)

    def freeze(self, name: str) -> None:
        """Freeze every process of a machine, as a hung hypervisor does."""
        with self._machine(name, "freeze") as machine:
            _require(machine, ALIVE, "frozen")
            if machine.power is Power.RUNNING:
                self._note("freeze", name)
                machine.freeze(frozen=True)

    def thaw(self, name: str) -> None:
        """Thaw the processes of a frozen machine."""
        with self._machine(name, "thaw") as machine:
            _require(machine, ALIVE, "thawed")
            if machine.power is Power.FROZEN:
                self._note("thaw", name)
                machine.freeze(frozen=False)

    def cut(self, name: str) -> None:
        """Disconnect a machine from the network; it keeps running."""
        with self._machine(name, "cut") as machine:
            _require(machine, ALIVE, "disconnected")
            if machine.connected:
                self._note("cut", name)
                machine.connect(connected=False)

    def reconnect(self, name: str) -> None:
        """Connect a machine that was disconnected."""
        with self._machine(name, "reconnect") as machine:
            _require(machine, ALIVE, "connected")
            if not machine.connected:
                self._note("reconnect", name)
                machine.connect(connected=True)

    def vanish(self, name: str) -> None:
        """Terminate a machine without notice; its Node is deleted some seconds later."""
        with self._machine(name, "vanish") as machine:
            if machine.power is not Power.GONE:
                self._note("vanish", name)
                machine.halt()

    def notice(self, name: str, seconds: float, *, terminate: bool = False) -> None:
        """Announce a termination in a cloud machine's metadata service, without waiting for it.

        Args:
            name: the machine.
            seconds: time until the announced termination.
            terminate: True if the capacity daemon terminates the machine at that time.
        """
        with self._machine(name, "notice") as machine:
            _require(machine, ALIVE, "given notice")
            self._announce(machine, seconds, terminate=terminate)

    def reclaimable(self, name: str) -> MachineSpec:
        """Return the spec of a machine that can be reclaimed; raise TwinError as `reclaim` does if it cannot."""
        with self._held("reclaim"):
            machine = self._find(name)
            _require(machine, ALIVE, "reclaimed")
            notices.require_cloud(machine.record.spec)
            return machine.record.spec

    def reclaim(self, name: str, notice_seconds: float, progress: Progress | None = None) -> None:
        """Reclaim a cloud machine as its cloud reclaims spot machines: announce, drain, terminate after the notice.

        On Azure it ends earlier if a program on it acknowledges the event. Its Node and its record are removed.
        """
        with (progress or Silent()).step(f"Reclaiming {name}") as step:
            with self._machine(name, "reclaim") as machine:
                _require(machine, ALIVE, "reclaimed")
                notice = self._announce(machine, notice_seconds, terminate=True)
            # An earlier notice of its termination remains, with its time.
            step.note(f"it ends in {max(0.0, notice.not_before - time.time()):.0f} s")
            spec = machine.record.spec
            notices.await_due(
                machine.folder, notice, lambda: notices.begin_drain(self._client, spec)
            )
            self.terminate(name, notice)

    def terminate(self, name: str, notice: Notice) -> None:
        """Remove a machine whose notice is due; do nothing if it was removed or has another notice."""
        if self.layout.machine(name).record.exists():
            with self._machine(name, "reclaim", TERMINATE_SECONDS) as machine:
                if Notice.load(machine.folder.notice) == notice:
                    self._remove(machine, "reclaim")

    def alias_images(self, aliases: Mapping[str, str]) -> None:
        """Use local images in place of published images, on running machines and on later machines.

        Args:
            aliases: local references, by published reference; added to the existing aliases.

        Raises:
            TwinError: an alias is not a pair of image references, or a machine cannot use the local image.
        """
        with self._held("alias images"):
            pids = {
                machine.name: machine.process.pid
                for machine in _machines(self.layout, CgroupHierarchies.detect())
                if machine.power is Power.RUNNING and machine.process
            }
            image_aliases.add(self.layout, aliases, pids)

    def return_node(self, name: str, progress: Progress | None = None) -> None:
        """Make a machine usable again.

        A machine that is gone boots with its name and address, a new disk and none of its former pods. A frozen,
        disconnected or drained machine is thawed, connected or uncordoned.
        """
        with self._machine(name, "return") as machine, api_errors():
            if _is_usable(machine.status(node_objects.nodes(self._client).get(name))):
                return
            self._note("return", name)
            bring_up.start_machines(
                self.layout, machine.cgroups, [machine.record], progress or Silent()
            )
            node_objects.set_schedulable(self._client, name, schedulable=True)

    @property
    def _client(self) -> KubernetesClient:
        return bring_up.admin_client(self.layout)

    @property
    def _subject(self) -> str:
        return f"twin {self.layout.name!r}"

    @property
    def _running_layout(self) -> Layout:
        """The layout, after a check that the twin is running.

        Raises:
            TwinError: the twin is not running.
        """
        if not self.layout.settings.exists():
            raise TwinError(f"The {self._subject} is not running.", "Start it with `up`.")
        return self.layout

    def _announce(self, machine: Machine, seconds: float, *, terminate: bool) -> Notice:
        previous = Notice.load(machine.folder.notice)
        notice = notices.announce(machine.record.spec, machine.folder, seconds, terminate=terminate)
        if notice != previous:
            self._note("notice", machine.name, notice.announced_at)
        return notice

    def _remove(self, machine: Machine, kind: str) -> None:
        """Remove a machine and its Node; the record is last, so that a removal can be repeated if it fails."""
        was_gone = machine.power is Power.GONE
        if not was_gone:
            self._note(kind, machine.name)
        machine.halt()
        with api_errors():
            node_objects.delete(self._client, machine.name)
        if was_gone:  # only now: the capacity daemon repeats the deletion until it succeeds
            self._note(kind, machine.name)
        machine.remove()

    @contextlib.contextmanager
    def _exclusive(self, command: str, progress: Progress) -> Iterator[None]:
        """Lock the twin against all other operations; wait for operations on machines."""
        with lock.held(
            self.layout.lock,
            self._subject,
            command,
            shared_timeout_seconds=MACHINE_SECONDS,
            progress=progress,
        ):
            yield

    @contextlib.contextmanager
    def _held(self, command: str, timeout_seconds: float = 0.0) -> Iterator[None]:
        """Lock the running twin against `up`, `add` and `down`, but not against operations on machines."""
        with lock.held(
            self._running_layout.lock,
            self._subject,
            command,
            shared=True,
            timeout_seconds=timeout_seconds,
        ):
            yield

    @contextlib.contextmanager
    def _machine(self, name: str, command: str, timeout_seconds: float = 0.0) -> Iterator[Machine]:
        """Lock one machine; operations on other machines can run meanwhile."""
        with self._held(command, timeout_seconds):
            machine = self._find(name)
            subject = f"machine {name!r}"
            with lock.held(machine.folder.lock, subject, command, timeout_seconds=timeout_seconds):
                yield machine

    def _find(self, name: str) -> Machine:
        machines = {
            machine.name: machine for machine in _machines(self.layout, CgroupHierarchies.detect())
        }
        if name in machines:
            return machines[name]
        suggestions = difflib.get_close_matches(name, machines, n=3, cutoff=0.4) or list(machines)
        raise TwinError(
            f"The {self._subject} has no machine {name!r}.",
            f"Did you mean {' or '.join(suggestions)}?" if suggestions else "It has no machines.",
        )

    def _note(self, kind: str, node: str, event_time: float | None = None) -> None:
        events.note(self.layout.events, kind, node, event_time)


@contextlib.contextmanager
def api_errors() -> Iterator[None]:
    """Convert errors of the API server into errors for users; others, such as a full disk, propagate.

    Raises:
        TwinError: the server refused a request or does not respond.
    """
    try:
        yield
    except ApiError as error:
        raise TwinError(f"The API server refused: {error.message}") from error
    except (ConnectionError, TimeoutError, ssl.SSLError) as error:
        raise TwinError(
            f"The API server does not respond: {error}", "`up` repairs the twin."
        ) from error


def _machines(layout: Layout, cgroups: CgroupHierarchies) -> list[Machine]:
    return [Machine(layout, cgroups, record) for record in records.all_of(layout)]


def _require(machine: Machine, powers: frozenset[Power] | set[Power], participle: str) -> None:
    if (power := machine.power) not in powers:
        fix = {Power.GONE: "`return` boots it again.", Power.FROZEN: "`thaw` makes it run again."}
        raise TwinError(
            f"The machine {machine.name!r} is {power} and cannot be {participle}.",
            fix.get(power, ""),
        )


def _is_usable(status: MachineStatus) -> bool:
    is_reachable = status.power is Power.RUNNING and status.connected
    return is_reachable and bool(status.ready) and bool(status.schedulable)
