"""Machines as network namespaces on one bridge, whose links a test can cut, slow down and make lossy.

Each namespace exists as long as a process that holds it, and that process ends with this one. So a test
that is killed leaves no namespace, no link and no rule.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from cloudtwin.images.confine import KILLED_WITH_PARENT

from tests.waiting import wait_until

LATENCY = Path(__file__).with_name("latency.py")
SWITCH_ADDRESS = "10.77.0.1"
PREFIX_BITS = 24
MAX_INTERFACE_NAME = 15  # kernel limit of interface names
START_SECONDS = 100.0
CLONE_NEWNET = 0x40000000  # setns(2)
Result = TypeVar("Result")


class Namespace:
    """A network namespace that a process of this test holds."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            [*KILLED_WITH_PARENT, "unshare", "--net", "sleep", "infinity"]
        )
        wait_until(
            self._is_separate,
            "unshare --net has created a namespace",
            START_SECONDS,
            interval_seconds=0.01,
        )

    def _is_separate(self) -> bool:
        with contextlib.suppress(OSError):
            program = Path(f"/proc/{self._holder.pid}/comm").read_text().strip()
            return (
                program == "sleep"
                and Path(self.path).readlink() != Path("/proc/self/ns/net").readlink()
            )
        return False

    @property
    def process(self) -> int:
        """Process ID of the holder."""
        return self._holder.pid

    @property
    def path(self) -> str:
        """Path of the namespace, for nsenter(1) and setns(2)."""
        return f"/proc/{self._holder.pid}/ns/net"

    @property
    def enter_command(self) -> tuple[str, ...]:
        """The command prefix that runs another command inside."""
        return ("nsenter", f"--net={self.path}", "--")

    def run(self, *command: str, script: str | None = None) -> None:
        """Run a command inside; `script` is its standard input."""
        result = subprocess.run(
            [*self.enter_command, *command],
            check=False,
            input=script,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}{script or ''}"

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function in a thread of this process that has entered the namespace."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def enter_and_call() -> None:
            try:
                handle = os.open(self.path, os.O_RDONLY)
                try:
                    error_code = ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET)
                finally:
                    os.close(handle)
                if error_code:
                    raise OSError(ctypes.get_errno(), "setns failed")
                results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=enter_and_call, daemon=True)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def close(self) -> None:
        """End the holder; the kernel removes the namespace with its last process."""
        self._holder.kill()
        self._holder.wait()


class Network:
    """Machines on one bridge.

    Args:
        addresses: addresses of the machines, by name.
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = dict(addresses)
        self.switch = Namespace()
        self.machines = {name: Namespace() for name in addresses}
        self._cuts: dict[str, frozenset[tuple[str, str]]] = {}
        self._losses: dict[str, tuple[str, int]] = {}
        self._delay_processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self.switch.run("ip", "link", "add", "bridge", "type", "bridge")
        self.switch.run("ip", "address", "add", f"{SWITCH_ADDRESS}/{PREFIX_BITS}", "dev", "bridge")
        self.switch.run("ip", "link", "set", "bridge", "up")
        for name in addresses:
            self._connect(name)

    def _connect(self, name: str) -> None:
        machine, port = self.machines[name], f"port-{name}"[:MAX_INTERFACE_NAME]
        self.switch.run(
            *f"ip link add {port} type veth peer name eth0 netns {machine.process}".split()
        )
        self.switch.run("ip", "link", "set", port, "master", "bridge", "up")
        machine.run("ip", "link", "set", "lo", "up")
        address = f"{self.addresses[name]}/{PREFIX_BITS}"
        machine.run("ip", "address", "add", address, "dev", "eth0")
        machine.run("ip", "link", "set", "eth0", "up")

    def cut(self, fault: str, pairs: Collection[tuple[str, str]]) -> None:
        """Drop all packets from the first to the second machine of each pair, until this fault is healed."""
        with self._lock:
            self._cuts[fault] = frozenset(pairs)
            self._apply(sorted({receiver for _, receiver in pairs}))

    def drop_packets(self, fault: str, name: str, percent: int) -> None:
        """Drop a share of a machine's packets in both directions, until this fault is healed."""
        with self._lock:
            self._losses[fault] = (name, percent)
            self._apply([name])

    def heal(self, fault: str) -> None:
        """Stop dropping the packets of a fault."""
        with self._lock:
            receivers = {receiver for _, receiver in self._cuts.pop(fault, ())}
            if loss := self._losses.pop(fault, None):
                receivers.add(loss[0])
            self._apply(sorted(receivers))

    def _apply(self, names: Sequence[str]) -> None:
        for name in names:
            self.machines[name].run("nft", "-f", "-", script=self._rules(name))

    def _rules(self, name: str) -> str:
        """Return the rules of one machine; nft replaces the previous rules in one transaction."""
        senders = sorted({a for cut in self._cuts.values() for a, b in cut if b == name})
        drops = [f"ip saddr {self.addresses[sender]} drop" for sender in senders]
        losses = [
            f"numgen random mod 100 < {percent} drop"
            for machine, percent in self._losses.values()
            if machine == name
        ]
        incoming, outgoing = "; ".join([*drops, *losses]), "; ".join(losses)
        return (
            "table inet chaos\ndelete table inet chaos\ntable inet chaos {\n"
            f"chain into {{ type filter hook input priority 0; {incoming}\n}}\n"
            f"chain out {{ type filter hook output priority 0; {outgoing}\n}}\n}}\n"
        )

    def limit_rate(self, name: str, kilobits: int) -> None:
        """Limit the rate at which a machine sends; packets that would wait for more than a second are dropped."""
        self.machines[name].run(
            *f"tc qdisc replace dev eth0 root tbf rate {kilobits}kbit burst 16kb latency 1s".split()
        )

    def remove_rate_limit(self, name: str) -> None:
        """Remove the limit."""
        self.machines[name].run("tc", "qdisc", "del", "dev", "eth0", "root")

    def delay(self, name: str, milliseconds: int) -> None:
        """Delay every packet that a machine sends."""
        arguments = ["-I", "-S", str(LATENCY), "eth0", str(milliseconds)]
        process = subprocess.Popen(
            [*KILLED_WITH_PARENT, *self.machines[name].enter_command, sys.executable, *arguments],
            stdout=subprocess.PIPE,
        )
        self._delay_processes[name] = process
        assert process.stdout is not None
        with process.stdout as output:
            assert output.readline() == b"ready\n", "packets cannot be delayed"

    def remove_delay(self, name: str) -> None:
        """Remove the delay."""
        process = self._delay_processes.pop(name)
        process.terminate()
        process.wait()

    def close(self) -> None:
        """Remove all namespaces."""
        for name in list(self._delay_processes):
            self.remove_delay(name)
        for namespace in (*self.machines.values(), self.switch):
            namespace.close()
