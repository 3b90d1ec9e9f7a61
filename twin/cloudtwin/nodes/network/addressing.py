"""The addressing plan: fixed arithmetic, so that a machine that boots again has the same address.

Every twin uses the same addresses. They exist only in the twin's own network namespaces, without a route from
the host.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

MACHINES_NETWORK = IPv4Network("10.200.0.0/24")
PODS_NETWORK = IPv4Network("10.244.0.0/16")
SERVICES_NETWORK = IPv4Network("10.96.0.0/16")
CONTROL_PLANE = IPv4Address("10.200.0.10")
KUBERNETES_SERVICE = IPv4Address("10.96.0.1")
METADATA = IPv4Address("169.254.169.254")  # the same on AWS and Azure
DNS_SERVICE = IPv4Address("10.96.0.10")
API_PORT = 6443
REGISTRY_PORT = 5000
REGISTRY = f"http://{CONTROL_PLANE}:{REGISTRY_PORT}"
API_SERVER = f"https://{CONTROL_PLANE}:{API_PORT}"
MTU = 9001
"""Maximum packet size in bytes on the links of machines and pods, as in a VPC.

Source: https://docs.aws.amazon.com/vpc/latest/userguide/mtu.html, 2026-11. An Azure virtual network has 1500; nothing
in the project depends on the size.
"""

MAX_MACHINES = 32  # limit of the twin: each machine's routes to all others are set once, at boot


@dataclass(frozen=True)
class Address:
    """The addresses of the machine in slot `index`, from 1 to MAX_MACHINES."""

    index: int

    def __post_init__(self) -> None:
        """Raise ValueError for a slot outside the plan."""
        if not 1 <= self.index <= MAX_MACHINES:
            raise ValueError(f"slot {self.index} is not one of 1 to {MAX_MACHINES}")

    @property
    def ip(self) -> IPv4Address:
        """The machine's own address."""
        return CONTROL_PLANE + self.index

    @property
    def mac(self) -> str:
        """Its MAC address, fixed because other machines cache it in their neighbor tables for seconds."""
        return f"02:00:0a:c8:00:{int(self.ip) & 0xFF:02x}"

    @property
    def pods(self) -> IPv4Network:
        """The addresses of the machine's pods."""
        return IPv4Network((int(PODS_NETWORK.network_address) + (self.index << 8), 24))

    @property
    def port(self) -> str:
        """The name of its port on the switch; the kernel allows 15 characters."""
        return f"port{self.index}"


def free_slot(used_slots: set[int]) -> int | None:
    """Return the lowest free slot, or None."""
    return next((slot for slot in range(1, MAX_MACHINES + 1) if slot not in used_slots), None)


def pod_routes(own_slot: int = 0) -> list[str]:
    """Return the arguments of `ip route replace` for the pods of every slot except `own_slot`."""
    other_addresses = (Address(slot) for slot in range(1, MAX_MACHINES + 1) if slot != own_slot)
    return [f"{other.pods} via {other.ip}" for other in other_addresses]
