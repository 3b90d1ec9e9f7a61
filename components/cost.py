"""Cost estimate of a stack per hour, from its configuration and a price table.

The estimate needs no account, so a pull request from a fork shows it too. A price that is not in the
table is reported as unknown and never guessed. The table (prices.json) states its sources and their
dates; `everstep:cost.prices` overrides a machine's price.

Usage-based costs are not included: traffic, requests, logs, backups, keys, data in S3 or Blob.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloudfacts import prices

from components import aks_disks
from components.config import (
    AksConfig,
    AksPool,
    EksConfig,
    EksGpuPoolConfig,
    EksPool,
    FsxConfig,
    StackConfig,
    as_kind,
)
from components.config.aks import NO_MAX_PRICE
from components.config.machine_prices import machine_price
from components.config.workload import ETCD_DISK_GIB

USAGE_NOTE = (
    "traffic, requests, logs, metrics, backups, keys and storage in S3, Blob or ECR "
    "are billed by usage and not included"
)


@dataclass(frozen=True, kw_only=True)
class CostItem:
    """One item that is billed by the hour.

    Attributes:
        component: component of the stack.
        name: name of the item.
        count: number while training.
        maximum: maximum number.
        on_demand: USD per hour for one; None if unknown.
        spot: USD per hour for one as a spot machine; equal to `on_demand` for items without spot.
        of_gpu_pool: whether it belongs to the nodes of a GPU pool, whose number follows the workers.
        configurable: whether `cost.prices` can set its price.
        is_disk: whether it is a disk or a volume, a small part of the cost.
        sources: sources of its prices in the table; empty for a configured or unknown price.
    """

    component: str
    name: str
    count: int
    maximum: int
    on_demand: float | None
    spot: float | None
    of_gpu_pool: bool = False
    configurable: bool = False
    is_disk: bool = False
    sources: tuple[prices.Source, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Total:
    """A sum of items, in USD per hour.

    Attributes:
        usd: the sum of the known prices.
        unknown: names of the items without a known price, which make the true sum higher.
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
        items: items that are billed by the hour.
        as_of: date of the oldest dated price, YYYY-MM-DD.
        notes: caveats, such as usage-based costs.
        between_zones: price of traffic between zones in USD per GB, sent and received.
        undated: names of the sources of prices that state no date.
    """

    items: tuple[CostItem, ...]
    as_of: str
    notes: tuple[str, ...]
    between_zones: float = 0.0
    undated: tuple[str, ...] = ()

    @property
    def fixed_items(self) -> tuple[CostItem, ...]:
        """Items that do not belong to GPU nodes.

        They are billed whether these run or not, except the volumes of workers, whose price is not known.
        """
        return tuple(item for item in self.items if item.count and not item.of_gpu_pool)

    def total(self, *, spot: bool, maximum: bool = False) -> Total:
        """Return the sum at spot or on-demand prices, while training or with the maximum number of nodes."""
        prices_by_item = [
            (item, item.maximum if maximum else item.count, item.spot if spot else item.on_demand)
            for item in self.items
        ]
        billed_items = [(item, count, price) for item, count, price in prices_by_item if count]
        known_costs = (count * price for _, count, price in billed_items if price is not None)
        unknown = {item.name: None for item, _, price in billed_items if price is None}
        return Total(usd=round(sum(known_costs), 4), unknown=tuple(unknown))


@dataclass(frozen=True, kw_only=True)
class GpuPoolPrice:
    """The prices of one machine of a pool of GPU nodes with its disk, in USD per hour.

    Attributes:
        name: name of the pool; empty for `gpuPool` on EKS.
        machines: its machine types.
        zones: zones of its machines; empty: the cloud chooses.
        maximum: maximum number of machines.
        fallback: whether it serves only while spot pools have no capacity.
        spot: whether its machines are spot machines.
        label: its name in the label of its nodes; empty for a pool of `gpuPool`.
        price: price under the pool's capacity type; None if unknown.
        on_demand: on-demand price; None if unknown.
        disk: price of the disk, which both prices include; None if it is unknown and not included.
        disk_name: name of the disk.
        reservation: id of its capacity reservation; empty without one.
        prepaid: whether the reservation is a Capacity Block: its machines cost nothing more, so `price` is the
            price of the disk.
        max_price: price with the disk above which the cloud starts no machine; None without a ceiling.
    """

    name: str
    machines: tuple[str, ...]
    zones: tuple[str, ...]
    maximum: int
    fallback: bool
    spot: bool
    label: str
    price: float | None
    on_demand: float | None
    disk: float | None
    disk_name: str
    reservation: str = ""
    prepaid: bool = False
    max_price: float | None = None

    @property
    def guaranteed(self) -> bool:
        """Whether its machines are on-demand or reserved machines, and not only a fallback for spot."""
        return not (self.spot or self.fallback)

    @property
    def admitted(self) -> bool:
        """Whether its price is not above its ceiling; an unknown price is not compared."""
        return self.max_price is None or self.price is None or self.price <= self.max_price

    @property
    def marginal_price(self) -> float | None:
        """Price of one more machine; only its disk if the machine is reserved, and so paid for in any case."""
        return (self.disk or 0.0) if self.reservation and self.price is not None else self.price

    @property
    def reserved_usd_per_hour(self) -> float:
        """Price of all its reserved machines without disks, used or not; 0 if prepaid, unknown or not reserved."""
        if not self.reservation or self.price is None or self.marginal_price is None:
            return 0.0
        return self.maximum * (self.price - self.marginal_price)


def pool_prices(config: StackConfig) -> tuple[GpuPoolPrice, ...]:
    """Return the prices of the GPU pools in order of preference, fallbacks last; empty if there is none."""
    cluster = config.cluster
    if isinstance(cluster, EksConfig):
        prices = [
            _eks_pool_price(pool, pool.settings.instance_types, config, fallback=fallback)
            for fallback in (False, True)
            for pool in cluster.pools
        ]
    elif isinstance(cluster, AksConfig):
        prices = [_aks_pool_price(pool, cluster, config) for pool in cluster.pools]
    else:
        prices = []
    return tuple(price for price in prices if price.maximum)


def machine_prices(config: StackConfig) -> tuple[GpuPoolPrice, ...]:
    """Return the prices of each machine type of each pool and of its fallback, without pools that have no machines.

    A pool of AKS has one type.
    """
    cluster = config.cluster
    if not isinstance(cluster, EksConfig):
        return pool_prices(config)
    prices = (
        _eks_pool_price(pool, (machine,), config, fallback=fallback)
        for pool in cluster.pools
        for machine in pool.settings.instance_types
        for fallback in (False, True)
    )
    return tuple(price for price in prices if price.maximum)


def _eks_pool_price(
    pool: EksPool, machines: Sequence[str], config: StackConfig, *, fallback: bool
) -> GpuPoolPrice:
    """Return the prices of some machine types of a pool, or of its on-demand fallback."""
    gpu, cluster = pool.settings, as_kind(config.cluster, EksConfig)
    reservation = None if fallback else gpu.reservation
    return _pool_price(
        pool.name,
        tuple(machines),
        _highest_price(machines, cluster.region, config),
        _disk("", gpu.disk_gib, "gp3", (0, 0)),
        reservation=reservation.id if reservation else "",
        prepaid=bool(reservation and reservation.capacity_block),
        zones=(pool.zone,),
        maximum=gpu.fallback_nodes if fallback else gpu.max_nodes,
        spot=gpu.capacity == "spot" and not fallback,
        fallback=fallback,
        label=pool.name,
    )


def _aks_pool_price(pool: AksPool, cluster: AksConfig, config: StackConfig) -> GpuPoolPrice:
    """Return the prices of a pool."""
    ceiling = pool.settings.max_price if pool.spot else NO_MAX_PRICE
    return _pool_price(
        pool.name,
        (pool.vm_size,),
        _highest_price([pool.vm_size], cluster.location, config),
        _aks_disk("", aks_disks.os_disk(pool.vm_size, pool.settings.disk_gib), (0, 0)),
        zones=pool.zones,
        maximum=pool.max_nodes,
        spot=pool.spot,
        fallback=pool.fallback,
        label=pool.label,
        ceiling=None if ceiling == NO_MAX_PRICE else ceiling,
    )


def _pool_price(
    name: str,
    machines: tuple[str, ...],
    price: "_Price",
    disk: CostItem,
    *,
    zones: tuple[str, ...],
    maximum: int,
    spot: bool,
    fallback: bool,
    label: str,
    reservation: str = "",
    prepaid: bool = False,
    ceiling: float | None = None,
) -> GpuPoolPrice:
    disk_price = disk.on_demand or 0.0
    rate = 0.0 if prepaid else price.spot if spot else price.on_demand
    return GpuPoolPrice(
        name=name,
        machines=machines,
        zones=zones,
        maximum=maximum,
        fallback=fallback,
        spot=spot,
        label=label,
        price=None if rate is None else rate + disk_price,
        on_demand=None if price.on_demand is None else price.on_demand + disk_price,
        disk=disk.on_demand,
        disk_name=disk.name,
        reservation=reservation,
        prepaid=prepaid,
        max_price=None if ceiling is None else ceiling + disk_price,
    )


def estimate(config: StackConfig) -> Cost:
    """Return the cost of a stack, which is 0 on existing machines."""
    cluster = config.cluster
    if isinstance(cluster, EksConfig):
        items = [*_eks(cluster, config), *_fsx(config), *_data_cache(config)]
        notes = [*_reservations(config), *_between_zones(cluster, config)]
        return _cost(items, cluster.region, "us-east-1", "betweenZonesAws", notes)
    if isinstance(cluster, AksConfig):
        items = [*_aks(cluster, config), *_data_cache(config)]
        notes = ceiling_notes(pool_prices(config))
        return _cost(items, cluster.location, "eastus", "betweenZonesAzure", notes)
    note = "the stack creates no machines: it runs on existing ones"
    return Cost(items=(), as_of=prices.AS_OF, notes=(note,))


def _cost(
    items: Iterable[CostItem],
    region: str,
    price_region: str,
    between_zones: str,
    further_notes: Sequence[str] = (),
) -> Cost:
    """Return the cost of the items, with notes on its region and on costs that are not included."""
    other_region = f"services and storage are priced as in {price_region}; {region} may differ"
    notes = (USAGE_NOTE,) if region == price_region else (other_region, USAGE_NOTE)
    all_items = tuple(items)
    sources = {source: None for item in all_items if item.maximum for source in item.sources}
    undated = tuple(source.name for source in sources if source.date is None)
    return Cost(
        items=all_items,
        as_of=min((source.date for source in sources if source.date), default=prices.AS_OF),
        notes=(*_undated_note(undated), *notes, *further_notes),
        between_zones=2 * prices.traffic(between_zones),
        undated=undated,
    )


def _undated_note(undated: Sequence[str]) -> list[str]:
    """Return a note on sources that state no date; empty without any."""
    if not undated:
        return []
    return [f"the date of some prices is unknown; they are from {' and from '.join(undated)}"]


def ceiling_notes(pools: Iterable[GpuPoolPrice]) -> list[str]:
    """Return a note on each pool whose price is above its ceiling: the cloud starts none of its machines."""
    return [
        f"the pool {pool.name} gets no machine: {' or '.join(pool.machines)} costs "
        f"{pool.price - (pool.disk or 0.0):g} USD an hour on spot, above its maxPrice "
        f"{pool.max_price - (pool.disk or 0.0):g}"
        for pool in pools
        if not pool.admitted and pool.price is not None and pool.max_price is not None
    ]


def _reservations(config: StackConfig) -> list[str]:
    """Return a note on each reservation, which is not part of the stack and is billed even without it."""
    notes = []
    for pool in pool_prices(config):
        name = f"pool {pool.name}" if pool.name else "GPU pool"
        if pool.prepaid:
            notes.append(
                f"the Capacity Block {pool.reservation} of the {name} was paid in advance: its price is not included, "
                "and an unused machine is not refunded"
            )
        elif pool.reservation:
            notes.append(
                f"the Capacity Reservation {pool.reservation} of the {name} is billed by AWS from its creation to its "
                f"cancellation, used or not: the estimate counts {pool.maximum} instances, the maxNodes of the pool; "
                "a larger reservation costs more"
            )
    return notes


def _between_zones(cluster: EksConfig, config: StackConfig) -> list[str]:
    """Return notes on traffic between zones, which AWS bills in both directions."""
    one_way = prices.traffic("betweenZonesAws")
    price = f"{2 * one_way:g} USD per GB ({one_way:g} in each direction)"
    storage = config.storage
    existing = storage.existing if isinstance(storage, FsxConfig) else None
    storage_zone = existing.zone if existing else cluster.file_system_zone
    other_zones = [zone for zone in cluster.gpu_zones if zone != storage_zone]
    notes = []
    if other_zones:
        notes.append(
            f"workers in {' or '.join(other_zones)} read and write the file system in {storage_zone} across zones: "
            f"{price}"
        )
    if config.job.spread_zones:
        notes.append(f"job.spreadZones lets gradients cross zones in every step: {price}")
    return notes


def _counts(cluster: EksConfig | AksConfig, nodes: int, max_nodes: int) -> tuple[int, int]:
    """Return the number of a pool's nodes and their maximum, which only the autoscaler can reach."""
    return nodes, max_nodes if cluster.autoscaling.enabled else nodes


def _eks(cluster: EksConfig, config: StackConfig) -> list[CostItem]:
    """Return the items of a cluster on EKS."""
    system, region = cluster.system_pool, cluster.region
    counts = _counts(cluster, system.nodes, system.max_nodes)
    gateways = len(cluster.node_zones) if cluster.network.nat_per_zone else 1
    gateways = 0 if cluster.network.vpc_id else gateways
    training = _training_nodes(cluster, config)
    return [
        *(
            item
            for pool, nodes in zip(cluster.pools, training, strict=True)
            for item in _eks_gpu(pool, nodes, cluster, config)
        ),
        _pool(
            "system pool",
            system.instance_types[0],
            counts,
            _highest_price(system.instance_types[:1], region, config),
            spot=False,
        ),
        _disk("system pool", system.disk_gib, "gp3", counts),
        *_eks_etcd(config),
        _service("control plane", "EKS, standard support", "eks", 1),
        _service("network", "NAT gateway", "natGatewayAws", gateways),
        _service("network", "public IPv4 address", "publicAddressAws", gateways),
    ]


def _eks_gpu(pool: EksPool, nodes: int, cluster: EksConfig, config: StackConfig) -> list[CostItem]:
    """Return the items of a GPU pool and its fallback.

    Args:
        pool: the pool.
        nodes: number of its nodes while training, and the maximum without autoscaling.
        cluster: the cluster of the pool.
        config: the configuration of the stack.
    """
    gpu, suffix = pool.settings, f" {pool.name}" if pool.name else ""
    price = _highest_price(gpu.instance_types, cluster.region, config)
    types = " or ".join(gpu.instance_types)
    counts = _counts(cluster, nodes, gpu.max_nodes)
    fallback_counts = (0, gpu.fallback_nodes)
    items = [
        _reserved(f"GPU pool{suffix}", types, gpu, price, counts)
        if gpu.reservation
        else _pool(f"GPU pool{suffix}", types, counts, price, spot=gpu.capacity == "spot"),
        _disk(f"GPU pool{suffix}", gpu.disk_gib, "gp3", counts),
        _pool(f"GPU fallback{suffix}", types, fallback_counts, price, spot=False),
        _disk(f"GPU fallback{suffix}", gpu.disk_gib, "gp3", fallback_counts),
    ]
    return [replace(item, of_gpu_pool=True) for item in items]


def _eks_etcd(config: StackConfig) -> list[CostItem]:
    """Return the item of the disks of etcd's members, if they have any.

    EKS creates no StorageClass for them, so that the price of a disk of the user's class is unknown.
    """
    etcd = config.etcd
    if etcd.persistence != "disk":
        return []
    name = f"volume of {ETCD_DISK_GIB} GiB, StorageClass {etcd.storage_class}"
    return [_volumes("etcd", name, etcd.members, None)]


def _reserved(
    component: str, types: str, gpu: EksGpuPoolConfig, price: "_Price", counts: tuple[int, int]
) -> CostItem:
    """Return the item of reserved machines, which are billed whether they run or not."""
    if gpu.reservation and gpu.reservation.capacity_block:
        return _pool(component, f"{types}, prepaid", counts, _Price(0.0, 0.0), spot=False)
    counts = (gpu.max_nodes, gpu.max_nodes)
    return _pool(component, f"{types}, reserved, used or not", counts, price, spot=False)


def _training_nodes(cluster: EksConfig | AksConfig, config: StackConfig) -> list[int]:
    """Return the GPU nodes of each pool while training: with autoscaling, one for each desired worker.

    Workers fill the pools of `cluster.gpuPools` in their order, each up to its maximum; by default, only pools in the
    zone of the first one. With `cluster.gpuPool`, only the first pool gets workers.
    """
    pools = [_Sizes.from_pool(pool) for pool in cluster.pools]
    if not cluster.autoscaling.enabled:
        return [min(pool.nodes, pool.maximum) for pool in pools]
    remaining, counts = config.job.desired_workers, []
    for pool in pools:
        usable = config.job.spread_zones or not cluster.gpu_pools or pool.zones == pools[0].zones
        workers = 0 if pool.fallback or not usable else remaining
        counts.append(min(max(pool.nodes, workers), pool.maximum))
        remaining = max(0, remaining - counts[-1]) if cluster.gpu_pools else 0
    return counts


@dataclass(frozen=True)
class _Sizes:
    """The sizes of a pool of either cloud."""

    nodes: int
    maximum: int
    zones: tuple[str, ...]
    fallback: bool = False

    @classmethod
    def from_pool(cls, pool: EksPool | AksPool) -> "_Sizes":
        """Return the sizes of a pool."""
        if isinstance(pool, EksPool):
            return cls(pool.settings.nodes, pool.settings.max_nodes, (pool.zone,))
        return cls(pool.nodes, pool.max_nodes, pool.zones, pool.fallback)


def _fsx(config: StackConfig) -> list[CostItem]:
    """Return the item of a new file system; an existing one is not included."""
    storage = config.storage
    if not isinstance(storage, FsxConfig) or storage.existing is not None:
        return []
    name = f"FSx for Lustre {storage.tier}, {storage.size_gib} GiB"
    return [
        _fixed(
            "storage",
            name,
            1,
            prices.storage(storage.tier, storage.size_gib),
            prices.storage_source(storage.tier),
        )
    ]


def _data_cache(config: StackConfig) -> list[CostItem]:
    """Return the item of the volumes of `data.cache.storageClass`, one for each worker."""
    cache = config.data.cache
    if cache is None or cache.storage_class is None:
        return []
    name = f"volume of {cache.size}, StorageClass {cache.storage_class}"
    return [_volumes("data cache", name, config.job.desired_workers, None)]


def _aks(cluster: AksConfig, config: StackConfig) -> list[CostItem]:
    """Return the items of a cluster on AKS."""
    system, location = cluster.system_pool, cluster.location
    counts = _counts(cluster, system.nodes, system.max_nodes)
    gateways = 0 if cluster.network.subnet_id or cluster.network.firewall_ip else 1
    training = _training_nodes(cluster, config)
    return [
        *(
            item
            for pool, nodes in zip(cluster.pools, training, strict=True)
            for item in _aks_gpu(pool, nodes, cluster, config)
        ),
        _pool(
            "system pool",
            system.vm_size,
            counts,
            _highest_price([system.vm_size], location, config),
            spot=False,
        ),
        _aks_disk("system pool", aks_disks.os_disk(system.vm_size, system.disk_gib), counts),
        *_aks_etcd(cluster, config),
        _service("control plane", "AKS, Standard tier", "aksStandard", 1),
        _service("network", "NAT gateway", "natGatewayAzure", gateways),
        _service("network", "public IPv4 address", "publicAddressAzure", gateways),
        _service(
            "registry", "ACR, Standard tier", "acrStandard", int(config.registry.kind == "acr")
        ),
    ]


def _aks_gpu(pool: AksPool, nodes: int, cluster: AksConfig, config: StackConfig) -> list[CostItem]:
    """Return the items of a GPU pool: its machines and their disks."""
    counts = _counts(cluster, nodes, pool.max_nodes)
    price = _highest_price([pool.vm_size], cluster.location, config)
    component = f"GPU pool {pool.name}"
    items = [
        _pool(component, pool.vm_size, counts, price, spot=pool.spot),
        _aks_disk(component, aks_disks.os_disk(pool.vm_size, pool.settings.disk_gib), counts),
    ]
    return [replace(item, of_gpu_pool=True) for item in items]


def _aks_etcd(cluster: AksConfig, config: StackConfig) -> list[CostItem]:
    """Return the item of the disks of etcd's members, if they have any."""
    etcd = config.etcd
    if etcd.persistence != "disk":
        return []
    zones = {*cluster.system_pool.zones, *cluster.gpu_zones}
    disk = aks_disks.volume(etcd.storage_class, ETCD_DISK_GIB, zones)
    return [_volumes("etcd", disk.name, etcd.members, disk.usd_per_hour, disk.sources)]


@dataclass(frozen=True)
class _Price:
    """The prices of a machine in USD per hour and their sources; an unknown price is None."""

    on_demand: float | None
    spot: float | None
    sources: tuple[prices.Source, ...] = ()


def _highest_price(machines: Sequence[str], region: str, config: StackConfig) -> _Price:
    """Return the highest price of several types, because the cloud may choose any of them.

    The result is unknown if one of the prices is unknown.
    """
    prices = [machine_price(machine, region, config.cost.prices) for machine in machines]
    return _Price(
        _maximum_if_known([price.on_demand for price in prices]),
        _maximum_if_known([price.spot for price in prices]),
        tuple(dict.fromkeys(price.source for price in prices if price.source)),
    )


def _maximum_if_known(prices: Sequence[float | None]) -> float | None:
    known_prices = [price for price in prices if price is not None]
    return max(known_prices) if len(known_prices) == len(prices) else None


def _pool(
    component: str, name: str, counts: tuple[int, int], price: _Price, *, spot: bool
) -> CostItem:
    """Return the item of a pool's machines."""
    return replace(_item(component, name, counts, price, spot=spot), configurable=True)


def _item(
    component: str, name: str, counts: tuple[int, int], price: _Price, *, spot: bool
) -> CostItem:
    count, maximum = counts
    spot_price = price.spot if spot else price.on_demand
    return CostItem(
        component=component,
        name=name,
        count=count,
        maximum=maximum,
        on_demand=price.on_demand,
        spot=spot_price,
        sources=price.sources,
    )


def _disk(component: str, gib: int, kind: str, counts: tuple[int, int]) -> CostItem:
    usd = prices.storage(kind, gib)
    price = _Price(usd, usd, (prices.storage_source(kind),))
    return replace(_item(component, f"disk of {gib} GiB", counts, price, spot=False), is_disk=True)


def _aks_disk(component: str, disk: aks_disks.Disk, counts: tuple[int, int]) -> CostItem:
    price = _Price(disk.usd_per_hour, disk.usd_per_hour, disk.sources)
    return replace(_item(component, disk.name, counts, price, spot=False), is_disk=True)


def _volumes(
    component: str,
    name: str,
    count: int,
    price: float | None,
    sources: tuple[prices.Source, ...] = (),
) -> CostItem:
    item = _item(component, name, (count, count), _Price(price, price, sources), spot=False)
    return replace(item, is_disk=True)


def _service(component: str, name: str, key: str, count: int) -> CostItem:
    return _fixed(component, name, count, prices.service(key), prices.service_source(key))


def _fixed(
    component: str, name: str, count: int, price: float | None, source: prices.Source | None = None
) -> CostItem:
    sources = () if price is None or source is None else (source,)
    return _item(component, name, (count, count), _Price(price, price, sources), spot=False)


def as_text(cost: Cost) -> str:
    """Return a text table for a terminal or a comment, with sums and notes below it."""
    billed_items = [item for item in cost.items if item.maximum]
    rows = [("component", "item", "count", "on demand", "spot"), *map(_row, billed_items)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    text = [_aligned(row, widths) for row in rows]
    if billed_items:
        text.insert(1, "-" * len(text[0]))
        text += ["", *_sums(cost)]
    notes = [
        f"Prices of {cost.as_of} or later.",
        *(f"{note[0].upper()}{note[1:]}." for note in cost.notes),
    ]
    return "\n".join([*(text if billed_items else []), *([""] if billed_items else []), *notes])


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
    configurable = {item.name for item in cost.items if item.configurable}
    unknown = cost.total(spot=True, maximum=True).unknown
    if machines := ", ".join(name for name in unknown if name in configurable):
        lines.append(f"No price is known for {machines}: set everstep:cost.prices to include them.")
    lines += [
        f"No price is known for {name}: it is not included."
        for name in unknown
        if name not in configurable
    ]
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
