"""Draw the states of a worker: `python docs/images/elasticity.py`.

The names of the worker's states are taken from the program, so that the picture cannot show a state that
does not exist; a new state without a position here is an error.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

from everstep.elastic.recovery.state_machine import Phase

BOX = (150, 46)
POSITIONS = {
    Phase.DETACHED: (40, 190),
    Phase.CONNECTING: (270, 190),
    Phase.COMPARING: (500, 190),
    Phase.RESTORING: (500, 60),
    Phase.COPYING: (730, 190),
    Phase.TRAINING: (960, 190),
}
NOTES = {
    Phase.DETACHED: "in no group; ready",
    Phase.CONNECTING: "builds the group",
    Phase.COMPARING: "exchanges reports",
    Phase.RESTORING: "rank 0, from disk",
    Phase.COPYING: "sends, receives tensors",
    Phase.TRAINING: "takes steps",
}
DARK, WHITE, GRAY, GREEN, RED = "#1f2937", "#ffffff", "#6b7280", "#0f766e", "#b91c1c"


@dataclass(frozen=True)
class Arrow:
    """A transition between two states; `bend` lowers the middle of its curve, in pixels."""

    start: Phase
    end: Phase
    label: str
    bend: int = 0
    color: str = DARK


ARROWS = (
    Arrow(Phase.DETACHED, Phase.CONNECTING, "assigned"),
    Arrow(Phase.CONNECTING, Phase.COMPARING, "connected"),
    Arrow(Phase.COMPARING, Phase.COPYING, "copy plan"),
    Arrow(Phase.COMPARING, Phase.RESTORING, "only the disk has a state"),
    Arrow(Phase.COPYING, Phase.TRAINING, "copied"),
    Arrow(Phase.TRAINING, Phase.DETACHED, "summed, with a vote: apply, leave, ready", 95, GREEN),
    Arrow(Phase.TRAINING, Phase.DETACHED, "lost: roll back, leave, ready", 150, RED),
)


def main() -> None:
    """Write elasticity.svg next to this file."""
    missing = set(Phase) - set(POSITIONS)
    if missing:
        raise SystemExit(f"no position for {missing}")
    parts = [_head(), *(_arrow(arrow) for arrow in ARROWS), *(_box(phase) for phase in Phase)]
    parts.append(_text(1035, 178, "summed: apply, next step", GRAY, 12))
    parts.append(_text(575, 425, "From every state but detached: lost -> leave, ready", RED, 13))
    Path(__file__).with_name("elasticity.svg").write_text("\n".join([*parts, "</svg>\n"]))


def _head() -> str:
    style = "font-family='DejaVu Sans, sans-serif'"
    marker = (
        "<defs><marker id='tip' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' "
        "markerHeight='7' orient='auto-start-reverse'><path d='M0 0L10 5L0 10z' "
        f"fill='{DARK}'/></marker></defs>"
    )
    size = "viewBox='0 0 1150 450' width='1150' height='450'"
    background = f"<rect width='1150' height='450' fill='{WHITE}'/>"
    title = _text(40, 34, "A worker's states, through all generations of a run", DARK, 17, "start")
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size} {style}>{marker}{background}{title}"


def _box(phase: Phase) -> str:
    x, y = POSITIONS[phase]
    width, height = BOX
    frame = (
        f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='8' fill='#eef2ff' "
        f"stroke='{DARK}'/>"
    )
    name = _text(x + width / 2, y + 20, phase.name.lower(), DARK, 14)
    return frame + name + _text(x + width / 2, y + 37, NOTES[phase], GRAY, 11)


def _arrow(arrow: Arrow) -> str:
    (x1, y1), (x2, y2) = POSITIONS[arrow.start], POSITIONS[arrow.end]
    width, height = BOX
    if arrow.bend:
        path = (
            f"M{x1 + width / 2} {y1 + height}C{x1 + width / 2} {y1 + height + arrow.bend},"
            f"{x2 + width / 2} {y2 + height + arrow.bend},{x2 + width / 2} {y2 + height}"
        )
        label = _text(
            (x1 + x2 + width) / 2,
            y1 + height + arrow.bend * 0.75 - 6,
            arrow.label,
            arrow.color,
            12,
        )
    elif x1 == x2:
        path = f"M{x1 + width / 2} {y1}L{x2 + width / 2} {y2 + height}"
        label = _text(
            x1 + width / 2 + 8, (y1 + y2 + height) / 2 + 4, arrow.label, GRAY, 12, "start"
        )
    else:
        path = f"M{x1 + width} {y1 + height / 2}L{x2} {y2 + height / 2}"
        label = _text((x1 + width + x2) / 2, y1 + height / 2 - 8, arrow.label, GRAY, 11)
    start_marker = " marker-start='url(#tip)'" if arrow.end is Phase.RESTORING else ""
    line = f"<path d='{path}' fill='none' stroke='{arrow.color}' marker-end='url(#tip)'{start_marker}/>"
    return line + label


def _text(x: float, y: float, label: str, color: str, size: int, anchor: str = "middle") -> str:
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size}' fill='{color}' "
        f"text-anchor='{anchor}'>{escape(label)}</text>"
    )


if __name__ == "__main__":
    main()
