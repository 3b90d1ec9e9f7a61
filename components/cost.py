"""Cost estimate of a stack per hour, from its configuration and a dated price table.

The estimate needs no account, so a pull request from a fork shows it too. A price that is not in the
table is reported as unknown and never guessed. The table (prices.json) states its date and its
sources; `everstep:cost.prices` overrides a machine's price.

Usage-based costs are not included: traffic, requests, logs, backups, keys, data in S3 or Blob.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudfacts import prices

from components.config import AksConfig, EksConfig, FsxConfig, PriceConfig, StackConfig
from components.config.aks import FALLBACK_POOL

USAGE_NOTE = "traffic, requests, logs, backups, keys and storage in S3 or Blob are billed by usage and not included"


@dataclass(frozen=True, kw_only=True)
class CostItem:
    """One item that is billed by the hour.

    Attributes:
        component: component of the stack.
        name: name of the item.
        count: initial number.
        maximum: maximum number.
        on_demand: USD per hour for one; None if unknown.
        spot: USD per hour for one as a spot machine; equal to `on_demand` for items without spot.
    """

    component: str
    name: str
    count: int
    maximum: int
    on_demand: float | None
    spot: float | None


@dataclass(frozen=True, kw_only=True)
class Total:
    """A sum of items, in USD per hour.

    Attributes:
        usd: the sum of the known prices.
        unknown: items without a known price, which make the true sum higher.
    """

    usd: float
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.unknown:
            return f"{self.usd:.2f}"
        return f"at least {self.usd:.2f} without {' and '.join(self.unknown)}"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a stack.

    Attributes:
        items: its items.
        as_of: date of the price table, YYYY-MM-DD.
        notes: caveats: other regions, usage-based costs.
    """

    items: tuple[CostItem, ...]
    as_of: str
    notes: tuple[str, ...]

    def total(self, *, spot: bool, maximum: bool = False) -> Total:
        """Return the sum at spot or on-demand prices, while training or with the maximum nodes."""
        priced = [
            (item, item.maximum if maximum else item.count, item.spot if spot else item.on_demand)
            for item in self.items
        ]
        bought = [(item, count, price) for item, count, price in priced if count]
        known = (count * price for _, count, price in bought if price is not None)
        unknown = {item.name: None for item, _, price in bought if price is None}
        return Total(usd=round(sum(known), 4), unknown=tuple(unknown))


def estimate(config: StackConfig) -> Cost:
    """Return the cost of a stack; a stack on existing machines has no cost of its own."""
    cluster = config.cluster
    if isinstance(cluster, EksConfig):
        items = [*_eks(cluster, config), *_fsx(config)]
        return _cost(items, cluster.region, "us-east-1")
    if isinstance(cluster, AksConfig):
        return _cost(_aks(cluster, config), cluster.location, "eastus")
    note = "the stack creates no machines: it runs on existing ones"
    return Cost(items=(), as_of=prices.AS_OF, notes=(note,))


def _cost(items: Iterable[CostItem], region: str, listed: str) -> Cost:
    """Return the cost of the items, with notes on costs that are not included."""
    other_region = f"services and storage are priced as in {listed}; {region} may differ"
    notes = (USAGE_NOTE,) if region == listed else (other_region, USAGE_NOTE)
    return Cost(items=tuple(items), as_of=prices.AS_OF, notes=notes)


def _eks(cluster: EksConfig, config: StackConfig) -> list[CostItem]:
    """Return the items of a cluster on EKS."""
    gpu, system, region = cluster.gpu_pool, cluster.system_pool, cluster.region
    gateways = len(cluster.zones) if cluster.network.nat_per_zone else 1
    gateways = 0 if cluster.network.vpc_id else gateways
    price = _highest_price(gpu.instance_types, region, config)
    types = " or ".join(gpu.instance_types)
    nodes = (_training_nodes(cluster, config), gpu.max_nodes)
    return [
        _pool("GPU pool", types, nodes, price, spot=gpu.capacity == "spot"),
        _disk("GPU pool", gpu.disk_gib, "gp3", nodes),
        _pool("GPU fallback", types, (0, gpu.fallback_nodes), price, spot=False),
        _pool(
            "system pool",
            system.instance_types[0],
            (system.nodes, system.max_nodes),
            _highest_price(system.instance_types[:1], region, config),
            spot=False,
        ),
        _disk("system pool", system.disk_gib, "gp3", (system.nodes, system.max_nodes)),
        _service("control plane", "EKS, standard support", "eks", 1),
        _service("network", "NAT gateway", "natGatewayAws", gateways),
        _service("network", "public IPv4 address", "publicAddressAws", gateways),
    ]


def _training_nodes(cluster: EksConfig | AksConfig, config: StackConfig) -> int:
    """Return the GPU nodes of a training: with autoscaling, one for each worker."""
    pool = cluster.gpu_pool
    nodes = max(pool.nodes, config.job.replicas) if cluster.autoscaling.enabled else pool.nodes
    return min(nodes, pool.max_nodes)


def _fsx(config: StackConfig) -> list[CostItem]:
    """Return the item of a new file system; an existing one is not included."""
    storage = config.storage
    if not isinstance(storage, FsxConfig) or storage.existing is not None:
        return []
    kind = storage.deployment_type
    tier = kind if kind == "SCRATCH_2" else f"{kind}-{storage.throughput or 125}"
    name = f"FSx for Lustre {tier}, {storage.size_gib} GiB"
    return [_fixed("storage", name, 1, prices.storage(tier, storage.size_gib))]


def _aks(cluster: AksConfig, config: StackConfig) -> list[CostItem]:
    """Return the items of a cluster on AKS, whose workers are priced in the first pool."""
    gpu, system, location = cluster.gpu_pool, cluster.system_pool, cluster.location
    gpu_items = []
    for position, (pool, size) in enumerate(gpu.vm_sizes.items()):
        counts = (0 if position else _training_nodes(cluster, config), gpu.max_nodes)
        price = _highest_price([size], location, config)
        spot = gpu.capacity == "spot"
        gpu_items.append(_pool(f"GPU pool {pool}", size, counts, price, spot=spot))
        gpu_items.append(_disk(f"GPU pool {pool}", gpu.disk_gib, "azureStandardSsd", counts))
    first = next(iter(gpu.vm_sizes.values()))
    counts = (system.nodes, system.max_nodes)
    gateways = 0 if cluster.network.subnet_id else 1
    return [
        *gpu_items,
        _pool(
            f"GPU pool {FALLBACK_POOL}",
            first,
            (0, gpu.fallback_nodes),
            _highest_price([first], location, config),
            spot=False,
        ),
        _pool(
            "system pool",
            system.vm_size,
            counts,
            _highest_price([system.vm_size], location, config),
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


def _highest_price(machines: Sequence[str], region: str, config: StackConfig) -> _Price:
    """Return the highest price of several types, because the cloud may choose any of them.

    The highest price is unknown if one of the prices is.
    """
    prices = [_machine(machine, region, config.cost.prices) for machine in machines]
    return _Price(
        _maximum_if_known([price.on_demand for price in prices]),
        _maximum_if_known([price.spot for price in prices]),
    )


def _maximum_if_known(prices: Sequence[float | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return max(known) if len(known) == len(prices) else None


def _machine(machine: str, region: str, overrides: Mapping[str, PriceConfig]) -> _Price:
    """Return a machine's price from the stack's configuration, else from the table for the region."""
    if machine in overrides:
        return _Price(overrides[machine].on_demand, overrides[machine].spot)
    listed = prices.machine(machine, region)
    return _Price(listed.on_demand, listed.spot)


def _pool(
    component: str, name: str, counts: tuple[int, int], price: _Price, *, spot: bool
) -> CostItem:
    count, maximum = counts
    discounted = price.spot if spot else price.on_demand
    return CostItem(
        component=component,
        name=name,
        count=count,
        maximum=maximum,
        on_demand=price.on_demand,
        spot=discounted,
    )


def _disk(component: str, gib: int, kind: str, counts: tuple[int, int]) -> CostItem:
    price = prices.storage(kind, gib)
    return _pool(component, f"disk of {gib} GiB", counts, _Price(price, price), spot=False)


def _service(component: str, name: str, key: str, count: int) -> CostItem:
    return _fixed(component, name, count, prices.service(key))


def _fixed(component: str, name: str, count: int, price: float | None) -> CostItem:
    return _pool(component, name, (count, count), _Price(price, price), spot=False)


def as_text(cost: Cost) -> str:
    """Return a text table for a terminal or a comment, with sums and notes below it."""
    bought = [item for item in cost.items if item.maximum]
    rows = [("component", "item", "count", "on demand", "spot"), *map(_row, bought)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    text = [_aligned(row, widths) for row in rows]
    if bought:
        text.insert(1, "-" * len(text[0]))
        text += ["", *_sums(cost)]
    notes = [f"Prices of {cost.as_of}.", *(f"{note[0].upper()}{note[1:]}." for note in cost.notes)]
    return "\n".join([*(text if bought else []), *([""] if bought else []), *notes])


def _row(item: CostItem) -> tuple[str, str, str, str, str]:
    counts = str(item.count) if item.count == item.maximum else f"{item.count} to {item.maximum}"
    return item.component, item.name, counts, _usd(item.on_demand), _usd(item.spot)


def _usd(price: float | None) -> str:
    return "unknown" if price is None else f"{price:.4f}"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """Return one row, text aligned left and numbers aligned right."""
    cells = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join([*cells, *right]).rstrip()


def _sums(cost: Cost) -> list[str]:
    """Return the sums, with the items that have no known price."""
    lines = []
    for title, maximum in (("While training", False), ("With all nodes", True)):
        spot, on_demand = (
            cost.total(spot=True, maximum=maximum),
            cost.total(spot=False, maximum=maximum),
        )
        month = f"{on_demand.usd * prices.HOURS_PER_MONTH:,.0f}"
        lines.append(
            f"{title}: {spot} USD/hour with spot nodes, {on_demand} on demand ({month} a month)"
        )
    missing = cost.total(spot=True, maximum=True).unknown
    if missing:
        unpriced = ", ".join(missing)
        lines.append(f"No price is known for {unpriced}: set everstep:cost.prices to count it.")
    return lines


def as_json(cost: Cost) -> dict[str, Any]:
    """Return the cost as plain data, prices in USD per hour."""
    return {
        "as_of": cost.as_of,
        "unit": "USD per hour",
        "items": [
            {
                "component": item.component,
                "item": item.name,
                "count": item.count,
                "max_count": item.maximum,
                "on_demand": _rounded(item.on_demand),
                "spot": _rounded(item.spot),
            }
            for item in cost.items
        ],
        "total": {
            when: {
                kind: {"usd": total.usd, "unknown": list(total.unknown)}
                for kind, total in (
                    ("spot", cost.total(spot=True, maximum=maximum)),
                    ("on_demand", cost.total(spot=False, maximum=maximum)),
                )
            }
            for when, maximum in (("while_training", False), ("with_all_nodes", True))
        },
        "notes": list(cost.notes),
    }


def _rounded(price: float | None) -> float | None:
    return None if price is None else round(price, 6)
