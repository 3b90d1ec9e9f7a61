"""A plan as a table or as plain data."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isinf
from typing import Any

from everstep.capacity.generator import PUBLISHED
from everstep.capacity.job import JobModel
from everstep.capacity.on_demand import FallbackPolicy, OnDemand
from everstep.capacity.plan import Choice, JobLimits, PlanRow, Spread
from everstep.catalog.plurals import amount
from everstep.catalog.units import HOUR_SECONDS
from everstep.cli.console import results

INCOMPLETE = "never"


@dataclass(frozen=True)
class HistorySource:
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
class MachineType:
    """A machine type of the pools.

    Attributes:
        name: its name.
        spot: highest spot price of its pools in USD per hour.
        on_demand: on-demand price in USD per hour.
        speed: samples per second, relative to the type for which the work is given.
        max_on_demand: maximum number of on-demand machines that its pools allow; None without a limit.
        kinds: how its machines in each zone are bought.
    """

    name: str
    spot: float
    on_demand: float
    speed: float
    kinds: tuple[tuple[str, ...], ...]
    max_on_demand: int | None = None


@dataclass(frozen=True)
class PlanTable:
    """A plan with its inputs.

    Attributes:
        stack: name of the stack.
        job: the job.
        limits: its deadline and budget.
        zones: names of the zones, in the order in which the choices use them.
        source: source of the histories.
        rows: one row for each choice.
        kinds: how the machines of each zone are bought, such as spot.
        work_origin: where the work of the job comes from.
        price_source: source of current prices; empty if they come from the table and the stack file.
        foreign_zones: zones of the user's traces that the stack does not have.
        unplanned_zones: zones of the stack that the histories do not have.
        warnings: pools that get no machines.
        types: machine types of the pools, with their prices and speeds.
        more: whether `--all` would show more choices.
    """

    stack: str
    job: JobModel
    limits: JobLimits
    zones: tuple[str, ...]
    source: HistorySource
    rows: tuple[PlanRow, ...]
    kinds: tuple[tuple[str, ...], ...]
    work_origin: str
    price_source: str = ""
    foreign_zones: tuple[str, ...] = ()
    unplanned_zones: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    types: tuple[MachineType, ...] = ()
    more: bool = False


def show(plan: PlanTable) -> None:
    """Print the plan as a table with its inputs and assumptions."""
    job = plan.job
    has_reservation = any("reserved" in kinds for kinds in plan.kinds)
    reserved = ", with its reservation" if has_reservation else ""
    results.print(
        f"{job.work / HOUR_SECONDS:g} machine-hours on {job.machines} machines: at least "
        f"{job.shortest_seconds / HOUR_SECONDS:.1f} h. {_prices(plan)}, "
        f"{job.prices.on_demand:.3f} on demand; the rest of the stack {job.prices.fixed:.2f}{reserved}.",
        markup=False,
    )
    results.print(f"The work is {plan.work_origin}.", markup=False)
    results.print(f"\n{_text(plan)}\n", markup=False)
    results.print("Median (10th to 90th percentile of the histories).", markup=False)
    if any(row.complete < 1 for row in plan.rows):
        hours = plan.source.horizon_seconds / HOUR_SECONDS
        cause = " or suspended by the budget" if plan.limits.budget_usd is not None else ""
        results.print(
            f"{INCOMPLETE}: not complete within {hours:.0f} h{cause}; the cost shown is the cost until then.",
            markup=False,
        )
    for line in notes(plan):
        results.print(f"- {line}", markup=False)


def _prices(plan: PlanTable) -> str:
    """Return the prices of machines, for each zone if they differ."""
    texts = {zone: _zone_prices(plan, position) for position, zone in enumerate(plan.zones)}
    if len(set(texts.values())) == 1:
        return f"A machine costs {texts[plan.zones[0]]}"
    return "A machine costs " + ", ".join(f"{text} in {zone}" for zone, text in texts.items())


def _zone_prices(plan: PlanTable, position: int) -> str:
    """Return the prices of a zone's machines by purchase option."""
    prices = plan.job.prices
    kinds = plan.kinds[position]
    if not kinds:
        return "(no machine is bought)"
    texts = []
    for kind in kinds:
        if kind == "spot":
            texts.append(f"{prices.spot_in(position):.3f} USD an hour on spot")
        else:
            guaranteed = prices.guaranteed_by_zone[position]
            name = "beyond its reservation" if kind == "reserved" else "from its on-demand pool"
            texts.append(
                f"{guaranteed.price:.3f} USD an hour {name} (at most {guaranteed.machines})"
            )
    return " or ".join(texts)


def _text(plan: PlanTable) -> str:
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


def _cells(plan: PlanTable, row: PlanRow) -> list[str]:
    cells = [
        choice_text(row.choice, _kinds(plan, row.choice.machine_type)),
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


def _kinds(plan: PlanTable, machine_type: str) -> tuple[tuple[str, ...], ...]:
    """Return how the machines of a type, or of all, are bought in each zone."""
    by_type = {item.name: item.kinds for item in plan.types}
    return by_type.get(machine_type, plan.kinds)


def choice_text(choice: Choice, kinds: Sequence[Sequence[str]] = ()) -> str:
    """Return a choice as text, with the way in which the machines of its zones are bought."""
    machines = f"{choice.machine_type}: " if choice.machine_type else ""
    if choice.on_demand is OnDemand.ALWAYS:
        return f"{machines}on demand only"
    bought = dict.fromkeys(kind for zone in kinds[: choice.zones] for kind in zone)
    text = f"{machines}{' and '.join(bought) or 'spot'}, {amount(choice.zones, 'zone')}"
    if choice.on_demand is not OnDemand.FALLBACK:
        return text
    policy = (
        "" if choice.fallback is FallbackPolicy.LATEST_START else f" by {choice.fallback.value}"
    )
    return f"{text}, fallback{policy}"


def _hours(seconds: float) -> str:
    return INCOMPLETE if isinf(seconds) else f"{seconds / HOUR_SECONDS:.1f}"


def _range(spread: Spread, text: Callable[[float], str]) -> str:
    low, middle, high = text(spread.p10), text(spread.median), text(spread.p90)
    return middle if low == high else f"{middle} ({low}-{high})"


def notes(plan: PlanTable) -> list[str]:
    """Return the assumptions of the plan."""
    if plan.source.traces:
        origin = f"{plan.source.histories}, from different start ticks in {', '.join(plan.source.traces)}, repeated"
    else:
        origin = f"{plan.source.histories} generated histories (seed {plan.source.seed}), fitted to {PUBLISHED.source}"
    unknown = plan.job.prices.unknown
    return [
        *(f"{text[0].upper()}{text[1:]}." for text in plan.warnings),
        *(
            [f"Not in the cost, because no price is known: {', '.join(unknown)}."]
            if unknown
            else []
        ),
        *([f"Current spot prices: {plan.price_source}."] if plan.price_source else []),
        f"Histories: {origin}.",
        f"Zones are added in this order: {', '.join(plan.zones)}.",
        *([_unplanned_note(plan)] if plan.unplanned_zones else []),
        *([_foreign_note(plan.foreign_zones)] if plan.foreign_zones else []),
        *_kind_notes(plan.kinds),
        *_type_notes(plan),
        *_policy_notes(plan),
        "Zones of one region can fail together more often than the zones of the traces: see docs/capacity.md.",
        _on_demand_note(plan.job),
        *(["--all shows each combination of zones, type and policy."] if plan.more else []),
        "A stack has one of these choices: cluster.gpuPools sets its zones, job.onDemand its on-demand machines.",
    ]


def _on_demand_note(job: JobModel) -> str:
    """Return the assumption about on-demand machines, with the limit of the stack's pools."""
    if job.max_on_demand is None or job.max_on_demand >= job.machines:
        return "On-demand machines are assumed to be available."
    return (
        f"The stack's pools allow {amount(job.max_on_demand, 'on-demand machine')} at a time, which are assumed to be "
        "available: no choice buys more. Raise fallbackNodes to plan with more."
    )


def _unplanned_note(plan: PlanTable) -> str:
    """Return a note with the zones of the stack that are not planned, and the reason."""
    names = ", ".join(plan.unplanned_zones)
    if plan.source.traces:
        return f"Not planned, because no trace was given for them: {names}. Add --trace for each of them."
    return (
        f"Not planned: {names}. Generated histories have the {len(PUBLISHED.zones)} zones of the published traces; "
        "use --trace to plan more zones."
    )


def _kind_notes(kinds: Sequence[Sequence[str]]) -> list[str]:
    """Return the assumptions about machines that are not spot machines."""
    bought = {kind for zone in kinds for kind in zone}
    notes = []
    if "reserved" in bought:
        notes.append(
            "A reservation is assumed to have maxNodes machines that are always available. A Capacity Reservation is "
            "billed for the whole duration, used or not, in each choice; a Capacity Block was paid in advance: it "
            "adds 0."
        )
    if "on demand" in bought:
        notes.append(
            "Machines of on-demand pools have no spot market: they are always available at their price."
        )
    if len(bought) > 1:
        notes.append("In a zone that has both, reserved and on-demand machines are used first.")
    return notes


def _type_notes(plan: PlanTable) -> list[str]:
    """Return the prices of the machine types and the assumptions about them."""
    if len(plan.types) < 2:
        return []
    speeds = (
        "Speeds are an assumption unless --speed TYPE=FACTOR gives a measured one. A single type is assumed to have "
        "the whole capacity of its zones; several types lose fewer machines."
    )
    prices = "; ".join(
        f"{item.name} {item.spot:.3f}, on demand {item.on_demand:.3f}{_type_limit(item, plan.job)}, "
        f"speed {item.speed:g}"
        for item in plan.types
    )
    return [
        f"USD an hour by type: {prices}. Choices without a type have the highest price of the pools and speed 1.",
        speeds,
    ]


def _type_limit(item: MachineType, job: JobModel) -> str:
    """Return the maximum number of on-demand machines of a type if it differs from the number of all types."""
    return "" if item.max_on_demand == job.max_on_demand else f" (at most {item.max_on_demand})"


def _policy_notes(plan: PlanTable) -> list[str]:
    """Return a note about the policies of the fallback."""
    if all(row.choice.fallback is FallbackPolicy.LATEST_START for row in plan.rows):
        return []
    text = (
        "fallback: buys on-demand machines from the latest start that meets the deadline, as the controller does. "
        "Uniform progress and greedy are the policies of Can't Be Late (NSDI 2024), for comparison; a job cannot "
        "choose them."
    )
    return [text]


def _foreign_note(zones: Sequence[str]) -> str:
    """Return the assumption about traces of zones that the stack does not have."""
    return (
        f"Not zones of the stack: {', '.join(zones)}. They have the stack's highest spot price and no pool limit; "
        "to plan a zone of the stack, give its trace the name of that zone."
    )


def as_json(plan: PlanTable) -> dict[str, Any]:
    """Return the plan as plain data; a duration that exceeds the histories is null."""
    return {
        "stack": plan.stack,
        "zones": list(plan.zones),
        "machines": plan.job.machines,
        "max_on_demand": plan.job.max_on_demand,
        "kinds": [list(kinds) for kinds in plan.kinds],
        "unplanned_zones": list(plan.unplanned_zones),
        "warnings": list(plan.warnings),
        "machine_types": [asdict(item) for item in plan.types],
        "machine_hours": plan.job.work / HOUR_SECONDS,
        "work": plan.work_origin,
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
        "policy": row.choice.fallback.value if row.choice.on_demand is OnDemand.FALLBACK else None,
        "machine_type": row.choice.machine_type or None,
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
