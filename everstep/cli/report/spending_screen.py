"""Cost of a run's machines, on the terminal; docs/report.md has the definitions."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everstep.cli.report.money import Money, PoolSpending, as_sentence, usd

UNKNOWN = "unknown"


def spending_screen(cost: Money) -> RenderableType | None:
    """Return the machines of each pool with their price, and the sum; None for a stack that buys nothing."""
    if cost.prices_as_of is None:
        return None
    return Group(_pools_table(cost.pools), *(Text(sentence) for sentence in sentences(cost)))


def _pools_table(pools: Sequence[PoolSpending]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    table.add_column("pool", no_wrap=True)
    for name in ("machine-hours", "as bought", "on demand"):
        table.add_column(name, justify="right")
    for pool in pools:
        prices = (_usd(pool.spent_usd), _usd(pool.on_demand_usd))
        table.add_row(pool.pool, f"{pool.machine_hours:,.2f}", *prices)
    return table


def sentences(cost: Money) -> Iterator[str]:
    """Yield the cost of the whole stack during the run, in sentences."""
    if not cost.billed:
        yield f"Nothing was billed: {cost.reason}. The cloud would have billed these prices."
    if cost.spent_usd is None:
        yield f"The sum is unknown: no price is known for {', '.join(cost.unknown) or 'the machines'}."
        return
    yield (
        f"With all other resources of the stack: {usd(cost.spent_usd)}{_saved(cost)}, "
        f"at list prices of {cost.prices_as_of} or later."
    )
    if cost.unknown:
        yield f"Not included, because their price is unknown: {', '.join(cost.unknown)}."
    yield from map(as_sentence, cost.notes)


def _saved(cost: Money) -> str:
    """Return the on-demand cost of the same hours, and the saving; empty if it is unknown or nothing was saved."""
    if cost.saved_usd is None or cost.saved_usd <= 0 or not cost.on_demand_usd:
        return ""
    share = cost.saved_usd / cost.on_demand_usd
    return f", on demand {usd(cost.on_demand_usd)}, {share:.0%} saved"


def _usd(amount: float | None) -> str:
    return UNKNOWN if amount is None else usd(amount)
