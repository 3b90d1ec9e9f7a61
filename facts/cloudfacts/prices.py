"""Prices of machines, services and storage, from a table whose sources have dates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudfacts.data import load

HOURS_PER_MONTH = 730  # the number that AWS and Azure use in their own calculators

_TABLE: dict[str, Any] = load("prices")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A source of prices.

    Attributes:
        name: name of the price list.
        date: date of its oldest price, YYYY-MM-DD; None if the source states no date.
    """

    name: str
    date: str | None


SOURCES: Mapping[str, Source] = {key: Source(**entry) for key, entry in _TABLE["sources"].items()}

AS_OF: str = min(source.date for source in SOURCES.values() if source.date)
"""The date of the oldest dated price, YYYY-MM-DD."""


@dataclass(frozen=True, kw_only=True)
class MachinePrice:
    """The price of one machine in USD per hour; None if no source is known.

    Attributes:
        on_demand: price on demand.
        spot: price on the spot market on the date of the source.
        source: source of both prices; None for a price of a configuration, or without a price.
    """

    on_demand: float | None = None
    spot: float | None = None
    source: Source | None = None


def machine(name: str, region: str) -> MachinePrice:
    """Return the price of an instance type or VM size in exactly this region or location."""
    row = _TABLE["machines"].get(region, {}).get(name)
    if row is None:
        return MachinePrice()
    source = SOURCES[row["source"]]
    return MachinePrice(on_demand=row["onDemand"], spot=row["spot"], source=source)


def service(name: str) -> float | None:
    """Return the price of a service in USD per hour; None if no source is known.

    Raises:
        KeyError: the table has no such service.
    """
    price: float | None = _TABLE["services"][name]["price"]
    return price


def service_source(name: str) -> Source:
    """Return the source of a service's price.

    Raises:
        KeyError: the table has no such service.
    """
    return SOURCES[_TABLE["services"][name]["source"]]


def storage(kind: str, gib: int) -> float | None:
    """Return the price of storage in USD per hour; None if no source is known.

    Raises:
        KeyError: the table has no such kind of storage.
    """
    price: float | None = _TABLE["storage"][kind]["price"]
    return None if price is None else price * gib / HOURS_PER_MONTH


def disk(kind: str, gib: int) -> float | None:
    """Return the price of a managed disk of Azure in USD per hour; None if no source is known.

    Azure bills the smallest of its disk sizes that is large enough, whatever part of it is used.

    Args:
        kind: redundancy and type as a SKU of Azure, such as `Premium_LRS`.
        gib: size in GiB.

    Raises:
        KeyError: the table has no such kind of disk.
    """
    price_by_gib = {int(size): price for size, price in _TABLE["disks"][kind]["prices"].items()}
    billed_gib = min((size for size in price_by_gib if size >= gib), default=None)
    price: float | None = None if billed_gib is None else price_by_gib[billed_gib]
    return None if price is None else price / HOURS_PER_MONTH


def disk_source(kind: str) -> Source:
    """Return the source of a disk price.

    Raises:
        KeyError: the table has no such kind of disk.
    """
    return SOURCES[_TABLE["disks"][kind]["source"]]


def storage_source(kind: str) -> Source:
    """Return the source of a storage price.

    Raises:
        KeyError: the table has no such kind of storage.
    """
    return SOURCES[_TABLE["storage"][kind]["source"]]


def traffic(kind: str) -> float:
    """Return the price of traffic in USD per GB, for one direction.

    Raises:
        KeyError: the table has no such kind of traffic.
    """
    price: float = _TABLE["traffic"][kind]["price"]
    return price
