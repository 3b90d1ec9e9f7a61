"""The network that NCCL used in a run, from its log (NCCL_DEBUG=INFO).

The plugin aws-ofi-nccl connects NCCL with libfabric, whose provider `efa` uses Elastic Fabric Adapters. Three lines
of each process matter; other lines, such as a plugin that was found or EFA-specific options, prove nothing:

    NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)            the provider that libfabric has chosen
    NCCL INFO Using network AWS Libfabric                                the network that NCCL has chosen
    NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/AWS Libfabric/0 the network of one connection

The verdict is EFA only if every process has chosen libfabric and its provider efa, and no connection uses another
network. libfabric carries data over TCP, too (`Selected Provider is tcp`), under the same network name.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

PROCESS = re.compile(r"([\w.-]+:\d+):\d+ \[\d+\]")
"""Host and process, before the thread and the number of the GPU."""

PROVIDER = re.compile(
    r"NET/OFI Selected provider is ([^\s,(]+)(?:,? fabric is \S+)?(?:,? ?\(found (\d+) nics?\))?",
    re.IGNORECASE,
)
NETWORK = re.compile(r"NCCL INFO (?:Using network|Assigned NET plugin) (.+?)(?: to comm)?\s*$")
CHANNEL = re.compile(r"via NET/([^/\n]+)/\d+")
LIBFABRIC = re.compile(r"(?:AWS )?Libfabric", re.IGNORECASE)


class Transport(StrEnum):
    """Transport of the data between nodes."""

    EFA = "EFA"
    LIBFABRIC = "libfabric without EFA"
    SOCKETS = "TCP sockets"
    INFINIBAND = "InfiniBand or RoCE"
    OTHER = "another network"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class TransportVerdict:
    """The transport of a run.

    Attributes:
        transport: transport of the data; EFA only if all processes use it.
        adapters: number of adapters that each process has found; None if the log does not show it.
        reason: evidence for the transport, one sentence.
    """

    transport: Transport
    adapters: int | None
    reason: str

    @property
    def uses_efa(self) -> bool:
        """True if all data between nodes used EFA."""
        return self.transport is Transport.EFA


@dataclass
class ProcessLog:
    """Evidence of one process.

    Attributes:
        networks: names of networks that NCCL has chosen, or that connections use.
        providers: libfabric's providers, in order of the lines.
        adapters: number of adapters with the last provider.
    """

    networks: list[str] = field(default_factory=list)
    providers: list[str] = field(default_factory=list)
    adapters: int | None = None

    def read(self, line: str) -> None:
        """Read one line."""
        if match := PROVIDER.search(line):
            self.providers.append(match[1].lower())
            self.adapters = int(match[2]) if match[2] else None
        self.networks += [name.strip() for name in NETWORK.findall(line)]
        self.networks += [name.strip() for name in CHANNEL.findall(line)]

    @property
    def transport(self) -> Transport:
        """The transport of this process."""
        return max(
            (self._transport_of(name) for name in self.networks),
            default=Transport.UNKNOWN,
            key=_severity,
        )

    def _transport_of(self, network: str) -> Transport:
        if LIBFABRIC.fullmatch(network):
            return self._libfabric_transport()
        if network.startswith("Socket"):
            return Transport.SOCKETS
        return Transport.INFINIBAND if network.startswith("IB") else Transport.OTHER

    def _libfabric_transport(self) -> Transport:
        if not self.providers:
            return Transport.UNKNOWN
        is_only_efa = all(name.split(";")[0] == "efa" for name in self.providers)
        return Transport.EFA if is_only_efa else Transport.LIBFABRIC


_ORDER = (
    Transport.EFA,
    Transport.INFINIBAND,
    Transport.OTHER,
    Transport.UNKNOWN,
    Transport.LIBFABRIC,
    Transport.SOCKETS,
)
_severity = _ORDER.index
"""Key that orders transports: of several transports, the last in `_ORDER` decides the verdict."""


def judge(lines: Iterable[str], ranks: int) -> TransportVerdict:
    """Return the transport of a run's data.

    Args:
        lines: lines of the logs of all processes, in any order.
        ranks: number of processes of the run.
    """
    logs: dict[str, ProcessLog] = {}
    for line in lines:
        process = PROCESS.search(line)
        logs.setdefault(process[1] if process else "", ProcessLog()).read(line)
    network_logs = [log for log in logs.values() if log.networks or log.providers]
    transport = max(
        (log.transport for log in network_logs), default=Transport.UNKNOWN, key=_severity
    )
    if transport is Transport.EFA and len(network_logs) < ranks:
        reason = f"only {len(network_logs)} of {ranks} processes have logged their network"
        return TransportVerdict(Transport.UNKNOWN, None, reason)
    return TransportVerdict(transport, _adapters(network_logs), _reason(transport, network_logs))


def _adapters(logs: list[ProcessLog]) -> int | None:
    counts = {log.adapters for log in logs}
    return counts.pop() if len(counts) == 1 else None


def _reason(transport: Transport, logs: list[ProcessLog]) -> str:
    if not logs:
        return "no process has logged a network: set NCCL_DEBUG=INFO, and use two nodes or more"
    networks = sorted({name for log in logs for name in log.networks})
    providers = sorted({name for log in logs for name in log.providers})
    network_text = f"network {', '.join(networks) or 'not logged'}"
    provider_text = (
        f"libfabric provider {', '.join(providers)}" if providers else "no libfabric provider"
    )
    count = sum(log.transport is transport for log in logs)
    return f"{count} of {len(logs)} processes: {network_text}; {provider_text}"
