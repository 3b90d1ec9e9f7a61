"""A plan as a table or as plain data."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isinf
from typing import Any

from everstep.capacity.generator import PUBLISHED
from everstep.capacity.history import HOUR_SECONDS
from everstep.capacity.job import JobModel
from everstep.capacity.on_demand import OnDemand
from everstep.capacity.plan import Choice, Limits, PlanRow, Spread
from everstep.cli.console import results

INCOMPLETE = "never"


@dataclass(frozen=True)
class Source:
    """Source of the histories.

    Attributes:
        traces: files of the user; empty if the histories were generated.
        histories: number of histories.
        seed: seed of generated histories.
        horizon_seconds: duration of each history.
    """

    traces: tuple[str, ...]
    histories: int
    seed: int
    horizon_seconds: float


@dataclass(frozen=True)
class Plan:
    """A plan with its inputs.

    Attributes:
        stack: name of the stack.
        job: the job.
        limits: its deadline and budget.
        zones: names of the zones, in the order in which the choices use them.
        source: source of the histories.
        rows: one row for each choice.
        price_source: source of current prices; empty if they come from the table and the stack file.
        foreign_zones: zones of the user's traces that the stack does not have.
    """

    stack: str
    job: JobModel
    limits: Limits
    zones: tuple[str, ...]
    source: Source
    rows: tuple[PlanRow, ...]
    price_source: str = ""
    foreign_zones: tuple[str, ...] = ()


def show(plan: Plan) -> None:
    """Print the plan as a table with its inputs and assumptions."""
    job = plan.job
    results.print(
        f"{job.work / HOUR_SECONDS:g} machine-hours on {job.machines} machines: at least "
        f"{job.shortest_seconds / HOUR_SECONDS:.1f} h. A machine costs {_spot_prices(plan)} USD an hour on spot, "
        f"{job.prices.on_demand:.3f} on demand; the rest of the stack {job.prices.fixed:.2f}.",
        markup=False,
    )
    results.print(f"\n{_text(plan)}\n", markup=False)
    results.print("Median (10th to 90th percentile of the histories).", markup=False)
    if any(row.complete < 1 for row in plan.rows):
        hours = plan.source.horizon_seconds / HOUR_SECONDS
        cause = " or suspended by the budget" if plan.limits.budget_usd is not None else ""
        results.print(
            f"{INCOMPLETE}: not complete within {hours:.0f} h{cause}; its cost until then.",
            markup=False,
        )
    for line in notes(plan):
        results.print(f"- {line}", markup=False)


def _spot_prices(plan: Plan) -> str:
    """Return the price of a spot machine, for each zone if they differ."""
    prices = plan.job.prices
    if len(set(prices.spot_by_zone)) <= 1:
        return f"{prices.spot_in(0):.3f}"
    zone_prices = zip(plan.zones, prices.spot_by_zone, strict=True)
    return ", ".join(f"{price:.3f} in {zone}" for zone, price in zone_prices)


def _text(plan: Plan) -> str:
    """Return the rows as aligned text, one line for each choice."""
    headers = ["choice", "duration, h", "cost, USD", "goodput", "moves"]
    headers += ["in time"] if plan.limits.deadline_seconds is not None else []
    headers += ["suspended"] if plan.limits.budget_usd is not None else []
    rows = [headers, *(_cells(plan, row) for row in plan.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(headers))]
    lines = ["  ".join(_aligned_cells(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _aligned_cells(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]


def _cells(plan: Plan, row: PlanRow) -> list[str]:
    cells = [
        choice_text(row.choice),
        _range(row.seconds, _hours),
        _range(row.usd, lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.2f}"),
        _range(row.goodput, lambda value: f"{value:.3f}"),
        _range(row.moves, lambda value: f"{value:.0f}"),
    ]
    if row.in_time is not None:
        cells.append(f"{row.in_time:.0%}")
    if plan.limits.budget_usd is not None:
        cells.append(f"{row.suspended:.0%}")
    return cells


def choice_text(choice: Choice) -> str:
    """Return a choice as text."""
    if choice.on_demand is OnDemand.ALWAYS:
        return "on demand only"
    zones = "1 zone" if choice.zones == 1 else f"{choice.zones} zones"
    fallback = ", fallback" if choice.on_demand is OnDemand.FALLBACK else ""
    return f"spot, {zones}{fallback}"


def _hours(seconds: float) -> str:
    return INCOMPLETE if isinf(seconds) else f"{seconds / HOUR_SECONDS:.1f}"


def _range(spread: Spread, text: Callable[[float], str]) -> str:
    low, middle, high = text(spread.p10), text(spread.median), text(spread.p90)
    return middle if low == high else f"{middle} ({low}-{high})"


def notes(plan: Plan) -> list[str]:
    """Return the assumptions of the plan."""
    if plan.source.traces:
        origin = f"{plan.source.histories} start ticks in {', '.join(plan.source.traces)}, repeated"
    else:
        origin = f"{plan.source.histories} generated histories (seed {plan.source.seed}), fitted to {PUBLISHED.source}"
    unknown = plan.job.prices.unknown
    return [
        *(
            [f"Not in the cost, because no price is known: {', '.join(unknown)}."]
            if unknown
            else []
        ),
        *([f"Current spot prices: {plan.price_source}."] if plan.price_source else []),
        f"Histories: {origin}.",
        f"Zones are added in this order: {', '.join(plan.zones)}.",
        *([_foreign_note(plan.foreign_zones)] if plan.foreign_zones else []),
        "Zones of one region can fail together more often than the zones of the traces: see docs/capacity.md.",
        "On-demand machines are assumed to be available.",
        "A stack has one of these choices: cluster.gpuPools sets the zones, job.onDemand the purchases.",
    ]


def _foreign_note(zones: Sequence[str]) -> str:
    """Return the assumption about traces of zones that the stack does not have."""
    return (
        f"Not zones of the stack: {', '.join(zones)}. They have its highest spot price and no limit of a pool; "
        "a trace of one of its zones has the name of that zone."
    )


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data; a duration that exceeds the histories is null."""
    return {
        "stack": plan.stack,
        "zones": list(plan.zones),
        "machines": plan.job.machines,
        "machine_hours": plan.job.work / HOUR_SECONDS,
        "shortest_seconds": plan.job.shortest_seconds,
        "deadline_seconds": plan.limits.deadline_seconds,
        "budget_usd": plan.limits.budget_usd,
        "prices": asdict(plan.job.prices),
        "source": asdict(plan.source),
        "choices": [_row_json(row) for row in plan.rows],
        "assumptions": [*notes(plan), *plan.job.assumptions()],
    }


def _row_json(row: PlanRow) -> dict[str, Any]:
    return {
        "zones": row.choice.zones,
        "on_demand": row.choice.on_demand.value,
        "seconds": _finite(row.seconds),
        "usd": asdict(row.usd),
        "goodput": asdict(row.goodput),
        "moves": asdict(row.moves),
        "complete": row.complete,
        "in_time": row.in_time,
        "suspended": row.suspended,
    }


def _finite(spread: Spread) -> dict[str, float | None]:
    return {name: None if isinf(value) else value for name, value in asdict(spread).items()}
