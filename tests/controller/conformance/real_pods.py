"""Real kubelets on the machines of a twin, with real processes.

The class has the methods of `fake_kubelet.py`, so the same test functions run on both. A worker is a
process that reads its exit code from a named pipe; it can be killed, evicted for its use of the disk, or
lost together with its machine.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from cloudtwin.nodes import Power, Twin
from kubernetes import client
from kubernetes.stream import stream

from everstep.cli.twin_settings import gpu_machine, system_machine
from everstep.progress import Silent
from tests.controller.conformance.fake_kubelet import SIGTERM_CODE, FakeKubelet, accepts_workers
from tests.waiting import wait_until

MACHINES = ("machine-0", "machine-1", "machine-2")
IMAGE = "localhost/everstep/controller:local"  # the smallest local image with Python
PLACEHOLDER_IMAGES = frozenset({"localhost/everstep/none:local", "x"})
"""Images in the pod specs of tests; `adapt_pod` replaces them."""

SIGKILL_CODE = 128 + signal.SIGKILL
SCRATCH_MIB = 8
EXEC_SECONDS = 100
WAIT_FOR_WORKER = "until [ -p /tmp/end ]; do sleep 0.1; done"
"""Shell command that waits in a container for its worker, which creates this pipe after its other files."""

BOOT_SECONDS = 300.0

WORKER = """
import os, signal
def on_sigterm(*_):
    with open("/tmp/sigterm-code") as file:
        os._exit(int(file.read()))
with open("/tmp/sigterm-code", "w") as file:
    file.write("143")
signal.signal(signal.SIGTERM, on_sigterm)
os.mkfifo("/tmp/end")
with open("/tmp/end") as fifo:
    code = int(fifo.read())
if code > 128:
    child = os.fork()
    if child == 0:
        signal.signal(code - 128, signal.SIG_DFL)
        os.kill(os.getpid(), code - 128)
        signal.pause()
    _, status = os.waitpid(child, 0)
    code = 128 + os.WTERMSIG(status)
os._exit(code)
"""
"""A process that exits with the given code; for 128 + n, it kills its child with signal n, as under a shell."""


def adapt_pod(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's spec in which containers with a placeholder image run a worker."""
    containers = [_adapt_container(container) for container in spec.get("containers", ())]
    return {**spec, "containers": containers} if containers else spec


def _adapt_container(container: dict[str, Any]) -> dict[str, Any]:
    if container.get("image") not in PLACEHOLDER_IMAGES:
        return container
    limits = {"ephemeral-storage": f"{SCRATCH_MIB}Mi"}  # exceeding it causes an eviction
    command = ["python3", "-c", WORKER]
    return {**container, "image": IMAGE, "command": command, "resources": {"limits": limits}}


class RealPods:
    """Real machines, and operations on them.

    Attributes:
        workers: names of the nodes for workers.
    """

    workers = MACHINES

    def __init__(self, twin: Twin, api: client.ApiClient, namespace: str) -> None:
        self.twin, self.namespace = twin, namespace
        self.core: Any = client.CoreV1Api(api)  # the stubs make every field optional
        self._sigterm_exit_code = SIGTERM_CODE

    def start(self) -> None:
        specs = [system_machine(name) for name in MACHINES]
        if os.environ.get("EVERSTEP_CONFORMANCE_IMAGE"):
            specs.append(gpu_machine("controller-0", gpus=0))  # tainted: it accepts no worker
        self.twin.up(specs, Silent())

    def stop(self) -> None:
        """Do nothing: the machines are removed with their twin."""

    @property
    def sigterm_exit_code(self) -> int:
        """Exit code of a running worker on SIGTERM."""
        return self._sigterm_exit_code

    @sigterm_exit_code.setter
    def sigterm_exit_code(self, code: int) -> None:
        self._sigterm_exit_code = code
        # The pod of a controller under test has no container of this name.
        workers = self.core.list_namespaced_pod(self.namespace, label_selector="job-name")
        for pod in workers.items:
            if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None:
                self._exec(pod.metadata.name, f"{WAIT_FOR_WORKER}; echo {code} > /tmp/sigterm-code")

    def end(self, pod: str, code: int) -> None:
        """Terminate a worker's process with an exit code; 137 kills it."""
        if code == SIGKILL_CODE:
            os.kill(self._process_id(pod), signal.SIGKILL)
        else:
            self._exec(pod, f"{WAIT_FOR_WORKER}; echo {code} > /tmp/end")

    def evict(self, pod: str) -> None:
        """Make a worker exceed its disk limit, so that its kubelet evicts it."""
        self._exec(pod, f"head -c {4 * SCRATCH_MIB}M /dev/zero > /tmp/too-much")

    def cordon(self, *, on: bool) -> None:
        for name in MACHINES:
            self.core.patch_node(name, {"spec": {"unschedulable": on}})

    def lose(self, name: str) -> None:
        """Remove a machine and its Node, as a cloud does; its pods are removed later."""
        self.twin.vanish(name)
        try:
            self.core.delete_node(name)
        except client.ApiException as error:
            if error.status != 404:  # the cloud controller of the twin has deleted it already
                raise

    def freeze(self, name: str) -> None:
        """Freeze a machine."""
        self.twin.freeze(name)

    def boot(self, name: str) -> None:
        """Boot a machine again, regardless of its state, and wait until workers can run on it."""
        status = {machine.spec.name: machine for machine in self.twin.status().machines}
        if status[name].power is not Power.GONE:
            self.twin.vanish(name)
        self.twin.return_node(name)
        wait_until(
            lambda: self._accepts_workers(name),
            f"{name} accepts pods after its boot",
            BOOT_SECONDS,
            interval_seconds=0.2,
        )

    def _accepts_workers(self, name: str) -> bool:
        """Return True if a node exists, is ready and accepts workers."""
        try:
            node = self.core.read_node(name)
        except client.ApiException as error:
            if error.status != 404:
                raise
            return False
        conditions = {condition.type: condition.status for condition in node.status.conditions}
        return conditions.get("Ready") == "True" and accepts_workers(node)

    def read(self, pod: str, path: str) -> str:
        """Return a file's text from a worker's container, stripped; empty if the file is missing."""
        return self._exec(pod, f"cat {path} 2>/dev/null || true").strip()

    def _exec(self, pod: str, script: str) -> str:
        """Run a script in a worker's container and return its output."""
        connection = stream(
            self.core.connect_get_namespaced_pod_exec,
            pod,
            self.namespace,
            container="elasticjob-worker",
            command=["sh", "-c", script],
            stdout=True,
            stderr=True,
            stdin=False,
            tty=False,
            _preload_content=False,  # the client would leave it open otherwise
        )
        try:
            connection.run_forever(timeout=EXEC_SECONDS)
            return str(connection.read_stdout(timeout=0)) if connection.peek_stdout() else ""
        finally:
            connection.sock.shutdown()  # close() leaves the socket of an ended connection open

    def _process_id(self, pod: str) -> int:
        """Return the id, on the host, of the process that a pod's container runs."""
        uid = self.core.read_namespaced_pod(pod, self.namespace).metadata.uid

        def find() -> int | None:
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    is_of_pod = uid in (folder / "cgroup").read_text()
                    if is_of_pod and b"sigterm-code" in (folder / "cmdline").read_bytes():
                        return int(folder.name)
            return None

        return wait_until(find, f"a process of {pod} runs on this host", 100)


Kubelet = FakeKubelet | RealPods
"""The two kinds of kubelets that tests can run on."""
