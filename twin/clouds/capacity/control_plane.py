"""The control plane that a cloud's cluster resource stands for, and the waiting that its providers do."""

import base64
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep.errors import EverstepError
from everstep.progress import Progress, Silent
from twin.clouds.capacity import daemon
from twin.clouds.capacity.pools import PoolStore
from twin.nodes import Twin, cluster, drivers, files, records
from twin.nodes.api import ApiError
from twin.nodes.bring_up import admin_api
from twin.nodes.cgroups import Tree
from twin.nodes.layout import Layout
from twin.nodes.machine import Machine
from twin.nodes.twin import answers

POLL_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """How a cluster is reached.

    Attributes:
        endpoint: the API server's address, such as `https://127.0.0.1:34567`.
        authority: the certificate of the cluster's own authority, PEM in base64, as kubeconfigs hold it.
        kubeconfig: an administrator's, on this machine.
    """

    endpoint: str
    authority: str
    kubeconfig: Path


def ensure_control_plane(state: Path, progress: Progress | None = None) -> ControlPlane:
    """Make the twin's control plane stand, and the daemon that makes machines of pools.

    Args:
        state: the twin's folder.
        progress: told of the seconds it takes.

    Raises:
        EverstepError: it cannot stand here.
    """
    twin = Twin(Layout(state))
    if not twin.status().api_ready:
        twin.up([], progress or Silent())
    daemon.start(state)
    settings = files.read_json(twin.layout.settings) or {}
    authority = (twin.layout.pki / "ca.crt").read_bytes()
    return ControlPlane(
        endpoint=f"https://127.0.0.1:{settings['port']}",
        authority=base64.b64encode(authority).decode(),
        kubeconfig=twin.kubeconfig,
    )


def wait(
    state: Path, pool: str, timeout_seconds: float = 120.0, progress: Progress | None = None
) -> tuple[str, ...]:
    """Wait until a pool has as many machines as it wants, all of them Ready; return their names.

    A pool that is gone has none: then this waits until its last machine is.

    Raises:
        EverstepError: not in time; where the cloud has no capacity it says so.
    """
    with (progress or Silent()).step(f"Waiting for the machines of {pool}"):
        twin, store = Twin(Layout(state)), PoolStore(state)
        deadline = time.monotonic() + timeout_seconds
        while True:
            daemon.start(state)  # at each look: it may be killed while we wait, or just be dying
            wanted = (found := store.get(pool)) and found.desired
            there, ready = _machines(twin, pool)
            if len(there) == len(ready) == (wanted or 0):
                return tuple(ready)
            if time.monotonic() > deadline:
                raise _late(state, pool, len(ready), wanted or 0, timeout_seconds)
            time.sleep(POLL_SECONDS)


def _machines(twin: Twin, pool: str) -> tuple[list[str], list[str]]:
    """Return the machines of a pool, and those of them that live and whose Nodes are Ready.

    Less than `Twin.status` asks, which is more than one should several times a second.
    """
    layout, tree = twin.layout, Tree.here()
    there = [Machine(layout, tree, r) for r in records.all_of(layout) if r.spec.group == pool]
    nodes: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(ApiError, OSError):
        nodes = cluster.nodes(admin_api(layout)) if there else {}
    ready = [m.name for m in there if m.process and cluster.is_ready(nodes.get(m.name, {}))]
    return [machine.name for machine in there], ready


def _late(state: Path, pool: str, ready: int, wanted: int, seconds: float) -> EverstepError:
    why = daemon.last_fault(state, pool)
    return EverstepError(
        f"After {seconds:.0f} s the pool {pool!r} has {ready} of {wanted} machines Ready."
        + (f" {why}" if why else ""),
        f"The log of who makes them: {Layout(state).log(daemon.NAME)}",
    )


def enable_driver(state: Path, driver: str) -> None:
    """Bring a storage driver (`fsx.csi.aws.com`, `blob.csi.azure.com`) to the cluster, as an add-on does.

    Raises:
        EverstepError: the API server does not take it.
    """
    layout = Layout(state)
    with answers():
        drivers.enable(layout, admin_api(layout), driver)


def disable_driver(state: Path, driver: str) -> None:
    """Take a storage driver from the cluster; of a cluster that is gone nothing needs to be taken.

    Raises:
        EverstepError: the API server refuses.
    """
    layout = Layout(state)
    if layout.settings.exists():
        with answers():
            drivers.disable(layout, admin_api(layout), driver)
