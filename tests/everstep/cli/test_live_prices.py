"""Current prices: boto3 over HTTP against the twin's account, and a server with the format of Azure's price list."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from components.config import StackConfig, from_mapping
from components.cost import pool_prices
from everstep.cli import live_prices, plan_inputs
from everstep.cli.account.aws_account import AwsAccount
from everstep.errors import EverstepError
from tests.components.config.bad_stacks import AKS, EKS
from tests.http_servers import serving
from twin.tests.account_api.aws import AccountFacts, AwsApi, serve

ZONE_A, ZONE_B = "us-east-1a", "us-east-1b"
G5, G6 = "g5.xlarge", "g6.xlarge"
SPOT_PRICES = {(G5, ZONE_A): 0.41, (G5, ZONE_B): 0.29, (G6, ZONE_A): 0.31}
T4 = "Standard_NC4as_T4_v3"


def eks() -> StackConfig:
    pools = [
        {"name": zone[-1], "zone": zone, "instanceTypes": [G5], "maxNodes": 3}
        for zone in (ZONE_A, ZONE_B)
    ]
    base = EKS | {"cluster": EKS["cluster"] | {"gpuPools": pools}}
    return from_mapping(base)


@pytest.fixture
def no_aws_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide this machine's configuration of the AWS SDK."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.fixture
def credentials(no_aws_files: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")


@contextmanager
def account(monkeypatch: pytest.MonkeyPatch, folder: Path, **facts: Any) -> Iterator[None]:
    with serve(AwsApi(folder, AccountFacts(**facts))) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield


@pytest.mark.usefixtures("credentials")
def test_each_zone_of_aws_has_its_own_spot_price(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = eks()
    with account(monkeypatch, tmp_path, spot_prices=SPOT_PRICES):
        prices = live_prices.live_prices(config)

    zones_of_stack = plan_inputs.zones(config)
    zones = [
        plan_inputs.zone_with_prices(prices.config(config, zone.name), zone)
        for zone in zones_of_stack
    ]
    (disk,) = {pool.disk for pool in pool_prices(config)}
    assert [zone.price - (disk or 0.0) for zone in zones] == pytest.approx([0.41, 0.29])
    assert [zone.machines for zone in zones] == [zone.machines for zone in zones_of_stack]


@pytest.mark.usefixtures("credentials")
def test_the_spot_price_is_the_highest_of_the_zones_and_the_on_demand_price_comes_from_the_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = eks()
    with account(monkeypatch, tmp_path, spot_prices=SPOT_PRICES):
        config_with_prices = live_prices.live_prices(config).config(config)

    table_price, live_price = pool_prices(config)[0], pool_prices(config_with_prices)[0]
    assert live_price.price == pytest.approx(0.41 + (table_price.disk or 0.0))
    assert live_price.on_demand == table_price.on_demand


def test_the_newest_spot_price_of_all_pages_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def page(usd: str, hour: int, **fields: str) -> dict[str, object]:
        prices = [
            {
                "InstanceType": G5,
                "AvailabilityZone": zone,
                "SpotPrice": usd,
                "Timestamp": datetime(2026, 11, 1, hour, tzinfo=UTC),
            }
            for zone in (ZONE_A, ZONE_B)
        ]
        return {"SpotPriceHistory": prices, **fields}

    pages = {
        "": page("0.5", 2, NextToken="2"),
        "2": page("0.4", 3, NextToken="3"),
        "3": page("0.3", 1),
    }

    def call(_account: object, *_: str, **arguments: Any) -> dict[str, object]:
        return pages[arguments.get("NextToken", "")]

    monkeypatch.setattr(AwsAccount, "_call", call)

    prices = live_prices.live_prices(eks()).prices

    assert {price.spot for price in prices.values()} == {0.4}


@pytest.mark.usefixtures("credentials")
def test_a_machine_type_without_a_spot_price_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (
        account(monkeypatch, tmp_path, spot_prices={(G6, ZONE_A): 0.3}),
        pytest.raises(EverstepError, match=f"has no spot price of {G5}"),
    ):
        live_prices.live_prices(eks())


@pytest.mark.usefixtures("credentials")
def test_a_missing_permission_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    denied = frozenset({"ec2:DescribeSpotPriceHistory"})
    with (
        account(monkeypatch, tmp_path, denied=denied),
        pytest.raises(EverstepError, match="AccessDenied") as error,
    ):
        live_prices.live_prices(eks())
    assert "ec2:DescribeSpotPriceHistory" in error.value.fix


@pytest.mark.usefixtures("no_aws_files")
def test_without_credentials_the_error_says_how_to_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(
        EverstepError, match="--live cannot read the spot prices of us-east-1"
    ) as error:
        live_prices.live_prices(eks())
    assert "NoCredentialsError" in error.value.problem
    assert "aws sso login" in error.value.fix


# --- Azure --------------------------------------------------------------------------------------


def item(sku: str, price: float, **fields: object) -> dict[str, object]:
    """Return an item in the format of https://prices.azure.com/api/retail/prices."""
    return {
        "currencyCode": "USD", "tierMinimumUnits": 0.0, "retailPrice": price, "unitPrice": price,
        "armRegionName": "eastus", "location": "US East", "effectiveStartDate": "2026-11-01T00:00:00Z",
        "meterId": "0", "meterName": sku, "productId": "0", "skuId": "0", "availabilityId": None,
        "productName": "Virtual Machines NCasT4_v3 Series", "skuName": sku,
        "serviceName": "Virtual Machines", "serviceId": "0", "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour", "type": "Consumption", "isPrimaryMeterRegion": True,
        "armSkuName": T4, **fields,
    }  # fmt: skip


WINDOWS = {"productName": "Virtual Machines NCasT4_v3 Series Windows"}
ITEMS = [
    item("NC4as T4 v3", 0.526),
    item("NC4as T4 v3 Spot", 0.0789),
    # Above the on-demand price, so that its use would fail the test.
    item("NC4as T4 v3 Low Priority", 0.6),
    item("NC4as T4 v3", 0.71, **WINDOWS),
    item("NC4as T4 v3 Spot", 0.1065, **WINDOWS),
]


@contextmanager
def price_list(
    monkeypatch: pytest.MonkeyPatch, *pages: list[dict[str, object]]
) -> Iterator[list[str]]:
    """Serve pages of Azure's price list, and yield the filters of the requests for a first page."""
    filters: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            arguments = parse_qs(urlsplit(self.path).query)
            filters.extend(arguments.get("$filter", []))
            number = int(arguments.get("$skip", ["0"])[0])
            is_last = number + 1 >= len(pages)
            page = {
                "BillingCurrency": "USD",
                "Items": pages[number],
                "NextPageLink": None if is_last else f"{address}?$skip={number + 1}",
                "Count": len(pages[number]),
            }
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(page).encode())

        def log_message(self, *args: object) -> None:
            """Print nothing."""

    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        address = f"http://127.0.0.1:{port}/api/retail/prices"
        monkeypatch.setattr(live_prices, "AZURE_PRICES", address)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield filters


def aks() -> StackConfig:
    pool = {"vmSizes": [{"name": "t4", "vmSize": T4}]}
    return from_mapping(AKS | {"cluster": AKS["cluster"] | {"gpuPool": pool}})


def test_azure_has_spot_and_on_demand_prices_of_linux_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = aks()
    with price_list(monkeypatch, ITEMS[:1], ITEMS[1:]) as filters:
        prices = live_prices.live_prices(config)

    assert dict(prices.prices) == {(T4, ""): live_prices.LivePrice(0.0789, 0.526)}
    (query,) = filters
    assert f"armSkuName eq '{T4}'" in query
    assert f"armRegionName eq '{prices.region}'" in query
    machine_price = prices.config(config).cost.prices[T4]
    assert (machine_price.spot, machine_price.on_demand) == (0.0789, 0.526)


def test_a_page_of_another_server_is_not_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    with price_list(monkeypatch, ITEMS, ITEMS):
        monkeypatch.setattr(
            live_prices, "AZURE_PRICES", live_prices.AZURE_PRICES.replace("127.0.0.1", "localhost")
        )
        with pytest.raises(EverstepError, match="the next page is at"):
            live_prices.live_prices(aks())


def test_the_next_page_is_at_the_host_of_the_price_list() -> None:
    same_host = "https://prices.azure.com:443/api/retail/prices?$skip=100"
    other_host = "https://prices.azure.com.example/api/retail/prices?$skip=100"

    assert live_prices._next_page({"NextPageLink": same_host}) == same_host
    assert live_prices._next_page({"NextPageLink": None}) is None
    with pytest.raises(ValueError, match="the next page is at"):
        live_prices._next_page({"NextPageLink": other_host})


@pytest.mark.parametrize("items", [[], [{"type": "Consumption", "unitOfMeasure": "1 Hour"}]])
def test_a_price_list_without_the_machine_or_in_another_format_is_an_error(
    monkeypatch: pytest.MonkeyPatch, items: list[dict[str, object]]
) -> None:
    with (
        price_list(monkeypatch, items),
        pytest.raises(EverstepError, match=f"eastus has no spot price of {T4}"),
    ):
        live_prices.live_prices(aks())


def test_a_price_list_that_does_not_respond_is_named(
    monkeypatch: pytest.MonkeyPatch, refusing_port: int
) -> None:
    address = f"http://127.0.0.1:{refusing_port}/"
    monkeypatch.setattr(live_prices, "AZURE_PRICES", address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")

    with pytest.raises(
        EverstepError, match=f"--live cannot read the retail prices of Azure at {address}"
    ):
        live_prices.live_prices(aks())
