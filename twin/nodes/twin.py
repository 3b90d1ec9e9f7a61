"""A twin, and everything that can be done to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep.progress import Progress
from twin.nodes import lock
from twin.nodes.bring_up import bring_up
from twin.nodes.cgroups import Tree
from twin.nodes.layout import Layout
from twin.nodes.model import MachineSpec
from twin.nodes.take_down import take_down
from twin.paths import state_directory


@dataclass(frozen=True)
class Twin:
    """One cluster of machines on this host, standing or not.

    Every verb may be repeated: what is already so stays so. A verb on a machine nobody knows raises
    EverstepError with the names that are near.
    """

    layout: Layout

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
        """Make the twin stand with at least these machines, and repair what of it is broken."""
        with lock.held(self.layout.lock, "up"):
            bring_up(self.layout, Tree.here(), machines, progress)

    def down(self, progress: Progress) -> None:
        """Remove the twin and all that belongs to it, whatever state it is in."""
        with lock.held(self.layout.lock, "down"):
            take_down(self.layout, Tree.here(), progress)
