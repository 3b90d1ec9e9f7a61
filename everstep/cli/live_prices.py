"""Current prices of a stack's GPU machines, from its cloud: `everstep plan --live`.

AWS returns the spot price of each instance type in each zone to an account; on-demand prices come from the table.
Azure publishes both for a region, without an account. The prices of the GPU pools' machine types replace
`cost.prices`, where every cost computation reads them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudfacts import prices as table

from everstep.cli.account.aws_account import AwsAccount
from everstep.cli.account.checks import RequestError
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import StackConfig

AZURE_PRICES = "https://prices.azure.com/api/retail/prices"
AZURE_SECONDS = 20
LINUX = "Linux/UNIX"
ANY_ZONE = ""


@dataclass(frozen=True)
class LivePrice:
    """USD per hour of one machine type; None for a price that was not read from the cloud."""

    spot: float | None = None
    on_demand: float | None = None


@dataclass(frozen=True)
class LivePrices:
    """Prices by machine type and zone; the zone of a price for a whole region is empty.

    Attributes:
        source: their source, for messages.
        region: region of the stack.
        prices: the prices.
    """

    source: str
    region: str
    prices: Mapping[tuple[str, str], LivePrice]

    def config(self, config: "StackConfig", zone: str = ANY_ZONE) -> "StackConfig":
        """Return a configuration with these prices: the prices of one zone, or the highest of all zones.

        Raises:
            EverstepError: no on-demand price of a machine type is known.
        """
        from components.config import PriceConfig

        prices = dict(config.cost.prices)
        for machine in dict.fromkeys(machine for machine, _ in self.prices):
            price = self._price(machine, zone)
            machine_price = prices.get(machine)
            on_demand = price.on_demand or (machine_price.on_demand if machine_price else None)
            on_demand = on_demand or table.machine(machine, self.region).on_demand
            if on_demand is None:
                raise EverstepError(
                    f"no on-demand price is known for {machine} in {self.region}",
                    "Set everstep:cost.prices in the stack file: onDemand of this machine type.",
                )
            prices[machine] = PriceConfig.model_validate(
                {"onDemand": on_demand, "spot": price.spot}
            )
        cost = config.cost.model_copy(update={"prices": prices})
        return config.model_copy(update={"cost": cost})

    def _price(self, machine: str, zone: str) -> LivePrice:
        """Return the price of a machine type in a zone or in the whole region, else its highest price."""
        for key in ((machine, zone), (machine, ANY_ZONE)):
            if key in self.prices:
                return self.prices[key]
        machine_prices = [price for (name, _), price in self.prices.items() if name == machine]
        return max(machine_prices, key=lambda price: price.spot or 0.0)


def live_prices(config: "StackConfig") -> LivePrices:
    """Return the current prices of the machine types of a stack's GPU pools.

    Raises:
        EverstepError: the stack has no such pool, or its cloud does not return the price of a machine type.
    """
    from components import cost
    from components.config import AksConfig, EksConfig

    pools = cost.pool_prices(config)
    machines = tuple(dict.fromkeys(name for pool in pools for name in pool.machines))
    cluster = config.cluster
    if isinstance(cluster, EksConfig) and machines:
        return _aws_prices(cluster.region, machines)
    if isinstance(cluster, AksConfig) and machines:
        return _azure_prices(cluster.location, machines)
    raise EverstepError(
        "--live reads the prices of a stack's GPU machines, but this stack creates none",
        "Plan a cloud stack: everstep plan --stack eks-dev --live",
    )


def _require_all(
    source: str,
    region: str,
    machines: Sequence[str],
    prices: Mapping[tuple[str, str], LivePrice],
) -> LivePrices:
    """Return prices after a check that no machine type lacks its price.

    Raises:
        EverstepError: a machine type lacks its price.
    """
    missing = [name for name in machines if not any(name == machine for machine, _ in prices)]
    if missing:
        raise EverstepError(
            f"{source} has no spot price of {', '.join(missing)}",
            "Check the names and the region, or plan without --live.",
        )
    return LivePrices(source, region, prices)


# --- AWS ----------------------------------------------------------------------------------------


class _SpotMarket(AwsAccount):
    """The spot market of an account in one region."""

    def prices(self, machines: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Yield the current spot price of each instance type in each zone.

        Raises:
            RequestError: the request was refused, or there was no response.
        """
        token: dict[str, object] = {}
        now = datetime.now(UTC)
        while True:
            page = self._call(
                "ec2", "DescribeSpotPriceHistory", InstanceTypes=list(machines),
                ProductDescriptions=[LINUX], StartTime=now, EndTime=now, **token,
            )  # fmt: skip
            yield from page.get("SpotPriceHistory", ())
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}


def _aws_prices(region: str, machines: Sequence[str]) -> LivePrices:
    try:
        prices_by_time = sorted(
            _SpotMarket(region).prices(machines), key=lambda item: item["Timestamp"]
        )
    except RequestError as error:
        raise EverstepError(
            f"--live cannot read the spot prices of {region}: {error}",
            "Log in: `aws sso login`, or set AWS_PROFILE. The identity needs the action "
            "ec2:DescribeSpotPriceHistory. Without --live, prices come from the table.",
        ) from None
    prices = {
        (str(item["InstanceType"]), str(item["AvailabilityZone"])): LivePrice(
            spot=float(item["SpotPrice"])
        )
        for item in prices_by_time  # of several prices, the newest is kept
    }
    return _require_all(f"the spot market of {region}", region, machines, prices)


# --- Azure --------------------------------------------------------------------------------------


def _azure_prices(location: str, machines: Sequence[str]) -> LivePrices:
    items = [item for item in _retail_items(location, machines) if _is_linux_by_the_hour(item)]
    prices = {}
    for name in machines:
        machine_items = [item for item in items if item.get("armSkuName") == name]
        spot = [float(item["retailPrice"]) for item in machine_items if _is_spot(item)]
        on_demand = [float(item["retailPrice"]) for item in machine_items if not _is_spot(item)]
        if spot:
            prices[name, ANY_ZONE] = LivePrice(max(spot), max(on_demand, default=None))
    return _require_all(
        f"the retail price list of Azure for {location}", location, machines, prices
    )


def _is_linux_by_the_hour(item: Mapping[str, Any]) -> bool:
    """Return True if an item is the hourly price of a Linux machine, and not of a former low-priority machine."""
    names = f"{item.get('productName', '')} {item.get('skuName', '')}"
    return (
        isinstance(item.get("retailPrice"), int | float)
        and item.get("unitOfMeasure") == "1 Hour"
        and item.get("type") == "Consumption"
        and "Windows" not in names
        and "Low Priority" not in names
    )


def _is_spot(item: Mapping[str, Any]) -> bool:
    return str(item.get("skuName", "")).endswith(" Spot")


def _retail_items(location: str, machines: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the items of the price list for machine types.

    Raises:
        EverstepError: the price list does not respond, or its response is not as documented.
    """
    import requests

    sizes = " or ".join(f"armSkuName eq '{name}'" for name in machines)
    query = (
        f"serviceName eq 'Virtual Machines' and armRegionName eq '{location}' "
        f"and priceType eq 'Consumption' and ({sizes})"
    )
    address: str | None = AZURE_PRICES
    arguments: dict[str, str] | None = {"$filter": query}
    try:
        while address:
            response = requests.get(address, params=arguments, timeout=AZURE_SECONDS)
            response.raise_for_status()
            page = response.json()
            yield from page["Items"]
            address, arguments = _next_page(page), None
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        raise EverstepError(
            f"--live cannot read the retail prices of Azure at {AZURE_PRICES}: {error}",
            "Check the network and its proxy. Without --live, prices come from the table.",
        ) from None


def _next_page(page: Mapping[str, Any]) -> str | None:
    """Return the address of the next page; None after the last one.

    Raises:
        ValueError: the link is not an address of the price list.
    """
    address = page.get("NextPageLink")
    if not address:
        return None
    link, price_list = urlsplit(str(address)), urlsplit(AZURE_PRICES)
    if (link.scheme, link.hostname) != (price_list.scheme, price_list.hostname):
        raise ValueError(f"the next page is at {address}")
    return str(address)
