"""Makes a twin stand, from nothing or from whatever of it is left."""

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from everstep.errors import EverstepError
from everstep.progress import Progress, Step
from twin.images import ImageStore
from twin.nodes import (
    addons,
    cluster,
    components,
    control_plane,
    files,
    machine_images,
    processes,
    records,
    tools,
)
from twin.nodes.api import Api, ApiError
from twin.nodes.cgroups import Tree
from twin.nodes.components import KEEPER
from twin.nodes.host import require_abilities
from twin.nodes.layout import Layout
from twin.nodes.machine import Machine
from twin.nodes.model import MachineSpec, Power
from twin.nodes.processes import Process
from twin.nodes.records import MachineRecord

KEEPER_SECONDS = 30.0  # here it takes 0.3
READY_SECONDS = 60.0  # of the API server; here it takes 4
STRAY_SECONDS = 5.0
NODE_SECONDS = 60.0  # of the slowest machine; here it takes 5
LOG_LINES = 8
POLL_SECONDS = 0.1


def check(layout: Layout, machines: Sequence[MachineSpec]) -> None:
    """Look whether it can be done at all, before anything is written.

    Raises:
        EverstepError: the host lacks something, or these machines cannot be had.
    """
    require_abilities()
    records.refuse_contradictions(layout, machines)


def bring_up(
    layout: Layout,
    tree: Tree,
    machines: Sequence[MachineSpec],
    images: Callable[[Progress], ImageStore],
    progress: Progress,
) -> None:
    """Start what does not run, machines that have gone included. The caller has checked, and holds the lock.

    Raises:
        EverstepError: a part does not come to life; the rest is left standing.
    """
    programs = tools.control_plane_tools(progress)
    if machines or records.all_of(layout):
        # Before anything runs: building may take minutes, in which a half-made twin helps nobody.
        programs |= tools.machine_tools(progress)
        store = images(progress)
    prepare_folder(layout)
    control_plane.write_certificates(layout)
    with progress.step("Starting the control plane") as step:
        start_control_plane(layout, tree, programs)
        wait_ready(layout, step)
    if machines or records.all_of(layout):
        machine_images.keep(store, layout)
        wanted = records.assign_slots(layout, machines, programs, store.key)
        start_machines(layout, tree, wanted, progress)
        _tell_of_older_images(layout, store.key, progress)


def _tell_of_older_images(layout: Layout, key: str, progress: Progress) -> None:
    """Say which machines run on with images that have since been built anew: pods there run older code."""
    if older := [record.spec.name for record in records.all_of(layout) if record.images != key]:
        with progress.step(f"Keeping the older images of {', '.join(older)}") as step:
            step.note(
                "built anew since; `vanish` and `return` bring a machine up to date, or `down` and `up` all"
            )


def start_machines(
    layout: Layout,
    tree: Tree,
    wanted: Sequence[MachineRecord],
    progress: Progress,
) -> None:
    """Boot those that do not run, all at once, and wait until every Node is as it should be.

    Raises:
        EverstepError: a machine did not start, or its Node is not Ready in time.
    """
    machines = [Machine(layout, tree, record) for record in wanted]
    names = ", ".join(machine.name for machine in machines)
    with progress.step(f"Starting the machines {names}") as step:
        step.note("booting")
        boot_machines(layout, machines)
        wait_nodes_ready(admin_api(layout), machines, step)


def boot_machines(layout: Layout, machines: Sequence[Machine]) -> None:
    """Boot those that do not run, all at once; their Nodes come seconds later.

    Raises:
        EverstepError: a machine did not start.
    """
    api = admin_api(layout)
    with ThreadPoolExecutor(max_workers=len(machines)) as pool:
        list(pool.map(partial(_revive, api=api), machines))
    addons.apply(layout, api)


def _revive(machine: Machine, api: Api) -> None:
    """Make a machine run and be connected, whatever became of it."""
    if machine.power is Power.GONE:
        cluster.forget(api, machine.name)
        machine.boot()
        return
    if machine.power is Power.FROZEN:
        machine.freeze(frozen=False)
    if not machine.connected:
        machine.connect(connected=True)


def wait_nodes_ready(api: Api, machines: Sequence[Machine], step: Step) -> None:
    """Wait until each Node is Ready and offers its GPUs.

    Raises:
        EverstepError: one is not in time; it names the logs.
    """
    deadline, waiting, names = time.monotonic() + NODE_SECONDS, list(machines), ""
    while True:
        known = cluster.nodes(api)
        waiting = [m for m in waiting if not cluster.offers(known.get(m.name, {}), m.record.spec)]
        if not waiting:
            return
        before, names = names, ", ".join(machine.name for machine in waiting)
        if names != before:
            step.note(f"waiting for {names}")
        if time.monotonic() > deadline:
            logs = "\n".join(f"  {machine.folder.logs}" for machine in waiting)
            raise EverstepError(
                f"Not Ready after {NODE_SECONDS:.0f} s: {names}.", f"Their logs are in:\n{logs}"
            )
        time.sleep(POLL_SECONDS)


def prepare_folder(layout: Layout) -> None:
    """Make the twin's folders; the shared one is open to every user of every pod, as a network share is."""
    layout.state.mkdir(parents=True, exist_ok=True)
    layout.shared.mkdir(exist_ok=True)
    layout.shared.chmod(0o1777)
    layout.events.touch()
    layout.control_plane.mkdir(exist_ok=True, mode=0o700)
    layout.machines.mkdir(exist_ok=True)


def start_control_plane(layout: Layout, tree: Tree, programs: dict[str, Path]) -> None:
    """Start the keeper and the four programs, those that do not run."""
    tree.create(layout.control_plane_cgroup)
    _end_strays(layout, tree)
    if not components.running(layout)[KEEPER]:
        _start_keeper(layout, tree)
    port = _settings(layout)["port"]
    server = f"https://127.0.0.1:{port}"
    admin = control_plane.load_pair(layout, "admin")
    control_plane.write_kubeconfig(layout, layout.kubeconfig, admin, server)
    control_plane.start_missing(layout, programs, tree)


def _end_strays(layout: Layout, tree: Tree) -> None:
    """End processes of the control plane that nobody remembers: their `up` was killed before it noted them."""
    recorded = (processes.load(layout.process(name)) for name in components.COMPONENTS)
    known = {process.pid for process in recorded if process and process.alive}
    for pid in tree.processes(layout.control_plane_cgroup) - known:
        if stray := Process.of(pid):
            stray.kill()
            stray.wait_gone(STRAY_SECONDS)


def admin_api(layout: Layout) -> Api:
    """Return the way to the API server from the host."""
    return Api(layout.pki, "admin", "127.0.0.1", int(_settings(layout)["port"]))


def wait_ready(layout: Layout, step: Step) -> None:
    """Wait for the API server.

    Raises:
        EverstepError: a program ended, or the server is not ready in time.
    """
    step.note("waiting for the API server")
    api, deadline = admin_api(layout), time.monotonic() + READY_SECONDS
    while not api.ready():
        dead = [name for name, runs in components.running(layout).items() if not runs]
        if dead or time.monotonic() > deadline:
            raise _not_ready(layout, dead)
        time.sleep(POLL_SECONDS)
    # The server is ready some time before the controller manager has given the first namespace its account,
    # and until then every pod is refused.
    if not processes.wait_until(partial(_has_default_account, api), READY_SECONDS):
        raise _not_ready(layout, [components.CONTROLLER_MANAGER])


def _has_default_account(api: Api) -> bool:
    try:
        api.get("/api/v1/namespaces/default/serviceaccounts/default")
    except (ApiError, OSError):
        return False
    return True


def _start_keeper(layout: Layout, tree: Tree) -> None:
    before = processes.load(layout.process(KEEPER))
    command = [sys.executable, "-m", "twin.nodes.keeper", str(layout.state)]
    enclosed = [*tree.enclosing(layout.control_plane_cgroup), *command]
    process = processes.start(enclosed, layout.log(KEEPER))

    def reported() -> bool:
        current = processes.load(layout.process(KEEPER))
        return current is not None and current != before

    if not processes.wait_until(lambda: reported() or not process.alive, KEEPER_SECONDS):
        process.kill()
    if not process.alive:
        raise _not_ready(layout, [KEEPER])


def _settings(layout: Layout) -> dict[str, int]:
    return files.read_json(layout.settings) or {}


def _not_ready(layout: Layout, dead: Sequence[str]) -> EverstepError:
    if not dead:
        what = f"The API server was not ready after {READY_SECONDS:.0f} s."
        return EverstepError(what, f"Its log: {layout.log(components.API_SERVER)}")
    logs = "\n".join(_tail(layout.log(name)) for name in dead)
    return EverstepError(
        f"The control plane's {', '.join(dead)} ended while starting. Its last words:\n{logs}",
        f"The whole log is in {layout.control_plane}. Running `up` again starts it anew.",
    )


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(f"  {line}" for line in lines[-LOG_LINES:])
