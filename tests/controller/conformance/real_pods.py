"""The other way to play the kubelets: real ones, on the machines of a twin, with real processes.

It is asked for the same things as the stand-in (`fake_kubelet.py`), so the same test functions run
on both. A worker is a process that waits; it is told through its own file system what to end with,
killed from outside, evicted for what it wrote to its disk, and lost together with its machine.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

from kubernetes import client
from kubernetes.stream import stream

from everstep.progress import Silent
from twin.nodes import MachineSpec, Power, Role, Twin

MACHINES = ("machine-0", "machine-1", "machine-2")
IMAGE = "localhost/everstep/controller:local"  # the smallest of ours that has Python
UNUSED_IMAGES = frozenset({"localhost/everstep/none:local", "x"})
"""What the tests name where they mean any image at all."""

SIGTERM_CODE = 143
KILLED = 128 + signal.SIGKILL
SCRATCH_MIB = 8
EXEC_SECONDS = 30

WORKER = """
import os, signal
def asked_to_go(*_):
    with open("/tmp/on-request") as file:
        os._exit(int(file.read()))
with open("/tmp/on-request", "w") as file:
    file.write("143")
signal.signal(signal.SIGTERM, asked_to_go)
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
"""A process that ends as it is told; a signal ends its child, and it passes that on as a shell does."""


def dressed(spec: dict) -> dict:
    """Return a pod's spec in which containers that were to run anything at all run a worker."""
    containers = [_dressed(container) for container in spec.get("containers", ())]
    return {**spec, "containers": containers} if containers else spec


def _dressed(container: dict) -> dict:
    if container.get("image") not in UNUSED_IMAGES:
        return container
    limits = {"ephemeral-storage": f"{SCRATCH_MIB}Mi"}  # what it is evicted for exceeding
    command = ["python3", "-c", WORKER]
    return {**container, "image": IMAGE, "command": command, "resources": {"limits": limits}}


class RealPods:
    """Real machines, and what can happen on them."""

    def __init__(self, twin: Twin, api: client.ApiClient, namespace: str) -> None:
        self.twin, self.core, self.namespace = twin, client.CoreV1Api(api), namespace
        self._exit_on_request = SIGTERM_CODE

    def start(self) -> None:
        specs = [MachineSpec(name, Role.SYSTEM) for name in MACHINES]
        if os.environ.get("EVERSTEP_CONFORMANCE_IMAGE"):
            specs.append(MachineSpec("controller-0", Role.GPU, gpus=0))  # tainted: no worker goes
        self.twin.up(specs, Silent())

    def stop(self) -> None:
        """Nothing: the machines go with their twin."""

    @property
    def exit_on_request(self) -> int:
        """What a worker that runs exits with when it is asked to go."""
        return self._exit_on_request

    @exit_on_request.setter
    def exit_on_request(self, code: int) -> None:
        self._exit_on_request = code
        for pod in self.core.list_namespaced_pod(self.namespace).items:
            if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None:
                self._tell(pod.metadata.name, f"echo {code} > /tmp/on-request")

    def end(self, pod: str, code: int) -> None:
        """Let a worker's process end by itself; with 137 it is killed."""
        if code == KILLED:
            os.kill(self._first_process(pod), signal.SIGKILL)
        else:
            self._tell(pod, f"until [ -p /tmp/end ]; do sleep 0.1; done; echo {code} > /tmp/end")

    def evict(self, pod: str) -> None:
        """Let a worker write more to its disk than it may, for which its kubelet evicts it."""
        self._tell(pod, f"head -c {4 * SCRATCH_MIB}M /dev/zero > /tmp/too-much")

    def cordon(self, *, on: bool) -> None:
        for name in MACHINES:
            self.core.patch_node(name, {"spec": {"unschedulable": on}})

    def lose(self, name: str) -> None:
        """Let a machine vanish, and its Node with it, as a cloud does; its pods are forgotten later."""
        self.twin.vanish(name)
        try:
            self.core.delete_node(name)
        except client.ApiException as error:
            if error.status != 404:  # the twin's cloud was first
                raise

    def fall_silent(self, name: str) -> None:
        """Let a machine hang."""
        self.twin.freeze(name)

    def bring(self, name: str) -> None:
        """Boot a machine anew, whatever befell it."""
        status = {machine.spec.name: machine for machine in self.twin.status().machines}
        if status[name].power is not Power.GONE:
            self.twin.vanish(name)
        self.twin.come_back(name)

    def read(self, pod: str, path: str) -> str:
        """What stands in a file as a worker sees it; empty where it is not there."""
        return self._tell(pod, f"cat {path} 2>/dev/null || true").strip()

    def _tell(self, pod: str, script: str) -> str:
        """Run a script in a worker's container; what it prints."""
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
            _preload_content=False,  # or nobody closes it
        )
        try:
            connection.run_forever(timeout=EXEC_SECONDS)
            return str(connection.read_stdout(timeout=0)) if connection.peek_stdout() else ""
        finally:
            connection.sock.shutdown()  # close() leaves the socket of a connection that has ended

    def _first_process(self, pod: str) -> int:
        """The host's id of the process that a pod's container runs."""
        uid = self.core.read_namespaced_pod(pod, self.namespace).metadata.uid
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    of_pod = uid in (folder / "cgroup").read_text()
                    if of_pod and b"on-request" in (folder / "cmdline").read_bytes():
                        return int(folder.name)
            time.sleep(0.1)
        raise AssertionError(f"no process of {pod} runs on this host")
