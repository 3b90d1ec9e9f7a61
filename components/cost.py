"""What a stack costs per hour, part by part: reckoned from its configuration and a dated table.

Pure, and without an account: a pull request from a fork shows it too. A price that nobody has told
us stays unknown and is said to be; a guess would be believed. The table (prices.json) names its date
and its sources; `everstep:cost.prices` overrides a machine's price.

Not reckoned, because it goes by use: traffic, requests, logs, backups, keys, what lies in S3 or Blob.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from components.config import AksConfig, EksConfig, FsxConfig, PriceConfig, StackConfig
from components.config.aks import FALLBACK_POOL

PRICES = Path(__file__).with_name("prices.json")
HOURS_A_MONTH = 730  # as both clouds reckon
BY_USE = "traffic, requests, logs, backups, keys and what lies in S3 or Blob go by use"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One thing that costs money by the hour.

    Attributes:
        part: the part of the stack.
        what: what is bought.
        count: how many at the start.
        most: how many there may be.
        on_demand: USD per hour for one; None where it is not known.
        spot: the same as a spot machine; that of `on_demand` for what is never spot.
    """

    part: str
    what: str
    count: int
    most: int
    on_demand: float | None
    spot: float | None


@dataclass(frozen=True, kw_only=True)
class Total:
    """A sum of lines, in USD per hour.

    Attributes:
        usd: the sum of what is known.
        unknown: what has no known price, so that the true sum is higher.
    """

    usd: float
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{'at least ' if self.unknown else ''}{self.usd:.2f}"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The price of a stack.

    Attributes:
        lines: its parts, the dearest kind first.
        as_of: the table's date, YYYY-MM-DD.
        notes: what a reader must know besides: other regions, what goes by use.
    """

    lines: tuple[Line, ...]
    as_of: str
    notes: tuple[str, ...]

    def total(self, *, spot: bool, most: bool = False) -> Total:
        """Sum the lines up: at spot prices or on demand, at the start or with all nodes there are."""
        priced = [
            (line, line.most if most else line.count, line.spot if spot else line.on_demand)
            for line in self.lines
        ]
        bought = [(line, count, price) for line, count, price in priced if count]
        known = (count * price for _, count, price in bought if price is not None)
        unknown = {line.what: None for line, _, price in bought if price is None}
        return Total(usd=round(sum(known), 4), unknown=tuple(unknown))


def estimate(config: StackConfig) -> Cost:
    """Reckon what a stack costs; one on machines that are there already costs nothing more."""
    table, cluster = _table(), config.cluster
    if isinstance(cluster, EksConfig):
        lines = [*_eks(cluster, config), *_fsx(config)]
        return _cost(lines, cluster.region, "us-east-1")
    if isinstance(cluster, AksConfig):
        return _cost(_aks(cluster, config), cluster.location, "eastus")
    nothing = "the stack makes no machines: it runs on those that are there already"
    return Cost(lines=(), as_of=str(table["asOf"]), notes=(nothing,))


def _cost(lines: Iterable[Line], region: str, listed: str) -> Cost:
    """Put lines together and say what they leave out."""
    elsewhere = f"services and storage are priced as in {listed}; {region} may differ"
    notes = (BY_USE,) if region == listed else (elsewhere, BY_USE)
    return Cost(lines=tuple(lines), as_of=str(_table()["asOf"]), notes=notes)


def _eks(cluster: EksConfig, config: StackConfig) -> list[Line]:
    """Give the lines of a cluster on EKS."""
    gpu, system, region = cluster.gpu_pool, cluster.system_pool, cluster.region
    gateways = len(cluster.zones) if cluster.network.nat_per_zone else 1
    gateways = 0 if cluster.network.vpc_id else gateways
    price = _of_all(gpu.instance_types, region, config)
    types = " or ".join(gpu.instance_types)
    return [
        _pool("GPU pool", types, (gpu.nodes, gpu.max_nodes), price, spot=gpu.capacity == "spot"),
        _disk("GPU pool", gpu.disk_gib, "gp3", (gpu.nodes, gpu.max_nodes)),
        _pool("GPU fallback", types, (0, gpu.fallback_nodes), price, spot=False),
        _pool(
            "system pool",
            system.instance_types[0],
            (system.nodes, system.max_nodes),
            _of_all(system.instance_types[:1], region, config),
            spot=False,
        ),
        _disk("system pool", system.disk_gib, "gp3", (system.nodes, system.max_nodes)),
        _service("control plane", "EKS, standard support", "eks", 1),
        _service("network", "NAT gateway", "natGatewayAws", gateways),
        _service("network", "public IPv4 address", "publicAddressAws", gateways),
    ]


def _fsx(config: StackConfig) -> list[Line]:
    """Give the line of a file system that is made; one that is there already is paid for."""
    storage = config.storage
    if not isinstance(storage, FsxConfig) or storage.existing is not None:
        return []
    kind = storage.deployment_type
    tier = kind if kind == "SCRATCH_2" else f"{kind}-{storage.throughput or 125}"
    what = f"FSx for Lustre {tier}, {storage.size_gib} GiB"
    return [_fixed("storage", what, 1, _storage(tier, storage.size_gib))]


def _aks(cluster: AksConfig, config: StackConfig) -> list[Line]:
    """Give the lines of a cluster on AKS; the first pool alone has nodes at the start."""
    gpu, system, place = cluster.gpu_pool, cluster.system_pool, cluster.location
    lines = []
    for position, (pool, size) in enumerate(gpu.vm_sizes.items()):
        counts = (0 if position else gpu.nodes, gpu.max_nodes)
        price = _of_all([size], place, config)
        lines.append(_pool(f"GPU pool {pool}", size, counts, price, spot=gpu.capacity == "spot"))
        lines.append(_disk(f"GPU pool {pool}", gpu.disk_gib, "azureStandardSsd", counts))
    first = next(iter(gpu.vm_sizes.values()))
    counts = (system.nodes, system.max_nodes)
    gateways = 0 if cluster.network.subnet_id else 1
    return [
        *lines,
        _pool(
            f"GPU pool {FALLBACK_POOL}",
            first,
            (0, gpu.fallback_nodes),
            _of_all([first], place, config),
            spot=False,
        ),
        _pool(
            "system pool",
            system.vm_size,
            counts,
            _of_all([system.vm_size], place, config),
            spot=False,
        ),
        _disk("system pool", system.disk_gib, "azureStandardSsd", counts),
        _service("control plane", "AKS, Standard tier", "aksStandard", 1),
        _service("network", "NAT gateway", "natGatewayAzure", gateways),
        _service("network", "public IPv4 address", "publicAddressAzure", gateways),
    ]


@dataclass(frozen=True)
class _Price:
    """One machine's prices, USD per hour; None where unknown."""

    on_demand: float | None
    spot: float | None


def _of_all(machines: Sequence[str], region: str, config: StackConfig) -> _Price:
    """Give the price of the dearest of several types: any of them may be what the cloud gives.

    Where one is unknown, so is the dearest.
    """
    prices = [_machine(machine, region, config.cost.prices) for machine in machines]
    return _Price(
        _dearest([price.on_demand for price in prices]), _dearest([price.spot for price in prices])
    )


def _dearest(prices: Sequence[float | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return max(known) if len(known) == len(prices) else None


def _machine(machine: str, region: str, own: Mapping[str, PriceConfig]) -> _Price:
    """Give a machine's price: the stack's own, else the table's for this very region."""
    if machine in own:
        return _Price(own[machine].on_demand, own[machine].spot)
    listed = _table()["machines"].get(region, {}).get(machine, {})
    return _Price(listed.get("onDemand"), listed.get("spot"))


def _pool(part: str, what: str, counts: tuple[int, int], price: _Price, *, spot: bool) -> Line:
    count, most = counts
    discounted = price.spot if spot else price.on_demand
    return Line(
        part=part, what=what, count=count, most=most, on_demand=price.on_demand, spot=discounted
    )


def _disk(part: str, gib: int, kind: str, counts: tuple[int, int]) -> Line:
    price = _storage(kind, gib)
    return _pool(part, f"disk of {gib} GiB", counts, _Price(price, price), spot=False)


def _service(part: str, what: str, key: str, count: int) -> Line:
    return _fixed(part, what, count, _table()["services"][key]["price"])


def _fixed(part: str, what: str, count: int, price: float | None) -> Line:
    return _pool(part, what, (count, count), _Price(price, price), spot=False)


def _storage(kind: str, gib: int) -> float | None:
    """Give the price of so much storage, USD per hour."""
    month = _table()["storage"][kind]["price"]
    return None if month is None else float(month) * gib / HOURS_A_MONTH


@cache
def _table() -> dict[str, Any]:
    """Give the table of prices, read once."""
    table: dict[str, Any] = json.loads(PRICES.read_text(encoding="utf-8"))
    return table


def as_text(cost: Cost) -> str:
    """Give the table for a terminal or a comment, sums and notes below it."""
    bought = [line for line in cost.lines if line.most]
    rows = [("part", "what", "count", "on demand", "spot"), *map(_row, bought)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    text = [_aligned(row, widths) for row in rows]
    if bought:
        text.insert(1, "-" * len(text[0]))
        text += ["", *_sums(cost)]
    notes = [f"Prices of {cost.as_of}.", *(f"{note[0].upper()}{note[1:]}." for note in cost.notes)]
    return "\n".join([*(text if bought else []), *([""] if bought else []), *notes])


def _row(line: Line) -> tuple[str, str, str, str, str]:
    counts = str(line.count) if line.count == line.most else f"{line.count} to {line.most}"
    return line.part, line.what, counts, _usd(line.on_demand), _usd(line.spot)


def _usd(price: float | None) -> str:
    return "unknown" if price is None else f"{price:.4f}"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """Give one row: words to the left, numbers to the right."""
    left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join([*left, *right]).rstrip()


def _sums(cost: Cost) -> list[str]:
    """Give the sums, with what they leave out."""
    lines = []
    for title, most in (("At the start", False), ("With all nodes", True)):
        spot, on_demand = cost.total(spot=True, most=most), cost.total(spot=False, most=most)
        month = f"{on_demand.usd * HOURS_A_MONTH:,.0f}"
        lines.append(
            f"{title}: {spot} USD/hour with spot nodes, {on_demand} on demand ({month} a month)"
        )
    missing = cost.total(spot=True, most=True).unknown
    if missing:
        said = ", ".join(missing)
        lines.append(f"No price is known for {said}: set everstep:cost.prices to count it.")
    return lines


def as_json(cost: Cost) -> dict[str, Any]:
    """Give the same as plain data, prices in USD per hour."""
    return {
        "asOf": cost.as_of,
        "unit": "USD per hour",
        "parts": [
            {
                "part": line.part,
                "what": line.what,
                "count": line.count,
                "most": line.most,
                "onDemand": _rounded(line.on_demand),
                "spot": _rounded(line.spot),
            }
            for line in cost.lines
        ],
        "total": {
            when: {
                kind: {"usd": total.usd, "unknown": list(total.unknown)}
                for kind, total in (
                    ("spot", cost.total(spot=True, most=most)),
                    ("onDemand", cost.total(spot=False, most=most)),
                )
            }
            for when, most in (("start", False), ("most", True))
        },
        "notes": list(cost.notes),
    }


def _rounded(price: float | None) -> float | None:
    return None if price is None else round(price, 6)
