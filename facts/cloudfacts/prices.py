"""Prices of machines, services and storage, from a dated table."""

from dataclasses import dataclass
from typing import Any

from cloudfacts.data import load

HOURS_PER_MONTH = 730  # the number that AWS and Azure use in their own calculators

_TABLE: dict[str, Any] = load("prices")

AS_OF: str = _TABLE["asOf"]
"""The date of the table, YYYY-MM-DD."""


@dataclass(frozen=True, kw_only=True)
class MachinePrice:
    """The price of one machine in USD per hour; None if no source is known.

    Attributes:
        on_demand: price on demand.
        spot: price on the spot market on the table's date.
        source: source of the price.
    """

    on_demand: float | None = None
    spot: float | None = None
    source: str = ""


def machine(name: str, region: str) -> MachinePrice:
    """Return the price of an instance type or VM size in exactly this region or location."""
    row = _TABLE["machines"].get(region, {}).get(name)
    if row is None:
        return MachinePrice()
    source = _TABLE["sources"][row["source"]]
    return MachinePrice(on_demand=row["onDemand"], spot=row["spot"], source=source)


def service(name: str) -> float | None:
    """Return the price of a service in USD per hour; None if no source is known.

    Raises:
        KeyError: the table has no such service.
    """
    price: float | None = _TABLE["services"][name]["price"]
    return price


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


def traffic(kind: str) -> float:
    """Return the price of traffic in USD per GB, for one direction.

    Raises:
        KeyError: the table has no such kind of traffic.
    """
    price: float = _TABLE["traffic"][kind]["price"]
    return price
