"""Names of the control plane's processes, and which of them run.

A separate module, since the network holder and the machines use it and should not import the code that starts the
processes.
"""

from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.linux.processes import Process

NETWORK_HOLDER = "network-holder"
"""The process that holds the twin's network namespace, and forwards connections to the API server."""
ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
PROGRAMS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
COMPONENTS = (NETWORK_HOLDER, *PROGRAMS)
CAPACITY = "capacity"  # the optional daemon that starts and stops machines


def process_in_network(layout: Layout) -> Process | None:
    """Return a running process in the twin's network namespace, the network holder first."""
    recorded_processes = (processes.load(layout.process(component)) for component in COMPONENTS)
    return next((process for process in recorded_processes if process and process.alive), None)


def running_components(layout: Layout) -> dict[str, bool]:
    """Return for each component whether it runs."""
    process_by_component = {
        component: processes.load(layout.process(component)) for component in COMPONENTS
    }
    return {
        component: bool(process and process.alive)
        for component, process in process_by_component.items()
    }
