"""Hourly prices of a stack, split into training machines and everything else."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from everstep.cli.report.machines import MachineKind, ReportedMachine
from everstep.cli.report.money import Billing, MachineRate, Rates

if TYPE_CHECKING:
    from components.config import StackConfig
    from components.cost import GpuPoolPrice

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
    return Billing(
        billed=not unbilled_reason,
        reason=unbilled_reason,
        rates=rates_of(config),
        machines={} if machines is None else machines,
    )


def rates_of(config: "StackConfig") -> Rates | None:
    """Return the prices of a stack and of its training machines; None if the stack buys nothing.

    Reserved machines are part of the fixed price, used or not, so that a used one costs only its disk.
    """
    from components import cost, spending

    estimate, pools = cost.estimate(config), cost.machine_prices(config)
    others = estimate.fixed_items
    if not others and not pools:
        return None
    unknown = [name for pool in pools if pool.price is None for name in pool.machines]
    unknown += [item.name for item in others if item.on_demand is None]
    return Rates(
        most_expensive=_most_expensive(pools),
        machines={
            MachineKind(name, pool.label, on_demand=not pool.spot): MachineRate(
                _title(pool), pool.marginal_price, _on_demand(pool)
            )
            for pool in pools
            for name in pool.machines
        },
        fixed=spending.fixed_usd_per_hour(config),
        between_zones=estimate.between_zones,
        as_of=estimate.as_of,
        unknown=tuple(dict.fromkeys(unknown)),
        notes=estimate.notes,
    )


def _on_demand(pool: "GpuPoolPrice") -> float | None:
    """Return the on-demand price for comparison: a reserved machine saves nothing, it was paid for in any case."""
    return pool.marginal_price if pool.reservation else pool.on_demand


def _title(pool: "GpuPoolPrice") -> str:
    """Return the display name of a pool."""
    name = pool.label or pool.name
    kind = "on-demand fallback" if pool.fallback else "spot" if pool.spot else "on demand"
    return f"{name}, {kind}" if name else kind


def _most_expensive(pools: "Sequence[GpuPoolPrice]") -> MachineRate:
    """Return the highest price, and the highest on-demand price, of all pools, fallbacks included.

    Each is None if it is unknown for one of these pools.
    """
    return MachineRate(
        UNKNOWN_POOL,
        _maximum([pool.marginal_price for pool in pools]),
        _maximum([_on_demand(pool) for pool in pools]),
    )


def _maximum(prices: list[float | None]) -> float | None:
    known_prices = [price for price in prices if price is not None]
    return max(known_prices) if known_prices and len(known_prices) == len(prices) else None
