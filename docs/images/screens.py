"""Draw the command's screens from a real run: `python docs/images/screens.py RUN EVENTS`.

RUN is a run's folder as `everstep down --keep-run RUN` leaves it, EVENTS the twin's events.jsonl. The same
functions draw as on a terminal, so a picture cannot show what the command does not.
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console, RenderableType

from everstep.cli.report.readers import FolderReader
from everstep.cli.report.report import build
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.screens import follow_screen, report_screen

WIDTH = 100
SECONDS_AFTER_THE_LAST_LOSS = 4
FONT_FACES = re.compile(r"@font-face\s*\{.*?\}", re.DOTALL)


def main() -> None:
    """Write follow.svg and report.svg next to this file."""
    run = FolderReader(Path(sys.argv[1]), Path(sys.argv[2])).read()
    losses = [event.at for event in run.training_events if event.kind == "vanish"]
    now = losses[-1] + SECONDS_AFTER_THE_LAST_LOSS
    record = RunRecord(
        tuple(entry for entry in run.entries if entry.at <= now),
        tuple(event for event in run.events if event.at <= now),
        blocks=tuple(block for block in run.blocks if block.at <= now),
    )
    draw("follow", follow_screen(build(record), record, now, WIDTH))
    draw("report", report_screen(build(run), run, run.entries[-1].at, WIDTH))


def draw(name: str, screen: RenderableType) -> None:
    """Write one screen as SVG, without rich's web fonts: a picture fetches nothing."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(screen)
    svg = FONT_FACES.sub("", console.export_svg(title=f"everstep {name}"))
    svg = svg.replace("Fira Code", "DejaVu Sans Mono")
    svg = svg.replace("<text ", '<text xml:space="preserve" ')
    Path(__file__).with_name(f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
