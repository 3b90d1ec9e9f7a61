"""The processes beside the switch: their names, and which of them live.

Apart from what starts them, since the keeper and the machines ask this too and should not load all of that.
"""

from twin.nodes import processes
from twin.nodes.layout import Layout
from twin.nodes.processes import Process

KEEPER = "keeper"
ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
PROGRAMS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
COMPONENTS = (KEEPER, *PROGRAMS)
COMPANION = "capacity"  # whoever starts and ends machines by itself; a twin stands without it


def holder(layout: Layout) -> Process | None:
    """Return a living process that stands in the twin's network, the keeper first."""
    known = (processes.load(layout.process(component)) for component in COMPONENTS)
    return next((process for process in known if process and process.alive), None)


def running(layout: Layout) -> dict[str, bool]:
    """Say of each part whether it runs."""
    known = {component: processes.load(layout.process(component)) for component in COMPONENTS}
    return {component: bool(process and process.alive) for component, process in known.items()}
