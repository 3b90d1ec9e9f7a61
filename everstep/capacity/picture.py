"""SVG picture of a replay: the capacity of each zone over time, and the zone of the group."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise

from everstep.capacity.history import CapacityHistory
from everstep.capacity.simulator import TickRecord
from everstep.catalog.plurals import amount
from everstep.catalog.units import HOUR_SECONDS

WIDTH, LEFT, RIGHT, TOP = 1200, 130, 30, 84
LANE, LANE_GAP = 90, 34
STYLE = """
    .page { fill: #ffffff; }
    .lane { fill: #f8fafc; stroke: #cbd5e1; }
    .offered { fill: #cbd5e1; }
    .used { fill: #16a34a; }
    .bought { fill: #ea580c; }
    .move { stroke: #0f172a; stroke-width: 1.5; stroke-dasharray: 4 3; }
    .grid { stroke: #e2e8f0; }
    .h { font-size: 18px; font-weight: 650; fill: #0f172a; }
    .t { font-size: 14px; fill: #334155; }
"""
Run = tuple[int, int, int]
"""First tick, tick after the last one, and value of a period without a change."""


def draw(history: CapacityHistory, ticks: Sequence[TickRecord], machines: int) -> str:
    """Return a picture of a replay.

    Args:
        history: capacity of the zones; only the part that was replayed is drawn.
        ticks: records of the replay, at least one.
        machines: desired number of machines, which is the height of a lane.
    """
    picture = _Picture(history, ticks, machines)
    return "\n".join([*picture.head(), *picture.lanes(), *picture.axis(), "</svg>", ""])


def runs(values: Sequence[int]) -> Iterator[Run]:
    """Yield the periods in which a value does not change."""
    start = 0
    for value, group in groupby(values):
        end = start + len(list(group))
        yield start, end, value
        start = end


class _Picture:
    """The parts of one picture."""

    def __init__(
        self, history: CapacityHistory, ticks: Sequence[TickRecord], machines: int
    ) -> None:
        self._history, self._ticks, self._machines = history, ticks, machines
        self._scale = (WIDTH - LEFT - RIGHT) / len(ticks)
        self._has_on_demand = any(tick.on_demand for tick in ticks)
        self._lanes = len(history.zones) + self._has_on_demand
        self._bottom = TOP + self._lanes * (LANE + LANE_GAP)

    def head(self) -> Iterator[str]:
        """Yield the opening tag, the style, the title and the legend."""
        height = self._bottom + 30
        box = f'viewBox="0 0 {WIDTH} {height}" role="img" font-family="sans-serif"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
        moves = sum(before.zone != after.zone for before, after in pairwise(self._ticks))
        hours = len(self._ticks) * self._history.gap_seconds / HOUR_SECONDS
        desired = amount(self._machines, "desired machine")
        title = f"{hours:.0f} hours, {desired}, {amount(moves, 'move')}"
        yield f"<title>{title}</title>\n<style>{STYLE}</style>"
        yield f'<rect class="page" width="{WIDTH}" height="{height}"/>'
        yield f'<text class="h" x="{LEFT}" y="30">{title}</text>'
        legend = [("used", "machines of the group"), ("offered", "offered by the zone, not used")]
        legend += [("bought", "on demand")] if self._has_on_demand else []
        for number, (style, text) in enumerate(legend):
            x = LEFT + number * 240
            yield f'<rect class="{style}" x="{x}" y="46" width="14" height="14"/>'
            yield f'<text class="t" x="{x + 20}" y="58">{text}</text>'

    def lanes(self) -> Iterator[str]:
        """Yield one lane for each zone, and one for on-demand machines if the group had any."""
        for zone, name in enumerate(self._history.zones):
            offered = [tick[zone] for tick in self._history.machines[: len(self._ticks)]]
            used_machines = [tick.spot if tick.zone == zone else 0 for tick in self._ticks]
            yield from self._lane(zone, name, [("offered", offered), ("used", used_machines)])
        if self._has_on_demand:
            counts = [tick.on_demand for tick in self._ticks]
            yield from self._lane(self._lanes - 1, "on demand", [("bought", counts)])

    def axis(self) -> Iterator[str]:
        """Yield a line for each move, and the labels of the time axis."""
        for tick, (before, after) in enumerate(pairwise(self._ticks), start=1):
            if before.zone != after.zone:
                top, bottom = sorted((self._middle(before.zone), self._middle(after.zone)))
                x = self._x(tick)
                yield f'<line class="move" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'
        hours = len(self._ticks) * self._history.gap_seconds / HOUR_SECONDS
        step = 24 if hours > 48 else 6 if hours > 12 else 1
        for hour in range(0, int(hours) + 1, step):
            x = self._x(hour * HOUR_SECONDS / self._history.gap_seconds)
            yield f'<text class="t" text-anchor="middle" x="{x}" y="{self._bottom}">{hour} h</text>'

    def _lane(
        self, lane: int, name: str, areas: Sequence[tuple[str, Sequence[int]]]
    ) -> Iterator[str]:
        base = TOP + lane * (LANE + LANE_GAP) + LANE
        yield f'<rect class="lane" x="{LEFT}" y="{base - LANE}" width="{WIDTH - LEFT - RIGHT}" height="{LANE}"/>'
        yield f'<text class="t" text-anchor="end" x="{LEFT - 12}" y="{base - LANE / 2 + 5:g}">{escape(name)}</text>'
        for style, counts in areas:
            yield f'<path class="{style}" d="{"".join(self._areas(base, counts))}"/>'

    def _areas(self, base: int, counts: Sequence[int]) -> Iterator[str]:
        for start, end, count in runs(counts):
            if count:
                height = min(count, self._machines) / self._machines * LANE
                yield f"M{self._x(start)} {base}V{base - height:g}H{self._x(end)}V{base}Z"

    def _middle(self, zone: int) -> int:
        return TOP + zone * (LANE + LANE_GAP) + LANE // 2

    def _x(self, tick: float) -> str:
        return f"{LEFT + tick * self._scale:.1f}"
