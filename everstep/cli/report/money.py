"""Money that a run has spent and saved, from the machines' hours and a stack's hourly prices.

Pure functions: the prices come from `components.cost`, which takes them from a dated table, and the hours from
the timelines of the nodes. A price that is unknown stays unknown.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.timeline import NodeState, NodeTimeline, node_timelines

HOUR_SECONDS = 3600.0
NOT_BOUGHT = frozenset({NodeState.GONE, NodeState.DONE})
"""States in which a machine is not paid for."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Prices of a stack in USD per hour.

    Attributes:
        machine: one training machine as it is bought; None if unknown.
        machine_on_demand: the same machine on demand; None if unknown.
        fixed: everything else: control plane, system machines, storage, network.
        as_of: date of the prices, YYYY-MM-DD.
        unknown: names of items without a known price.
        notes: caveats of the prices.
    """

    machine: float | None
    machine_on_demand: float | None
    fixed: float
    as_of: str
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Billing:
    """How a run is paid for.

    Attributes:
        billed: whether a cloud bills the run.
        reason: why nothing is billed; empty if it is.
        rates: prices; on the twin of a cloud those of the real one. None if the stack buys nothing.
    """

    billed: bool
    reason: str = ""
    rates: Rates | None = None


@dataclass(frozen=True, kw_only=True)
class Money:
    """Cost of a run so far, from the first worker's start; docs/report.md has the definitions."""

    billed: bool
    reason: str
    machine_hours: float
    spent_usd: float | None
    on_demand_usd: float | None
    saved_usd: float | None
    hourly_usd: float | None
    prices_as_of: str | None
    unknown: tuple[str, ...]
    notes: tuple[str, ...]


def money(run: RunRecord, now: float, billing: Billing) -> Money:
    """Return the cost of a run so far.

    Args:
        run: the run.
        now: unix time up to which an unfinished run counts.
        billing: how it is paid for.
    """
    timelines = node_timelines(run, now)
    machine_hours = sum(bought_seconds(timeline) for timeline in timelines) / HOUR_SECONDS
    hours = _span_seconds(timelines) / HOUR_SECONDS
    rates = billing.rates
    if rates is None:
        return _without_prices(billing, machine_hours)
    spent = _cost(rates.machine, rates.fixed, machine_hours, hours)
    on_demand = _cost(rates.machine_on_demand, rates.fixed, machine_hours, hours)
    return Money(
        billed=billing.billed,
        reason=billing.reason,
        machine_hours=machine_hours,
        spent_usd=spent,
        on_demand_usd=on_demand,
        saved_usd=None if spent is None or on_demand is None else on_demand - spent,
        hourly_usd=_cost(rates.machine, rates.fixed, _present(timelines, run), 1.0),
        prices_as_of=rates.as_of,
        unknown=rates.unknown,
        notes=rates.notes,
    )


def cost_so_far(spent: Money) -> str:
    """Return what a run has cost as a few words."""
    if not spent.billed:
        return "nothing is billed"
    return "unknown" if spent.spent_usd is None else f"{usd(spent.spent_usd)} so far"


def usd(amount: float) -> str:
    """Return an amount of money, with more digits if it is small."""
    return f"${amount:,.2f}" if amount >= 0.995 or amount == 0 else f"${amount:.3f}"


def bought_seconds(timeline: NodeTimeline) -> float:
    """Return the seconds in which a node was present."""
    present = (piece for piece in timeline.segments if piece.state not in NOT_BOUGHT)
    return sum(piece.end - piece.start for piece in present)


def _without_prices(billing: Billing, machine_hours: float) -> Money:
    return Money(
        billed=billing.billed,
        reason=billing.reason,
        machine_hours=machine_hours,
        spent_usd=None if billing.billed else 0.0,
        on_demand_usd=None,
        saved_usd=None,
        hourly_usd=None if billing.billed else 0.0,
        prices_as_of=None,
        unknown=(),
        notes=(),
    )


def _span_seconds(timelines: Iterable[NodeTimeline]) -> float:
    return max((line.segments[-1].end - line.segments[0].start for line in timelines), default=0.0)


def _present(timelines: Iterable[NodeTimeline], run: RunRecord) -> int:
    """Return the number of machines that are present at the end."""
    if run.finished:
        return 0
    return sum(line.segments[-1].state not in NOT_BOUGHT for line in timelines)


def _cost(machine: float | None, fixed: float, machine_hours: float, hours: float) -> float | None:
    return None if machine is None else machine * machine_hours + fixed * hours
