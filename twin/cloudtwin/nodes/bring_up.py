"""Start of a new twin, or of the missing parts of an existing one."""

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from cloudtwin import files, owned_folders
from cloudtwin.errors import TwinError
from cloudtwin.images import ImageStore
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes import node_objects, records
from cloudtwin.nodes.control_plane import (
    certificates,
    components,
    dns,
    kubelet_certificates,
    startup,
)
from cloudtwin.nodes.control_plane.components import NETWORK_HOLDER
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.linux.processes import Process
from cloudtwin.nodes.linux.requirements import require_host_support
from cloudtwin.nodes.machine import image_copies
from cloudtwin.nodes.machine.machine import Machine
from cloudtwin.nodes.model import MachineSpec, Power
from cloudtwin.nodes.records import MACHINE_PROGRAMS, MachineRecord
from cloudtwin.progress import Progress, Step
from cloudtwin.toolchain import ensure_packages, ensure_tools

# Limits for a busy host, which may be twenty times as slow; a program that ends is reported immediately.
NETWORK_HOLDER_SECONDS = 90.0  # typically 0.3
READY_SECONDS = 180.0  # timeout of the API server's start, which typically takes 4
STRAY_SECONDS = 60.0  # limit on a busy host; SIGKILL takes milliseconds
NODE_SECONDS = 180.0  # timeout of the slowest machine, which typically takes 5
LOG_LINES = 8
READY_POLL_SECONDS = 0.1


def check(layout: Layout, machines: Sequence[MachineSpec]) -> None:
    """Check the host and the machines before anything is written.

    Raises:
        TwinError: the host lacks a requirement, the folder has files of another origin, or a machine is invalid.
    """
    require_host_support()
    owned_folders.require_no_foreign_files(layout.state, may_have_data=True)
    records.check_machines(layout, machines)


def machine_tools(progress: Progress) -> dict[str, Path]:
    """Return the programs of a machine; build missing ones and install the Debian packages.

    Raises:
        TwinError: a build or an installation fails.
    """
    ensure_packages(progress)
    return ensure_tools(MACHINE_PROGRAMS, progress)


def bring_up(
    layout: Layout,
    cgroups: CgroupHierarchies,
    machines: Sequence[MachineSpec],
    images: Callable[[Progress], ImageStore],
    progress: Progress,
) -> None:
    """Start all components and machines that are not running. The caller must have called `check` and hold the lock.

    Raises:
        TwinError: a component or machine does not start; the others are left running.
    """
    programs = ensure_tools(components.PROGRAMS, progress)
    if machines or records.all_of(layout):
        # Before anything starts: a build can take minutes, and a partial twin is useless meanwhile.
        programs |= machine_tools(progress)
        store = images(progress)
    prepare_folder(layout)
    certificates.write(layout)
    with progress.step("Starting the control plane") as step:
        start_control_plane(layout, cgroups, programs)
        wait_ready(layout, step)
        kubelet_certificates.allow(admin_client(layout))
    if machines or records.all_of(layout):
        image_copies.keep(store, layout)
        assigned = records.assign_slots(layout, machines, programs, store.key)
        start_machines(layout, cgroups, assigned, progress)
        _report_older_images(layout, store.key, progress)


def _report_older_images(layout: Layout, key: str, progress: Progress) -> None:
    """Report the machines whose images have been rebuilt since they booted: their pods run older code."""
    if machines := [record.spec.name for record in records.all_of(layout) if record.images != key]:
        with progress.step(f"Keeping the older images of {', '.join(machines)}") as step:
            step.note(
                "the images have been rebuilt; `vanish` and `up` update a machine, `down` and `up` all machines"
            )


def start_machines(
    layout: Layout,
    cgroups: CgroupHierarchies,
    requested: Sequence[MachineRecord],
    progress: Progress,
) -> None:
    """Boot, thaw or connect machines as necessary, in parallel, and wait until every Node is usable.

    Raises:
        TwinError: a machine did not start, or its Node is not Ready in time.
    """
    machines = [Machine(layout, cgroups, record) for record in requested]
    names = ", ".join(machine.name for machine in machines)
    with progress.step(f"Starting the machines {names}") as step:
        step.note("booting")
        boot_machines(layout, machines)
        wait_nodes_ready(admin_client(layout), machines, step)


def boot_machines(layout: Layout, machines: Sequence[Machine]) -> None:
    """Boot, thaw or connect machines as necessary, in parallel, without waiting for their Nodes.

    Raises:
        TwinError: a machine did not start.
    """
    client = admin_client(layout)
    with ThreadPoolExecutor(max_workers=len(machines)) as pool:
        list(pool.map(partial(_make_usable, client=client), machines))
    dns.apply(layout, client)


def _make_usable(machine: Machine, client: KubernetesClient) -> None:
    """Start, thaw or connect a machine, depending on its state."""
    if machine.power is Power.GONE:
        node_objects.delete(client, machine.name)
        machine.boot()
        return
    if machine.power is Power.FROZEN:
        machine.freeze(frozen=False)
    if not machine.connected:
        machine.connect(connected=True)


def wait_nodes_ready(client: KubernetesClient, machines: Sequence[Machine], step: Step) -> None:
    """Wait until each Node is Ready and offers its GPUs.

    Raises:
        TwinError: a machine ended, or a Node is not Ready in time; the message names the logs.
    """
    deadline, waiting_machines, names = time.monotonic() + NODE_SECONDS, list(machines), ""
    while True:
        node_by_name = node_objects.nodes(client)
        waiting_machines = [
            m
            for m in waiting_machines
            if not node_objects.is_usable(node_by_name.get(m.name, {}), m.record.spec)
        ]
        if not waiting_machines:
            return
        if ended := [machine for machine in waiting_machines if machine.process is None]:
            raise _ended_error(ended[0])
        previous_names, names = names, ", ".join(machine.name for machine in waiting_machines)
        if names != previous_names:
            step.note(f"waiting for {names}")
        if time.monotonic() > deadline:
            logs = "\n".join(f"  {machine.folder.logs}" for machine in waiting_machines)
            raise TwinError(
                f"Not Ready after {NODE_SECONDS:.0f} s: {names}.", f"Their logs are in:\n{logs}"
            )
        time.sleep(READY_POLL_SECONDS)


def _ended_error(machine: Machine) -> TwinError:
    return TwinError(
        f"The machine {machine.name!r} ended while starting. Last lines of its log:\n{_tail(machine.folder.log)}",
        f"The whole log is {machine.folder.log}. Run `up` again to boot it.",
    )


def prepare_folder(layout: Layout) -> None:
    """Create the twin's folders; every user of every pod can write to the shared one, as to a network share."""
    owned_folders.claim(layout.state, may_have_data=True)
    layout.shared.mkdir(exist_ok=True)
    layout.shared.chmod(0o1777)
    layout.events.touch()
    layout.control_plane.mkdir(exist_ok=True, mode=0o700)
    layout.machines.mkdir(exist_ok=True)


def start_control_plane(
    layout: Layout, cgroups: CgroupHierarchies, programs: dict[str, Path]
) -> None:
    """Start the network holder and each of the four programs that is not running."""
    cgroups.create(layout.control_plane_cgroup)
    _end_strays(layout, cgroups)
    if not components.running_components(layout)[NETWORK_HOLDER]:
        _start_network_holder(layout, cgroups)
    server = f"https://127.0.0.1:{_settings(layout)['port']}"
    admin = certificates.load(layout, "admin")
    certificates.write_kubeconfig(layout, layout.kubeconfig, admin, server)
    startup.start_missing(layout, programs, cgroups)


def _end_strays(layout: Layout, cgroups: CgroupHierarchies) -> None:
    """End processes of the control plane without a record: their `up` was killed before it wrote the record."""
    # Without a running component, the registry is in a network namespace that nothing can reach: it ends, too.
    paths = layout.control_plane.glob("*.json") if components.process_in_network(layout) else ()
    recorded_processes = (processes.load(path) for path in paths)
    recorded_pids = {process.pid for process in recorded_processes if process and process.alive}
    for pid in cgroups.processes(layout.control_plane_cgroup) - recorded_pids:
        if stray := Process.of(pid):
            stray.kill()
            stray.wait_gone(STRAY_SECONDS)


def admin_client(layout: Layout) -> KubernetesClient:
    """Return a client with an administrator's permissions, for use on the host."""
    return KubernetesClient(layout.pki, "admin", "127.0.0.1", int(_settings(layout)["port"]))


def wait_ready(layout: Layout, step: Step) -> None:
    """Wait for the API server.

    Raises:
        TwinError: a program ended, or the server or its default service account is not ready in time.
    """
    step.note("waiting for the API server")
    client, deadline = admin_client(layout), time.monotonic() + READY_SECONDS
    while not client.ready():
        dead_components = [
            name for name, runs in components.running_components(layout).items() if not runs
        ]
        if dead_components or time.monotonic() > deadline:
            raise _not_ready_error(layout, dead_components)
        time.sleep(READY_POLL_SECONDS)
    # The controller manager creates the default service account some time later, and until then the API
    # server refuses every pod.
    if not processes.wait_until(partial(_has_default_account, client), READY_SECONDS):
        raise _not_ready_error(layout, [components.CONTROLLER_MANAGER])


def _has_default_account(client: KubernetesClient) -> bool:
    try:
        client.get("/api/v1/namespaces/default/serviceaccounts/default")
    except (ApiError, OSError):
        return False
    return True


def _start_network_holder(layout: Layout, cgroups: CgroupHierarchies) -> None:
    previous = processes.load(layout.process(NETWORK_HOLDER))
    command = [
        sys.executable,
        "-m",
        "cloudtwin.nodes.control_plane.network_holder",
        str(layout.state),
    ]
    command_in_cgroup = [*cgroups.command_prefix(layout.control_plane_cgroup), *command]
    process = processes.start(command_in_cgroup, layout.log(NETWORK_HOLDER))

    def has_reported() -> bool:
        current = processes.load(layout.process(NETWORK_HOLDER))
        return current is not None and current != previous

    in_time = processes.wait_until(
        lambda: has_reported() or not process.alive, NETWORK_HOLDER_SECONDS
    )
    if not in_time or not process.alive:
        process.kill()
        raise _not_ready_error(layout, [NETWORK_HOLDER])


def _settings(layout: Layout) -> dict[str, int]:
    return files.read_json(layout.settings) or {}


def _not_ready_error(layout: Layout, failed_components: Sequence[str]) -> TwinError:
    if not failed_components:
        problem = f"The API server was not ready after {READY_SECONDS:.0f} s."
        return TwinError(problem, f"Its log: {layout.log(components.API_SERVER)}")
    logs = "\n".join(_tail(layout.log(name)) for name in failed_components)
    return TwinError(
        f"The control plane's {', '.join(failed_components)} did not become ready. Last lines of the log:\n{logs}",
        f"The whole log is in {layout.control_plane}. Run `up` again to start it.",
    )


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(f"  {line}" for line in lines[-LOG_LINES:])
