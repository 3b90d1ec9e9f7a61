"""The deadline, the budget and the prices of a job: the key `spending` of an ElasticJob's spec.

Upstream's API does not have this key. The Pulumi program writes the prices of its price table, so the
controller needs none. Errors are values, like errors in the rest of the spec.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from controller.timestamps import parse_time
from everstep.capacity.on_demand import OnDemand
from everstep.catalog.names import CAPACITY_LABEL, GPU_POOL_LABEL, ON_DEMAND

PATH = "spec.spending"
SPOT, ON_DEMAND_CAPACITY = "spot", "onDemand"
POSITIVE_NUMBERS = ("deadlineSeconds", "budgetUsd")
FIXED = "fixedUsdPerHour"
MAX_ON_DEMAND = "maxOnDemand"


@dataclass(frozen=True, kw_only=True)
class PoolPrice:
    """The price of one machine of a pool.

    Attributes:
        pool: value of its nodes' label GPU_POOL_LABEL; empty if they have no such label.
        on_demand: True if its machines are bought on demand.
        usd_per_hour: price of one machine.
    """

    pool: str
    on_demand: bool
    usd_per_hour: float


@dataclass(frozen=True, kw_only=True)
class SpendingSettings:
    """Budget and deadline of a job.

    Attributes:
        on_demand: policy for on-demand machines; None leaves them to the cluster autoscaler.
        deadline_seconds: time from the job's creation to its deadline; None if there is no such limit.
        deadline: absolute deadline; None if there is no such limit.
        budget_usd: amount that must not be exceeded; None without a budget.
        fixed_usd_per_hour: price of all billed resources besides the job's machines.
        pools: prices of the machines.
        max_on_demand: maximum number of on-demand machines that the pools allow; None without a limit.
    """

    on_demand: OnDemand | None = None
    deadline_seconds: float | None = None
    deadline: datetime | None = None
    budget_usd: float | None = None
    fixed_usd_per_hour: float = 0.0
    pools: tuple[PoolPrice, ...] = ()
    max_on_demand: int | None = None

    @property
    def has_deadline(self) -> bool:
        """True if the job has a deadline of either kind."""
        return self.deadline is not None or self.deadline_seconds is not None

    def deadline_of(self, created: datetime) -> datetime | None:
        """Return the time by which a job has to be complete; None without a deadline."""
        if self.deadline_seconds is None:
            return self.deadline
        return created + timedelta(seconds=self.deadline_seconds)

    def usd_per_hour(self, labels: Mapping[str, str]) -> float:
        """Return the price of a machine by its node's labels; for an unknown pool, the highest price of its kind."""
        on_demand = labels.get(CAPACITY_LABEL) == ON_DEMAND
        pool = labels.get(GPU_POOL_LABEL, "")
        prices = [price.usd_per_hour for price in self.pools if price.on_demand is on_demand]
        pool_prices = [
            price.usd_per_hour
            for price in self.pools
            if (price.pool, price.on_demand) == (pool, on_demand)
        ]
        return max(pool_prices or prices or [self.highest_usd_per_hour])

    @property
    def highest_usd_per_hour(self) -> float:
        """Price of a machine of the most expensive pool that the job may use."""
        usable_kinds = {
            OnDemand.NEVER: (False,),
            OnDemand.ALWAYS: (True,),
        }.get(self.on_demand or OnDemand.FALLBACK, (False, True))
        prices = [price.usd_per_hour for price in self.pools]
        usable_prices = [
            price.usd_per_hour for price in self.pools if price.on_demand in usable_kinds
        ]
        return max(usable_prices or prices or [0.0])


def read_spending(source: object) -> tuple[SpendingSettings | None, tuple[str, ...]]:
    """Parse the key; return the settings and no errors, or None and all errors."""
    if source is None:
        return None, ()
    if not isinstance(source, Mapping):
        return None, (f"{PATH} is {source!r}; set it to an object, or leave it out",)
    errors = (
        *_errors_of_numbers(source),
        *_errors_of_on_demand(source.get("onDemand")),
        *_errors_of_max_on_demand(source.get(MAX_ON_DEMAND)),
        *_errors_of_deadline(source),
        *_errors_of_pools(source),
    )
    if errors:
        return None, errors
    seconds, budget = source.get("deadlineSeconds"), source.get("budgetUsd")
    return SpendingSettings(
        on_demand=OnDemand(source["onDemand"]) if source.get("onDemand") else None,
        deadline_seconds=None if seconds is None else float(seconds),
        deadline=parse_time(source.get("deadline")),
        budget_usd=None if budget is None else float(budget),
        fixed_usd_per_hour=float(source.get(FIXED) or 0.0),
        pools=tuple(_pool(pool) for pool in source.get("pools") or ()),
        max_on_demand=source.get(MAX_ON_DEMAND),
    ), ()


def _pool(source: Mapping[str, Any]) -> PoolPrice:
    return PoolPrice(
        pool=source.get("pool") or "",
        on_demand=source["capacity"] == ON_DEMAND_CAPACITY,
        usd_per_hour=float(source["usdPerHour"]),
    )


def _errors_of_numbers(source: Mapping[str, Any]) -> list[str]:
    errors = [
        f"{PATH}.{name} is {source[name]!r}; set it to a number above 0 and below 1e9, or leave it out"
        for name in POSITIVE_NUMBERS
        if source.get(name) is not None and not _is_positive_number(source[name])
    ]
    fixed = source.get(FIXED)
    if (
        fixed is not None
        and not _is_positive_number(fixed)
        and (fixed != 0 or isinstance(fixed, bool))
    ):
        errors.append(
            f"{PATH}.{FIXED} is {fixed!r}; set it to 0 or a number above 0 and below 1e9, or leave it out"
        )
    return errors


def _errors_of_on_demand(value: object) -> list[str]:
    if value is None or value in list(OnDemand):
        return []
    return [f"{PATH}.onDemand is {value!r}; use one of {', '.join(OnDemand)}, or leave it out"]


def _errors_of_max_on_demand(value: object) -> list[str]:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return []
    return [
        f"{PATH}.{MAX_ON_DEMAND} is {value!r}; set it to a whole number from 0, or leave it out"
    ]


def _errors_of_deadline(source: Mapping[str, Any]) -> list[str]:
    deadline = source.get("deadline")
    if deadline is None:
        return []
    if source.get("deadlineSeconds") is not None:
        return [f"{PATH}.deadline is set together with deadlineSeconds; remove one of them"]
    try:
        parse_time(deadline)
    except (TypeError, ValueError):
        return [f"{PATH}.deadline is {deadline!r}; write it as 2026-12-24T18:00:00Z"]
    return []


def _errors_of_pools(source: Mapping[str, Any]) -> list[str]:
    pools = source.get("pools") or []
    if not isinstance(pools, list):
        return [f"{PATH}.pools is {pools!r}; set it to a list of prices"]
    if source.get("budgetUsd") is not None and not pools:
        return [f"{PATH}.budgetUsd has no prices; add {PATH}.pools"]
    rule = f"set capacity to {SPOT} or {ON_DEMAND_CAPACITY} and usdPerHour to a number above 0 and below 1e9"
    return [
        f"{PATH}.pools[{index}] is {pool!r}; {rule}"
        for index, pool in enumerate(pools)
        if not _is_pool(pool)
    ]


def _is_pool(pool: object) -> bool:
    return (
        isinstance(pool, Mapping)
        and pool.get("capacity") in (SPOT, ON_DEMAND_CAPACITY)
        and _is_positive_number(pool.get("usdPerHour"))
    )


def _is_positive_number(value: object) -> bool:
    """Return True for a number above 0 and below 1e9."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9
