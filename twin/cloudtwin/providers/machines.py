"""The machines of a cloud: its control plane, pools and storage drivers.

The providers use a small interface. Behind it is `cloudtwin.capacity`, or nothing: an offline cloud
records resources only, for previews and for tests that need no machine.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cloudtwin.errors import TwinError
from cloudtwin.providers.model import Endpoint
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.timeouts import Timeouts

if TYPE_CHECKING:
    from cloudtwin.capacity import Pool

OFFLINE = "CLOUDTWIN_OFFLINE"
SLICE_SECONDS = 2.0  # interval between two checks for an interrupt


class Machines(Protocol):
    """The machines that the providers create."""

    def control_plane(self) -> Endpoint:
        """Start the control plane and return its endpoint."""

    def put(self, pool: "Pool") -> None:
        """Create or change a pool of machines."""

    def delete(self, pool: str) -> None:
        """Delete a pool, given by its key."""

    def size(self, pool: str) -> int | None:
        """Return the desired size of a pool, given by its key; None if there is no such pool."""

    def wait(self, pool: str, timeouts: Timeouts) -> None:
        """Wait until a pool has its desired size and all its machines are Ready, or until a deleted pool has none."""

    def set_driver(self, name: str, *, enabled: bool) -> None:
        """Install a storage driver in the cluster, or remove it."""

    def set_pod_identity(self, namespace: str, account: str, *, enabled: bool) -> None:
        """Associate a ServiceAccount with a role, which the cluster notices later, or remove the association."""


class Offline:
    """No machines: a cluster has no reachable endpoint, and pools are complete immediately."""

    def control_plane(self) -> Endpoint:
        """Return an endpoint that is not reachable (RFC 2606 reserves .invalid)."""
        return Endpoint(address="https://cluster.cloudtwin.invalid", ca="b2ZmbGluZQ==")

    def put(self, pool: "Pool") -> None:
        """Do nothing."""

    def delete(self, pool: str) -> None:
        """Do nothing."""

    def size(self, pool: str) -> int | None:  # noqa: ARG002  part of the interface
        """Return None: there are no pools."""
        return None

    def wait(self, pool: str, timeouts: Timeouts) -> None:
        """Return immediately."""

    def set_driver(self, name: str, *, enabled: bool) -> None:
        """Do nothing."""

    def set_pod_identity(self, namespace: str, account: str, *, enabled: bool) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class TwinMachines:
    """The machines of one twin."""

    state: Path

    def control_plane(self) -> Endpoint:
        """Start the twin's control plane.

        Raises:
            TwinError: the control plane cannot run here.
        """
        from cloudtwin.capacity import ensure_control_plane

        control_plane = ensure_control_plane(self.state)
        return Endpoint(address=control_plane.endpoint, ca=control_plane.ca)

    def put(self, pool: "Pool") -> None:
        """Store the pool for the daemon that creates machines."""
        from cloudtwin.capacity import PoolStore

        PoolStore(self.state).put(pool)

    def delete(self, pool: str) -> None:
        """Delete the pool; the daemon removes its machines."""
        from cloudtwin.capacity import PoolStore

        PoolStore(self.state).delete(pool)

    def size(self, pool: str) -> int | None:
        """Return the size that was set last, by the program or by the autoscaler."""
        from cloudtwin.capacity import PoolStore

        stored_pool = PoolStore(self.state).get(pool)
        return stored_pool.desired_size if stored_pool else None

    def wait(self, pool: str, timeouts: Timeouts) -> None:
        """Wait in slices, so that an interrupt ends the wait.

        Raises:
            ProviderError: timeout or interrupt.
        """
        from cloudtwin.capacity import wait

        timeouts.report(f"waiting for the machines of {pool}")
        while True:
            try:
                wait(self.state, pool, SLICE_SECONDS)
            except TwinError as error:
                reason = str(error)
            else:
                return
            if timeouts.cancelled.is_set():
                raise ProviderError(
                    f"interrupted while waiting for the machines of {pool}: {reason}"
                )
            if timeouts.expired:
                raise ProviderError(reason)

    def set_driver(self, name: str, *, enabled: bool) -> None:
        """Install a storage driver, or remove it."""
        from cloudtwin.capacity import disable_driver, enable_driver

        (enable_driver if enabled else disable_driver)(self.state, name)

    def set_pod_identity(self, namespace: str, account: str, *, enabled: bool) -> None:
        """Store an association for the daemon, or delete it."""
        from cloudtwin.capacity import associate_pod_identity, dissociate_pod_identity

        change = associate_pod_identity if enabled else dissociate_pod_identity
        change(self.state, namespace, account)


def machines(state: Path) -> Machines:
    """Return the machines of a twin; an `Offline` object if $CLOUDTWIN_OFFLINE is 1."""
    return Offline() if os.environ.get(OFFLINE) == "1" else TwinMachines(state)
