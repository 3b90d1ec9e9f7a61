"""The deadline, the budget and the prices in the spec of an ElasticJob."""

from typing import Any

from cloudfacts.prices import HOURS_PER_MONTH, machine

from components.config import StackConfig, from_mapping
from components.spending import DIGITS, job_spending, zone_ceilings, zone_prices
from tests.components.config.bad_stacks import AKS, EKS, LOCAL, pools, with_changes

PRICES = {"g5.xlarge": {"onDemand": 2.0, "spot": 0.5}}
# List prices in USD: gp3 and SCRATCH_2 per GiB and month, all others per hour.
EKS_GPU_DISK = 100 * 0.08 / HOURS_PER_MONTH
AKS_GPU_DISK = 0.0  # a machine's own disk holds it
SYSTEM_NODES = 2 * (0.192 + 50 * 0.08 / HOURS_PER_MONTH)
CONTROL_PLANE_AND_GATEWAY = 0.1 + 0.045 + 0.005
FILE_SYSTEM = 1200 * 0.14 / HOURS_PER_MONTH
EKS_FIXED = SYSTEM_NODES + CONTROL_PLANE_AND_GATEWAY + FILE_SYSTEM


def rounded(usd: float) -> float:
    """Return a price as the ElasticJob and its annotations state it."""
    return round(usd, DIGITS)


def stack(base: dict[str, Any], **changes: Any) -> StackConfig:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    return from_mapping(with_changes(base, keys))


def test_a_job_without_limits_has_no_spending() -> None:
    assert job_spending(from_mapping(EKS)) is None


def test_a_deadline_is_a_number_of_seconds_or_a_time() -> None:
    day = job_spending(stack(LOCAL, job__deadline="1.5d", job__onDemand="never"))
    time = job_spending(stack(LOCAL, job__deadline="2030-01-01T00:00:00Z", job__onDemand="never"))

    assert day == {"deadlineSeconds": 129600, "onDemand": "never"}
    assert time == {"deadline": "2030-01-01T00:00:00Z", "onDemand": "never"}


def test_each_pool_has_the_price_of_its_machines_with_their_disks_from_the_table() -> None:
    base = with_changes(EKS, pools(EKS, a={"fallbackNodes": 1}) | {"cost.prices": PRICES})
    spending = job_spending(stack(base, job__budgetUsd=50))

    assert spending is not None
    assert spending["budgetUsd"] == 50
    assert spending["fixedUsdPerHour"] == rounded(EKS_FIXED)
    assert spending["pools"] == [
        {"pool": "a", "capacity": "spot", "usdPerHour": rounded(0.5 + EKS_GPU_DISK)},
        {"pool": "a", "capacity": "onDemand", "usdPerHour": rounded(2.0 + EKS_GPU_DISK)},
        {"pool": "b", "capacity": "spot", "usdPerHour": rounded(0.5 + EKS_GPU_DISK)},
    ]


def test_a_job_that_may_buy_machines_has_the_number_that_the_pools_allow() -> None:
    """Workers that may not spread over zones need the nodes in each zone."""
    base = with_changes(EKS, pools(EKS, a={"fallbackNodes": 2}, b={"fallbackNodes": 3}))

    def max_on_demand(policy: str, **changes: Any) -> Any:
        spending = job_spending(stack(base, job__onDemand=policy, **changes))
        assert spending is not None
        return spending.get("maxOnDemand")

    assert max_on_demand("fallback", job__spreadZones=True) == 5
    assert max_on_demand("fallback", job__spreadZones=False) == 2
    assert max_on_demand("never") is None


def test_each_zone_has_the_price_of_its_cheapest_spot_pool() -> None:
    cheap_pool = {"name": "c", "zone": "us-east-1a", "instanceTypes": ["g6.xlarge"]}
    changes = pools(EKS, a={"fallbackNodes": 1}, b={"zone": "us-east-1b"})
    changes["cluster.gpuPools"].append(cheap_pool)
    spot = {"g5.xlarge": 0.5, "g6.xlarge": 0.25}
    table = {name: {"onDemand": 2.0, "spot": price} for name, price in spot.items()}

    by_zone = zone_prices(from_mapping(with_changes(EKS, changes | {"cost.prices": table})))

    assert by_zone == {
        "us-east-1a": rounded(0.25 + EKS_GPU_DISK),
        "us-east-1b": rounded(0.5 + EKS_GPU_DISK),
    }


def test_the_price_of_an_on_demand_fallback_is_not_the_price_of_its_zone() -> None:
    unpriced = {"instanceTypes": ["g4dn.xlarge"], "fallbackNodes": 1}
    assert machine("g4dn.xlarge", "us-east-1").spot is None, (
        "the test needs a type without a spot price"
    )

    config = from_mapping(with_changes(EKS, pools(EKS, a=unpriced, b=unpriced)))

    assert zone_prices(config) == {}


def test_azure_zones_are_named_as_in_node_labels_and_zones_without_a_price_are_absent() -> None:
    config = from_mapping(with_changes(AKS, pools(AKS)))

    assert zone_prices(config).keys() == {"eastus-1", "eastus-2"}
    unpriced = config.model_copy(
        update={"cluster": config.cluster.model_copy(update={"location": "x"})}
    )
    assert zone_prices(unpriced) == {}
    assert zone_prices(from_mapping(LOCAL)) == {}


def test_a_zone_has_the_ceiling_of_its_pool_and_a_pool_above_its_ceiling_is_passed_over() -> None:
    size = {"vmSize": "Standard_NC4as_T4_v3"}
    expensive = {"vmSize": "Standard_NC8as_T4_v3"}
    listed = [
        {"name": "low", "zone": "1", "maxPrice": 0.1, **size},
        {"name": "high", "zone": "1", "maxPrice": 0.5, **expensive},
        {"name": "only", "zone": "2", "maxPrice": 0.1, **size},
        {"name": "free", "zone": "3", **size},
    ]
    table = {
        "Standard_NC4as_T4_v3": {"onDemand": 0.6, "spot": 0.2},
        "Standard_NC8as_T4_v3": {"onDemand": 0.9, "spot": 0.4},
    }
    config = from_mapping(with_changes(AKS, {"cluster.gpuPools": listed, "cost.prices": table}))

    prices, ceilings = zone_prices(config), zone_ceilings(config)

    assert prices == {
        "eastus-1": rounded(0.4 + AKS_GPU_DISK),
        "eastus-2": rounded(0.2 + AKS_GPU_DISK),
        "eastus-3": rounded(0.2 + AKS_GPU_DISK),
    }
    assert ceilings == {
        "eastus-1": rounded(0.5 + AKS_GPU_DISK),
        "eastus-2": rounded(0.1 + AKS_GPU_DISK),
    }, "ceilings include the disk, as the prices do"


def test_a_zone_with_a_pool_of_unknown_price_has_no_ceiling() -> None:
    size, unpriced = "Standard_NC4as_T4_v3", "Standard_NC8as_T4_v3"
    assert machine(unpriced, "eastus").spot is None, "the test needs a size without a spot price"
    listed = [
        {"name": "low", "zone": "1", "vmSize": size, "maxPrice": 0.5},
        {"name": "unknown", "zone": "1", "vmSize": unpriced},
        {"name": "only", "zone": "2", "vmSize": size, "maxPrice": 0.5},
    ]
    config = from_mapping(with_changes(AKS, {"cluster.gpuPools": listed}))

    assert zone_prices(config).keys() == {"eastus-1", "eastus-2"}
    assert zone_ceilings(config) == {"eastus-2": rounded(0.5 + AKS_GPU_DISK)}, (
        "the price of the other pool cannot be compared"
    )


def test_reserved_machines_are_paid_for_as_long_as_the_job_runs() -> None:
    reserved = {
        "capacity": "onDemand",
        "reservation": {"id": "cr-0123456789abcdef0"},
        "maxNodes": 4,
    }
    base = with_changes(EKS, {"cost.prices": PRICES})
    config = from_mapping(with_changes(base, pools(EKS, b=reserved) | {"job.budgetUsd": 500}))
    spending = job_spending(config)

    assert spending is not None
    assert spending["fixedUsdPerHour"] == rounded(EKS_FIXED + 4 * 2.0)
    by_pool = {pool["pool"]: pool["usdPerHour"] for pool in spending["pools"]}
    assert by_pool["b"] == rounded(EKS_GPU_DISK), "a used machine adds its disk only"
    assert zone_prices(config)["us-east-1b"] == by_pool["b"]


def test_pools_that_the_controller_cannot_tell_apart_have_the_highest_of_their_prices() -> None:
    table = {
        "Standard_NC4as_T4_v3": {"onDemand": 0.6, "spot": 0.2},
        "Standard_NC24ads_A100_v4": {"onDemand": 3.0, "spot": 0.7},
    }
    spending = job_spending(stack(AKS, job__onDemand="never", cost__prices=table))

    assert spending is not None
    assert spending["pools"] == [{"capacity": "spot", "usdPerHour": rounded(0.7 + AKS_GPU_DISK)}]
