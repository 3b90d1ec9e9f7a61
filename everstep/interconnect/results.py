"""The results of an interconnect test, read from the lines that its processes print."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everstep.errors import EverstepError
from everstep.interconnect.collectives import (
    ALL_REDUCE,
    COLLECTIVES,
    SEND_RECV,
    algorithm_bandwidth,
    bus_bandwidth,
)
from everstep.interconnect.transport import Transport, TransportVerdict, judge

GIGA = 1e9
"""Bytes of a GB, as nccl-tests counts them."""

PUBLISHED_BYTES = 2**30
"""Largest size of the published test, an all-reduce from 8 B."""


@dataclass(frozen=True)
class PublishedBandwidth:
    """A published figure: all-reduce on two p4d.24xlarge, in GB/s of bus bandwidth.

    https://aws.amazon.com/blogs/machine-learning/distributed-training-with-amazon-eks-and-torch-distributed-elastic/
    """

    adapters: int
    provider: str
    average: float
    maximum: float


PUBLISHED_BANDWIDTHS = (
    PublishedBandwidth(4, "efa", 8.24, 42.04),
    PublishedBandwidth(1, "efa", 3.02, 5.89),
    PublishedBandwidth(0, "socket", 0.97, 2.38),
)


@dataclass(frozen=True)
class Measurement:
    """One collective with one size.

    Attributes:
        collective: name of the collective.
        bytes: size of the whole array.
        iterations: number of timed operations.
        seconds: mean time of one operation on the slowest rank.
        wrong: number of wrong results, over all ranks.
    """

    collective: str
    bytes: int
    iterations: int
    seconds: float
    wrong: int

    @property
    def algorithm_bandwidth(self) -> float:
        """Algorithm bandwidth in GB/s."""
        return algorithm_bandwidth(self.bytes, self.seconds) / GIGA

    def bus_bandwidth(self, ranks: int) -> float:
        """Return the bus bandwidth in GB/s."""
        return bus_bandwidth(self.collective, ranks, self.bytes, self.seconds) / GIGA


@dataclass(frozen=True)
class Summary:
    """Bus bandwidth of one collective over all sizes, in GB/s."""

    average: float
    maximum: float


@dataclass(frozen=True)
class Results:
    """The results of one test.

    Attributes:
        setup: properties of the group: ranks, backend, device, versions, largest size.
        measurements: measurements in order.
        unsupported: collective that the backend lacks -> reason.
        is_complete: True if the test reached its end.
        verdict: the network that carried the data.
    """

    setup: Mapping[str, Any]
    measurements: tuple[Measurement, ...]
    unsupported: Mapping[str, str]
    is_complete: bool
    verdict: TransportVerdict

    @property
    def ranks(self) -> int:
        """Number of processes."""
        return int(self.setup["ranks"])

    @property
    def wrong_results(self) -> int:
        """Number of wrong results."""
        return sum(measurement.wrong for measurement in self.measurements)

    @property
    def is_limited_by_memory(self) -> bool:
        """True if memory was too small for the largest requested size."""
        return int(self.setup["largest"]) < int(self.setup["max_bytes"])

    def measurements_of(self, collective: str) -> tuple[Measurement, ...]:
        """Return the measurements of one collective."""
        return tuple(
            measurement for measurement in self.measurements if measurement.collective == collective
        )

    def summary(self, collective: str = ALL_REDUCE, max_bytes: int | None = None) -> Summary | None:
        """Return the average and maximum bus bandwidth of a collective; None without a measurement.

        Args:
            collective: name of the collective.
            max_bytes: largest size to include, in bytes; None for all.
        """
        bandwidths = [
            measurement.bus_bandwidth(self.ranks)
            for measurement in self.measurements_of(collective)
            if max_bytes is None or measurement.bytes <= max_bytes
        ]
        return Summary(sum(bandwidths) / len(bandwidths), max(bandwidths)) if bandwidths else None

    @property
    def link_rate(self) -> float | None:
        """Rate of a link in GB/s in each direction, measured with the largest array of send_recv; None if unmeasured.

        The rates of the other collectives depend on the backend's algorithm: gloo waits for the peer between parts of
        an array.
        """
        largest = max(
            self.measurements_of(SEND_RECV), key=lambda measurement: measurement.bytes, default=None
        )
        return None if largest is None else largest.bus_bandwidth(self.ranks)

    def as_value(self) -> dict[str, Any]:
        """Return the results as plain values for JSON; bandwidths in GB/s."""
        return {
            "setup": dict(self.setup),
            "network": {
                "efa": self.verdict.uses_efa,
                "transport": self.verdict.transport.value,
                "adapters": self.verdict.adapters,
                "reason": self.verdict.reason,
            },
            "measurements": [
                self._measurement_values(measurement) for measurement in self.measurements
            ],
            "summary": {
                name: vars(summary) for name in COLLECTIVES if (summary := self.summary(name))
            },
            "link_rate": self.link_rate,
            "unsupported": dict(self.unsupported),
            "published": [vars(published) for published in PUBLISHED_BANDWIDTHS],
        }

    def _measurement_values(self, measurement: Measurement) -> dict[str, Any]:
        return {
            **vars(measurement),
            "algorithm_bandwidth": measurement.algorithm_bandwidth,
            "bus_bandwidth": measurement.bus_bandwidth(self.ranks),
        }


def read(logs: Sequence[str]) -> Results:
    """Return the results in the logs of all processes.

    Raises:
        EverstepError: the test has not begun.
    """
    lines = [line for log in logs for line in log.splitlines()]
    records = list(entries(lines))
    setup = next((entry for entry in records if entry["kind"] == "setup"), None)
    if setup is None:
        raise EverstepError(
            "the test ended before its processes had formed a group",
            "Start it again with --log FILE, and read the log of its processes there.",
        )
    return Results(
        setup={name: value for name, value in setup.items() if name != "kind"},
        measurements=tuple(measurements(records)),
        unsupported={
            entry["collective"]: entry["reason"]
            for entry in records
            if entry["kind"] == "unsupported"
        },
        is_complete=any(entry["kind"] == "end" for entry in records),
        verdict=_verdict(setup, lines),
    )


def measurements(lines: Iterable[Mapping[str, Any]]) -> Iterator[Measurement]:
    """Yield the measurements among the objects of a log."""
    for entry in lines:
        if entry["kind"] == "measurement":
            yield Measurement(**{name: entry[name] for name in Measurement.__annotations__})


def entries(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the benchmark's JSON objects among the lines; the other lines are logs and errors."""
    for line in lines:
        if not line.startswith("{"):
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and "kind" in entry:
            yield entry


def _verdict(setup: Mapping[str, Any], lines: Sequence[str]) -> TransportVerdict:
    if setup["backend"] == "gloo":
        return TransportVerdict(Transport.SOCKETS, None, "PyTorch's gloo backend uses TCP")
    return judge(lines, int(setup["ranks"]))
