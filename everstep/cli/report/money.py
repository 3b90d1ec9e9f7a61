"""Money that a run has spent and saved, from the machines' hours and a stack's hourly prices.

Pure functions: the prices come from `components.cost`, which takes them from a price table, and the hours from
the timelines of the nodes. A price that is unknown stays unknown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from everstep.catalog.units import HOUR_SECONDS
from everstep.cli.report.machines import MachineKind, ReportedMachine
from everstep.cli.report.moves import end_of
from everstep.cli.report.run_record import Move, RunRecord
from everstep.cli.report.status import display_end
from everstep.cli.report.timeline import NodeState, NodeTimeline, Segment, node_timelines
from everstep.cli.report.zone_traffic import zone_traffic

GB = 1e9
IDLE = frozenset({NodeState.WAITING, NodeState.REGROUPING})
"""States in which a machine is paid for and does not train."""


@dataclass(frozen=True)
class MachineRate:
    """The price of one training machine with its disk, in USD per hour; None if unknown.

    Attributes:
        pool: display name of its pool.
        price: price of the capacity type under which it was bought.
        on_demand: on-demand price.
    """

    pool: str
    price: float | None
    on_demand: float | None


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Prices of a stack in USD per hour.

    Attributes:
        most_expensive: the most expensive training machine, used for a machine whose type is unknown.
        machines: training machines by type, pool and capacity type.
        fixed: everything else: control plane, system machines, storage, network.
        between_zones: USD per GB sent from one zone to another, for sending and receiving.
        as_of: date of the oldest dated price, YYYY-MM-DD.
        unknown: names of items without a known price.
        notes: caveats of the prices.
    """

    most_expensive: MachineRate
    machines: Mapping[MachineKind, MachineRate] = field(default_factory=dict)
    fixed: float
    between_zones: float = 0.0
    as_of: str
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Billing:
    """Billing of a run.

    Attributes:
        billed: whether a cloud bills the run.
        reason: reason why nothing is billed; empty if the run is billed.
        rates: prices; on the twin of a cloud, the prices of the real cloud. None if the stack buys nothing.
        machines: the machines by the name of the node; they may be fewer than the run had.
    """

    billed: bool
    reason: str = ""
    rates: Rates | None = None
    machines: Mapping[str, ReportedMachine] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PoolSpending:
    """The machines of one pool: their hours, and their cost as bought and on demand."""

    pool: str
    machine_hours: float
    spent_usd: float | None
    on_demand_usd: float | None


@dataclass(frozen=True, kw_only=True)
class MoveSpending:
    """The idle machines during one move; None while it is under way, or for a cost without a price."""

    began: float
    machine_hours: float | None
    usd: float | None


@dataclass(frozen=True, kw_only=True)
class TrafficSpending:
    """The data that crossed zones, and its price; docs/report.md has the definitions."""

    gradient_gb: float
    state_gb: float
    unknown_steps: int
    usd: float


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
    pools: tuple[PoolSpending, ...] = ()
    moves: tuple[MoveSpending, ...] = ()
    between_zones: TrafficSpending | None = None


def cost_of_run(run: RunRecord, now: float, billing: Billing) -> Money:
    """Return the cost of a run so far.

    Args:
        run: the run.
        now: Unix time up to which an unfinished run counts, unless it has stopped: then it ends with its last entry.
        billing: billing of the run.
    """
    timelines = node_timelines(run, display_end(run, now))
    machine_hours = sum(_bought_hours(billing, timeline) for timeline in timelines)
    hours = _span_seconds(timelines) / HOUR_SECONDS
    rates = billing.rates
    if rates is None:
        return _without_prices(billing, machine_hours)
    pools = _cost_by_pool(billing, rates, timelines)
    spent_usd = known_sum([*(pool.spent_usd for pool in pools), rates.fixed * hours])
    on_demand = known_sum([*(pool.on_demand_usd for pool in pools), rates.fixed * hours])
    node_prices = [
        rate_of(billing, rates, timeline.node).price for timeline in _present_nodes(timelines, run)
    ]
    return Money(
        billed=billing.billed,
        reason=billing.reason,
        machine_hours=machine_hours,
        spent_usd=spent_usd,
        on_demand_usd=on_demand,
        saved_usd=None if spent_usd is None or on_demand is None else on_demand - spent_usd,
        hourly_usd=known_sum([*node_prices, rates.fixed]),
        prices_as_of=rates.as_of,
        unknown=rates.unknown,
        notes=rates.notes,
        pools=pools,
        moves=tuple(_move(run, billing, rates, timelines, move) for move in run.moves),
        between_zones=_traffic(run, billing, rates),
    )


def _traffic(run: RunRecord, billing: Billing, rates: Rates) -> TrafficSpending:
    """Return the cost of the data that crossed zones."""
    zones = {node: machine.zone for node, machine in billing.machines.items()}
    traffic = zone_traffic(run, zones)
    return TrafficSpending(
        gradient_gb=traffic.gradient_bytes / GB,
        state_gb=traffic.state_bytes / GB,
        unknown_steps=traffic.unknown_steps,
        usd=rates.between_zones * (traffic.gradient_bytes + traffic.state_bytes) / GB,
    )


def _move(
    run: RunRecord,
    billing: Billing,
    rates: Rates,
    timelines: Sequence[NodeTimeline],
    move: Move,
) -> MoveSpending:
    """Return the cost of the machines that were paid for during a move and did not train."""
    move_end = end_of(run, move)
    if move_end is None:
        return MoveSpending(began=move.began, machine_hours=None, usd=None)
    idle = [
        (hours, rate_of(billing, rates, timeline.node).price)
        for timeline in timelines
        if (hours := _idle_hours(billing, timeline, move.began, move_end))
    ]
    return MoveSpending(
        began=move.began,
        machine_hours=sum(hours for hours, _ in idle),
        usd=known_sum([_product(hours, price) for hours, price in idle]),
    )


def _idle_hours(billing: Billing, timeline: NodeTimeline, start: float, end: float) -> float:
    pieces = (piece for piece in present_segments(billing, timeline) if piece.state in IDLE)
    overlaps = (min(piece.end, end) - max(piece.start, start) for piece in pieces)
    return sum(max(seconds, 0.0) for seconds in overlaps) / HOUR_SECONDS


def rate_of(billing: Billing, rates: Rates, node: str) -> MachineRate:
    """Return the price of a node's machine; the highest if the machine or the price of its kind is unknown."""
    machine = billing.machines.get(node)
    return (
        rates.machines.get(machine.kind, rates.most_expensive) if machine else rates.most_expensive
    )


def _cost_by_pool(
    billing: Billing, rates: Rates, timelines: Sequence[NodeTimeline]
) -> tuple[PoolSpending, ...]:
    """Return the cost of each pool so far, in order of the names."""
    hours_by_pool: dict[str, list[tuple[float, MachineRate]]] = {}
    for timeline in timelines:
        rate = rate_of(billing, rates, timeline.node)
        hours_by_pool.setdefault(rate.pool, []).append((_bought_hours(billing, timeline), rate))
    return tuple(
        PoolSpending(
            pool=pool,
            machine_hours=sum(hours for hours, _ in pool_hours),
            spent_usd=known_sum([_product(hours, rate.price) for hours, rate in pool_hours]),
            on_demand_usd=known_sum(
                [_product(hours, rate.on_demand) for hours, rate in pool_hours]
            ),
        )
        for pool, pool_hours in sorted(hours_by_pool.items())
    )


def _product(hours: float, price: float | None) -> float | None:
    return None if price is None else hours * price


def known_sum(amounts: Sequence[float | None]) -> float | None:
    """Return a sum; None if one of the amounts is unknown."""
    known_amounts = [amount for amount in amounts if amount is not None]
    return sum(known_amounts) if len(known_amounts) == len(amounts) else None


def cost_so_far(cost: Money) -> str:
    """Return the cost of a run so far as a short text."""
    if not cost.billed:
        return "nothing is billed"
    return "unknown" if cost.spent_usd is None else f"{usd(cost.spent_usd)} so far"


def traffic_sentence(traffic: TrafficSpending | None) -> str:
    """Return the data that crossed zones and its price as a sentence; empty if nothing is known to have crossed."""
    if traffic is None or not traffic.gradient_gb + traffic.state_gb:
        return ""
    sentence = (
        f"Between zones: {traffic.gradient_gb:,.2f} GB of gradients and {traffic.state_gb:,.2f} GB of state, "
        f"{usd(traffic.usd)}."
    )
    if not traffic.unknown_steps:
        return sentence
    return (
        f"{sentence} {traffic.unknown_steps:,} steps on machines of unknown zones are not counted."
    )


def as_sentence(note: str) -> str:
    """Return a note on the prices as a sentence."""
    return f"{note[:1].upper()}{note[1:].rstrip('.')}."


def usd(amount: float) -> str:
    """Return an amount in USD as text, with more digits if it is small."""
    sign, size = "-" if amount < 0 else "", abs(amount)
    return f"{sign}${size:,.2f}" if size >= 0.995 or size == 0 else f"{sign}${size:.3f}"


def present_segments(billing: Billing, timeline: NodeTimeline) -> Iterator[Segment]:
    """Yield the segments in which a node was present.

    Before its first worker, a node counts from the time when it joined the cluster. If that time is unknown it does
    not count, because its machine may have replaced another machine.
    """
    machine = billing.machines.get(timeline.node)
    joined_at = machine.since if machine else None
    for piece in timeline.segments:
        if piece.state is not NodeState.WAITING:
            if piece.state is not NodeState.GONE:  # a machine that is gone is not paid for
                yield piece
        elif joined_at is not None and joined_at < piece.end:
            yield replace(piece, start=max(piece.start, joined_at))


def _bought_hours(billing: Billing, timeline: NodeTimeline) -> float:
    return (
        sum(piece.end - piece.start for piece in present_segments(billing, timeline)) / HOUR_SECONDS
    )


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
    return max(
        (timeline.segments[-1].end - timeline.segments[0].start for timeline in timelines),
        default=0.0,
    )


def _present_nodes(timelines: Iterable[NodeTimeline], run: RunRecord) -> list[NodeTimeline]:
    """Return the timelines of the nodes that are present at the end; none for a finished run."""
    if run.finished:
        return []
    return [
        timeline
        for timeline in timelines
        if timeline.segments[-1].state is not NodeState.GONE
        and run.departed_at(timeline.node) != timeline.segments[-1].end
    ]
