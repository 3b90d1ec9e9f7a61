"""Hourly prices of a stack, split into training machines and everything else."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from everstep.cli.report.machines import MachineKind, ReportedMachine
from everstep.cli.report.money import Billing, MachineRate, Rates

if TYPE_CHECKING:
    from components.config import StackConfig
    from components.cost import Cost, GpuPoolPrice

UNKNOWN_POOL = "unknown pool"
"""Display name of the pool of machines that no command observed or that match no pool, billed at the highest price."""


def billing_of(
    config: "StackConfig",
    unbilled_reason: str,
    machines: Mapping[str, ReportedMachine] | None = None,
) -> Billing:
    """Return the billing of a stack's run.

    Args:
        config: the stack's configuration.
        unbilled_reason: reason why a run on the stack's target costs nothing; empty if it is billed.
        machines: its machines, by the name of the node.
    """
    from components import cost

    rates = rates_of(cost.estimate(config), cost.machine_prices(config))
    return Billing(
        billed=not unbilled_reason,
        reason=unbilled_reason,
        rates=rates,
        machines={} if machines is None else machines,
    )


def rates_of(estimate: "Cost", pools: "Sequence[GpuPoolPrice]") -> Rates | None:
    """Return the prices of an estimate and of its training machines; None if the stack buys nothing."""
    others = estimate.fixed_items
    if not others and not pools:
        return None
    unknown = [name for pool in pools if pool.price is None for name in pool.machines]
    unknown += [item.name for item in others if item.on_demand is None]
    return Rates(
        most_expensive=_most_expensive(pools),
        machines={
            MachineKind(name, pool.label, on_demand=not pool.spot): MachineRate(
                _title(pool), pool.price, pool.on_demand
            )
            for pool in pools
            for name in pool.machines
        },
        fixed=sum(item.count * item.on_demand for item in others if item.on_demand is not None),
        between_zones=estimate.between_zones,
        as_of=estimate.as_of,
        unknown=tuple(dict.fromkeys(unknown)),
        notes=estimate.notes,
    )


def _title(pool: "GpuPoolPrice") -> str:
    """Return the display name of a pool."""
    name = pool.label or pool.name
    kind = "on-demand fallback" if pool.fallback else "spot" if pool.spot else "on demand"
    return f"{name}, {kind}" if name else kind


def _most_expensive(pools: "Sequence[GpuPoolPrice]") -> MachineRate:
    """Return the highest price, and the highest on-demand price, of all pools except fallbacks.

    Each is None if it is unknown for one of these pools.
    """
    main_pools = [pool for pool in pools if not pool.fallback]
    return MachineRate(
        UNKNOWN_POOL,
        _maximum([pool.price for pool in main_pools]),
        _maximum([pool.on_demand for pool in main_pools]),
    )


def _maximum(prices: list[float | None]) -> float | None:
    known_prices = [price for price in prices if price is not None]
    return max(known_prices) if known_prices and len(known_prices) == len(prices) else None
