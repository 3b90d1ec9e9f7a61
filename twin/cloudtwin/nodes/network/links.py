"""The twin's network: a switch with the control plane, and a link to every machine.

The switch is a bridge in an unnamed network namespace, which ends with the last process in it. A named namespace
would remain in the host's /run/netns.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.network import addressing
from cloudtwin.nodes.network.addressing import Address

BRIDGE = "switch"


def namespace_of(pid: int) -> Path:
    """Return the file of a process's network namespace."""
    return Path(f"/proc/{pid}/ns/net")


def build_switch() -> None:
    """Set up the switch in the network namespace of the calling process."""
    prefix = addressing.MACHINES_NETWORK.prefixlen
    _ip(
        [
            "link set lo up",
            f"link add {BRIDGE} mtu {addressing.MTU} type bridge",
            f"address add {addressing.CONTROL_PLANE}/{prefix} dev {BRIDGE}",
            f"link set {BRIDGE} up",
            *(f"route replace {route} onlink dev {BRIDGE}" for route in addressing.pod_routes()),
        ]
    )


def connect(switch_pid: int, machine_pid: int, address: Address) -> None:
    """Create the link between the switch and a machine; replace an existing one."""
    disconnect(switch_pid, address)
    # The links of a switch that was killed are removed only some time later.
    _delete_link(machine_pid, "eth0")
    far_end = f"peer name eth0 address {address.mac} mtu {addressing.MTU} netns {machine_pid}"
    _ip(
        [
            f"link add {address.port} mtu {addressing.MTU} type veth {far_end}",
            f"link set {address.port} master {BRIDGE} up",
        ],
        switch_pid,
    )
    prefix = addressing.MACHINES_NETWORK.prefixlen
    _ip(
        [
            "link set lo up",
            f"address replace {address.ip}/{prefix} dev eth0",
            "link set eth0 up",
            *(f"route replace {r} onlink dev eth0" for r in addressing.pod_routes(address.index)),
            # No default route: connections out of the twin fail immediately instead of hanging. The next hop of the
            # services does not serve them either: kube-proxy changes the destination before packets leave (DNAT).
            f"route replace {addressing.SERVICES_NETWORK} via {addressing.CONTROL_PLANE}",
        ],
        machine_pid,
    )


def add_metadata_address() -> None:
    """Add the address of a cloud's metadata service to the calling process's machine.

    The address is on the loopback interface: the machine's pods reach it, and it is not announced to the switch, so
    that every machine can have the same address.
    """
    _ip([f"address replace {addressing.METADATA}/32 dev lo"])


def reject_unknown_services() -> None:
    """Reject packets of the calling process's machine to services for which kube-proxy has no rules yet.

    Otherwise such packets are lost, and the sender hangs for half a minute, since conntrack keeps an
    entry without DNAT. A DNS server that starts before kube-proxy has set its rules sends such packets.
    """
    for chain in ("OUTPUT", "FORWARD"):
        services = ["--destination", str(addressing.SERVICES_NETWORK)]
        _run(["iptables", "--wait", "--append", chain, *services, "--jump", "REJECT"])


def disconnect(switch_pid: int, address: Address) -> None:
    """Remove the link, if it exists; both ends are gone when this returns."""
    _delete_link(switch_pid, address.port)


def _delete_link(pid: int, name: str) -> None:
    subprocess.run(
        _in_namespace(pid, ["ip", "link", "delete", name]),
        capture_output=True,
        check=False,
        env=processes.ENVIRONMENT,
    )


def set_state(switch_pid: int, address: Address, *, up: bool) -> None:
    """Set the link of a machine up or down."""
    _ip([f"link set {address.port} {'up' if up else 'down'}"], switch_pid)


def is_up(switch_pid: int, address: Address) -> bool | None:
    """Return True if the link of a machine is up, None if it does not exist."""
    result = subprocess.run(
        _in_namespace(switch_pid, ["ip", "-oneline", "link", "show", address.port]),
        capture_output=True,
        text=True,
        check=False,
        env=processes.ENVIRONMENT,
    )
    if result.returncode != 0:
        return None
    return "UP" in result.stdout.partition("<")[2].partition(">")[0].split(",")


def _ip(lines: Iterable[str], inside_pid: int | None = None) -> None:
    """Run a batch of `ip` commands, here or in the network namespace of a process.

    Raises:
        OSError: a command failed; the message contains its output.
    """
    command = ["ip", "-batch", "-"]
    _run(
        command if inside_pid is None else _in_namespace(inside_pid, command),
        "\n".join(lines) + "\n",
    )


def _run(command: list[str], stdin: str = "") -> None:
    result = subprocess.run(
        command,
        input=stdin,
        text=True,
        capture_output=True,
        check=False,
        env=processes.ENVIRONMENT,
    )
    if result.returncode != 0:
        raise OSError(f"the network cannot be set up: {result.stderr.strip()}")


def _in_namespace(pid: int, command: list[str]) -> list[str]:
    # Not `ip netns exec`: it mounts a new /sys, which hides the cgroups.
    return ["nsenter", f"--net={namespace_of(pid)}", *command]
