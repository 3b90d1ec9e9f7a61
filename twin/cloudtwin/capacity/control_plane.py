"""Operations that providers call: start a control plane, wait for the machines of a pool, install a storage driver."""

import base64
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtwin import files
from cloudtwin.capacity import daemon
from cloudtwin.capacity.pod_identity import PodIdentity, PodIdentityStore
from cloudtwin.capacity.pools import PoolStore
from cloudtwin.errors import TwinError
from cloudtwin.kubernetes_api import ApiError
from cloudtwin.nodes import Twin, node_objects, records
from cloudtwin.nodes.bring_up import admin_client
from cloudtwin.nodes.control_plane import registry
from cloudtwin.nodes.kubelet import csi_drivers
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.machine.machine import Machine
from cloudtwin.nodes.options import TwinOptions
from cloudtwin.nodes.records import MachineRecord
from cloudtwin.nodes.twin import api_errors
from cloudtwin.progress import Progress, Silent

POOL_POLL_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """The endpoint of a cluster and the credentials for it.

    Attributes:
        endpoint: the API server's address, such as `https://127.0.0.1:34567`.
        ca: certificate of the cluster's CA, PEM in base64, as in a kubeconfig.
        kubeconfig: path of an administrator's kubeconfig.
    """

    endpoint: str
    ca: str
    kubeconfig: Path


def ensure_control_plane(
    state: Path, progress: Progress | None = None, options: TwinOptions | None = None
) -> ControlPlane:
    """Start the twin's control plane and the daemon, unless they are running.

    Args:
        state: the twin's folder.
        progress: receiver of the steps.
        options: the caller's additions to the twin; by default the stored ones.

    Raises:
        TwinError: the control plane cannot run here.
    """
    twin = Twin(Layout(state), options)
    if not twin.status().api_ready:
        twin.up([], progress or Silent())
    registry.ensure(twin.layout, CgroupHierarchies.detect(), progress or Silent())
    daemon.start(state)
    settings = files.read_json(twin.layout.settings) or {}
    ca = (twin.layout.pki / "ca.crt").read_bytes()
    return ControlPlane(
        endpoint=f"https://127.0.0.1:{settings['port']}",
        ca=base64.b64encode(ca).decode(),
        kubeconfig=twin.kubeconfig,
    )


def wait(
    state: Path, pool: str, timeout_seconds: float = 120.0, progress: Progress | None = None
) -> tuple[str, ...]:
    """Wait until a pool has its desired size and release and all machines are Ready. Return their names.

    The pool is given by its key. For a deleted pool, wait until its last machine has been removed.

    Raises:
        TwinError: the timeout passed; includes the reason if it is known.
    """
    with (progress or Silent()).step(f"Waiting for the machines of {pool}"):
        twin, store = Twin(Layout(state)), PoolStore(state)
        deadline = time.monotonic() + timeout_seconds
        while True:
            daemon.start(state)  # in each iteration: it may end during the wait
            stored_pool = store.get(pool)
            desired, release = (
                (stored_pool.desired_size, stored_pool.release) if stored_pool else (0, "")
            )
            pool_records, ready_names = _machines(twin, pool)
            is_current = all(record.spec.release == release for record in pool_records)
            if is_current and len(pool_records) == len(ready_names) == desired:
                return tuple(ready_names)
            if time.monotonic() > deadline:
                stale = sum(record.spec.release != release for record in pool_records)
                reached = _reached(len(pool_records), len(ready_names), stale, desired)
                raise _timeout_error(state, pool, reached, timeout_seconds)
            time.sleep(POOL_POLL_SECONDS)


def _machines(twin: Twin, pool: str) -> tuple[list[MachineRecord], list[str]]:
    """Return the machines of a pool, and the names of the running machines with a Ready Node.

    It is cheaper than `Twin.status`, because `wait` calls it several times per second.
    """
    layout, cgroups = twin.layout, CgroupHierarchies.detect()
    pool_machines = [
        Machine(layout, cgroups, r) for r in records.all_of(layout) if r.spec.pool == pool
    ]
    nodes: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(ApiError, OSError):
        nodes = node_objects.nodes(admin_client(layout)) if pool_machines else {}
    ready_names = [
        m.name for m in pool_machines if m.process and node_objects.is_ready(nodes.get(m.name, {}))
    ]
    return [machine.record for machine in pool_machines], ready_names


def _reached(machines: int, ready: int, stale: int, desired: int) -> str:
    """Return how far a pool is from its desired state, as the end of a sentence.

    Args:
        machines: number of its machines.
        ready: number of its machines that run and whose Node is Ready.
        stale: number of its machines with another release.
        desired: its desired size; 0 for a deleted pool.
    """
    if machines > desired:
        noun = "machine" if machines == 1 else "machines"
        return f"still has {machines} {noun}, {machines - desired} more than desired"
    text = f"has {ready} of {desired} machines Ready"
    return f"{text}; {stale} of its machines with another release" if stale else text


def _timeout_error(state: Path, pool: str, reached: str, seconds: float) -> TwinError:
    reason = daemon.last_fault(state, pool)
    return TwinError(
        f"After {seconds:.0f} s the pool {pool!r} {reached}." + (f" {reason}" if reason else ""),
        f"The log of the daemon that starts and removes them: {Layout(state).log(daemon.NAME)}",
    )


def enable_driver(state: Path, driver: str) -> None:
    """Install a storage driver (`fsx.csi.aws.com`, `blob.csi.azure.com`), as an add-on does.

    Raises:
        TwinError: the API server refuses.
    """
    layout = Layout(state)
    with api_errors():
        csi_drivers.enable(layout, admin_client(layout), driver)


def disable_driver(state: Path, driver: str) -> None:
    """Remove a storage driver, if the cluster exists.

    Raises:
        TwinError: the API server refuses.
    """
    layout = Layout(state)
    if layout.settings.exists():
        with api_errors():
            csi_drivers.disable(layout, admin_client(layout), driver)


def associate_pod_identity(state: Path, namespace: str, account: str) -> None:
    """Store an association of EKS Pod Identity; the daemon makes it effective after a delay."""
    PodIdentityStore(state).put(PodIdentity(namespace, account))


def dissociate_pod_identity(state: Path, namespace: str, account: str) -> None:
    """Delete an association of EKS Pod Identity; new pods of the ServiceAccount get no variables any longer."""
    PodIdentityStore(state).delete(PodIdentity(namespace, account))
