"""What a cloud does beyond its books: a control plane stands, machines come and go.

The provider speaks to a small interface. Behind it are the machines of `twin.clouds.capacity`, or
nobody: a paper cloud keeps books only, for previews and for tests that need no machine.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from everstep.errors import EverstepError
from twin.clouds.patience import Patience
from twin.pulumi.provider.errors import ProviderError

if TYPE_CHECKING:
    from twin.clouds.capacity import Pool

PAPER = "EVERSTEP_PAPER_CLOUD"
SLICE_SECONDS = 2.0  # of a wait, after which an interrupt is looked for


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """How a cluster is reached.

    Attributes:
        address: of the API server.
        authority: its certificate authority, PEM in base64.
    """

    address: str
    authority: str


class Machines(Protocol):
    """What providers ask of the cloud's hardware."""

    def control_plane(self) -> Endpoint:
        """Make the control plane stand."""

    def put(self, pool: "Pool") -> None:
        """Want a pool of machines, or want it changed."""

    def drop(self, pool: str) -> None:
        """Want a pool no more."""

    def size(self, pool: str) -> int | None:
        """Return how many machines a pool wants now; None where there is no such pool."""

    def settle(self, pool: str, patience: Patience) -> None:
        """Wait until a pool has the machines that it wants, all of them Ready."""

    def driver(self, name: str, *, wanted: bool) -> None:
        """Bring a storage driver to the cluster, or take it away."""


class Paper:
    """No hardware: clusters answer nowhere, pools are full at once."""

    def control_plane(self) -> Endpoint:
        """Return an address that nobody answers at (RFC 2606 keeps .invalid free)."""
        return Endpoint(address="https://paper.everstep.invalid", authority="cGFwZXI=")

    def put(self, pool: "Pool") -> None:
        """Do nothing."""

    def drop(self, pool: str) -> None:
        """Do nothing."""

    def size(self, pool: str) -> int | None:  # noqa: ARG002  part of the interface
        """Know of no pool."""
        return None

    def settle(self, pool: str, patience: Patience) -> None:
        """Be done at once."""

    def driver(self, name: str, *, wanted: bool) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Hardware:
    """The machines of one twin."""

    state: Path

    def control_plane(self) -> Endpoint:
        """Make the twin's control plane stand.

        Raises:
            EverstepError: it cannot stand here.
        """
        from twin.clouds.capacity import ensure_control_plane

        plane = ensure_control_plane(self.state)
        return Endpoint(address=plane.endpoint, authority=plane.authority)

    def put(self, pool: "Pool") -> None:
        """Write the pool where the daemon that makes machines finds it."""
        from twin.clouds.capacity import PoolStore

        PoolStore(self.state).put(pool)

    def drop(self, pool: str) -> None:
        """Forget the pool; the daemon takes its machines away."""
        from twin.clouds.capacity import PoolStore

        PoolStore(self.state).delete(pool)

    def size(self, pool: str) -> int | None:
        """Return the size that the autoscaler, or whoever came last, has set."""
        from twin.clouds.capacity import PoolStore

        found = PoolStore(self.state).get(pool)
        return found.desired if found else None

    def settle(self, pool: str, patience: Patience) -> None:
        """Wait in slices, so that an interrupt is heard.

        Raises:
            ProviderError: not in time, or interrupted.
        """
        from twin.clouds.capacity import wait

        patience.tell(f"waiting for the machines of {pool}")
        while True:
            try:
                wait(self.state, pool, SLICE_SECONDS)
            except EverstepError as error:
                why = str(error)
            else:
                return
            if patience.cancelled.is_set():
                raise ProviderError(f"interrupted while waiting for the machines of {pool}: {why}")
            if patience.over:
                raise ProviderError(why)

    def driver(self, name: str, *, wanted: bool) -> None:
        """Bring a storage driver, or take it away."""
        from twin.clouds.capacity import disable_driver, enable_driver

        (enable_driver if wanted else disable_driver)(self.state, name)


def machines(state: Path) -> Machines:
    """Return the hardware of a twin, or paper where $EVERSTEP_PAPER_CLOUD asks for it."""
    return Paper() if os.environ.get(PAPER) == "1" else Hardware(state)
