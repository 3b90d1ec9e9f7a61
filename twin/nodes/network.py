"""The twin's network: one switch, with the control plane on it and a cable to every machine.

The switch is a bridge in a network namespace that has no name: it lives as long as a process in it does, so
that nothing is left of it when all are killed. Files under /run/netns would stay, and belong to the host.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from twin.nodes import addressing, processes
from twin.nodes.addressing import Address

BRIDGE = "switch"


def namespace_of(pid: int) -> Path:
    """Return the file that stands for a process's network namespace."""
    return Path(f"/proc/{pid}/ns/net")


def build_switch() -> None:
    """Set up the switch in the network namespace of the calling process."""
    prefix = addressing.MACHINES_NETWORK.prefixlen
    _ip(
        [
            "link set lo up",
            f"link add {BRIDGE} type bridge",
            f"address add {addressing.CONTROL_PLANE}/{prefix} dev {BRIDGE}",
            f"link set {BRIDGE} up",
            *(f"route replace {route} onlink dev {BRIDGE}" for route in addressing.pod_routes()),
        ]
    )


def plug(switch_pid: int, machine_pid: int, address: Address) -> None:
    """Lay the cable between the switch and a machine, in place of one that is there."""
    unplug(switch_pid, address)
    # A switch that was killed takes its ends of the cables with it, but only some time later.
    _delete_link(machine_pid, "eth0")
    far_end = f"peer name eth0 address {address.mac} netns {machine_pid}"
    _ip(
        [
            f"link add {address.port} type veth {far_end}",
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
            # No default route: what tries to leave the twin fails at once instead of hanging. The route to
            # services leads nowhere either; kube-proxy turns their packets round before they leave.
            f"route replace {addressing.SERVICES_NETWORK} via {addressing.CONTROL_PLANE}",
        ],
        machine_pid,
    )


def add_metadata_address() -> None:
    """Let the calling process's machine answer where a cloud's metadata service is found.

    On the loopback: the machine's pods route it here, and it is never announced to the switch, so that every
    machine can have the same address.
    """
    _ip([f"address replace {addressing.METADATA}/32 dev lo"])


def refuse_lost_packets() -> None:
    """Let the calling process's machine refuse what is for a service that kube-proxy does not know, or not yet.

    Without this such a packet vanishes on its way, and what sent it hangs for half a minute, as the connection is
    remembered as one that nobody turned round: a DNS that started a moment before the rules were there did.
    """
    for chain in ("OUTPUT", "FORWARD"):
        services = ["--destination", str(addressing.SERVICES_NETWORK)]
        _run(["iptables", "--wait", "--append", chain, *services, "--jump", "REJECT"])


def unplug(switch_pid: int, address: Address) -> None:
    """Pull the cable: both its ends are gone when this returns. Nothing happens where there is none."""
    _delete_link(switch_pid, address.port)


def _delete_link(pid: int, name: str) -> None:
    subprocess.run(
        _inside(pid, ["ip", "link", "delete", name]),
        capture_output=True,
        check=False,
        env=processes.ENVIRONMENT,
    )


def set_link(switch_pid: int, address: Address, *, up: bool) -> None:
    """Let the cable of a machine carry frames, or not."""
    _ip([f"link set {address.port} {'up' if up else 'down'}"], switch_pid)


def link_is_up(switch_pid: int, address: Address) -> bool | None:
    """Say whether a machine's port is switched on; None where it has no cable."""
    shown = subprocess.run(
        _inside(switch_pid, ["ip", "-oneline", "link", "show", address.port]),
        capture_output=True,
        text=True,
        check=False,
        env=processes.ENVIRONMENT,
    )
    if shown.returncode != 0:
        return None
    return "UP" in shown.stdout.partition("<")[2].partition(">")[0].split(",")


def _ip(lines: Iterable[str], inside_pid: int | None = None) -> None:
    """Run a batch of `ip` commands, here or in the network namespace of a process.

    Raises:
        OSError: one was refused; it says which and why.
    """
    command = ["ip", "-batch", "-"]
    _run(
        command if inside_pid is None else _inside(inside_pid, command),
        "\n".join(lines) + "\n",
    )


def _run(command: list[str], said: str = "") -> None:
    done = subprocess.run(
        command,
        input=said,
        text=True,
        capture_output=True,
        check=False,
        env=processes.ENVIRONMENT,
    )
    if done.returncode != 0:
        raise OSError(f"the network cannot be set up: {done.stderr.strip()}")


def _inside(pid: int, command: list[str]) -> list[str]:
    # Not `ip netns exec`: it mounts a new /sys, which hides the cgroups from whatever it runs.
    return ["nsenter", f"--net={namespace_of(pid)}", *command]
