"""Draw the report's page from a real run: `python -m docs.images.report_page RUN [FOLDER]`.

RUN is a run's folder as `everstep down --keep-run RUN` leaves it. Without FOLDER, the script writes the picture of
docs/report.md. With FOLDER, it writes pictures for a review instead: on a desktop and on a phone, light and dark, and
on paper. It needs Debian's `chromium`.
"""

import sys
import tempfile
from pathlib import Path

from everstep.cli.engine.target import Target
from everstep.cli.report.money import Billing
from everstep.cli.report.page.model import build_page
from everstep.cli.report.page.render import render
from everstep.cli.report.readers import KEPT_EVENTS, FolderReader
from tests.chromium import DESKTOP, PHONE, browser

SECONDS_AFTER_THE_END = 30  # shorter than the silence after which a run counts as stopped


def main() -> None:
    """Write report-page.png next to this file, or all pictures into a folder."""
    with tempfile.TemporaryDirectory() as scratch, browser() as tab:
        page = write_page(Path(sys.argv[1]), Path(scratch) / "report.html")
        if len(sys.argv) == 2:
            tab.open(page, {**DESKTOP, "height": 1180}, prefers_color_scheme="light")
            Path(__file__).with_name("report-page.png").write_bytes(tab.screenshot(full_page=False))
            return
        folder = Path(sys.argv[2])
        for screen, size in (("desktop", DESKTOP), ("phone", PHONE)):
            for colors in ("light", "dark"):
                tab.open(page, size, prefers_color_scheme=colors)
                (folder / f"{screen}-{colors}.png").write_bytes(tab.screenshot())
        (folder / "paper.pdf").write_bytes(tab.pdf())


def write_page(run: Path, path: Path) -> Path:
    """Write the page of a run on the twin."""
    record = FolderReader(run, run / KEPT_EVENTS).read()
    billing = Billing(billed=False, reason=Target.TWIN.unbilled_reason)
    now = record.entries[-1].at + SECONDS_AFTER_THE_END
    path.write_text(render(build_page(record, now, billing)))
    return path


if __name__ == "__main__":
    main()
