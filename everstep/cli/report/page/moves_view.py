"""The moves of the group between zones, as a section of the page."""

from everstep.cli.durations import clock
from everstep.cli.report.money import MoveSpending, usd
from everstep.cli.report.moves import MoveCost
from everstep.cli.report.page.markup import Html, element
from everstep.cli.report.page.model import ReportPage
from everstep.cli.report.page.sections import section
from everstep.cli.report.page.words import UNKNOWN, seconds_text

COLUMNS = ("At", "From", "To", "Why", "Group paused", "Steps repeated", "Idle machines")
LEAD = (
    "The group is in one zone at a time. The pause is the time from the last step to the start of the next, plus "
    "the time of repeated steps; idle machines were billed during the move and did not train."
)


def moves(page: ReportPage) -> Html | None:
    """Return the table of the moves with time, zones, reason and cost; None without a move."""
    report = page.report
    if not report.moves:
        return None
    spending = {move.began: move for move in page.money.moves} if page.money else {}
    header = element("tr", *(element("th", name, scope="col") for name in COLUMNS))
    rows = (_row(page, move, spending.get(move.began)) for move in report.moves)
    table = element(
        "table",
        element("caption", "Moves with their reasons and costs", class_="hidden"),
        element("thead", header),
        element("tbody", *rows),
        class_="moves",
    )
    return section(
        "moves", "Moves between zones", element("p", LEAD, class_="lead"), _scroll(table)
    )


def _scroll(table: Html) -> Html:
    return element(
        "div", table, class_="scroll", tabindex="0", role="region", aria_label="Moves between zones"
    )


def _row(page: ReportPage, move: MoveCost, spending: MoveSpending | None) -> Html:
    reason = f"{move.reason} (abandoned)" if move.abandoned else move.reason
    steps_lost = UNKNOWN if move.steps_lost is None else str(move.steps_lost)
    pause = "under way" if move.seconds is None else seconds_text(move.seconds)
    return element(
        "tr",
        element("th", clock(move.began - page.start), scope="row"),
        *(element("td", text) for text in (move.origin, move.to, reason)),
        *(element("td", text, class_="number") for text in (pause, steps_lost, _cost(spending))),
    )


def _cost(spending: MoveSpending | None) -> str:
    """Return machine time and price; only the time if no price is known."""
    if spending is None or spending.machine_hours is None:
        return UNKNOWN
    hours = f"{60 * spending.machine_hours:,.1f} machine-minutes"
    return hours if spending.usd is None else f"{hours}, {usd(spending.usd)}"
