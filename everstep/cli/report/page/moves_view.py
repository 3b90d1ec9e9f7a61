"""The moves of the group between zones, as a section of the page."""

from everstep.cli.durations import clock
from everstep.cli.report.money import MoveSpending, usd
from everstep.cli.report.moves import MoveCost
from everstep.cli.report.page.markup import Html, element
from everstep.cli.report.page.model import Page
from everstep.cli.report.page.sections import section
from everstep.cli.report.page.words import UNKNOWN, seconds

COLUMNS = ("At", "From", "To", "Why", "Group paused", "Steps repeated", "Machines without work")
LEAD = (
    "The group is in one zone at a time. A pause is the time without a step, without the step that ends it; "
    "machines without work are those that were paid for during the move and did not train."
)


def moves(page: Page) -> Html | None:
    """Return the table of the moves with time, zones, reason and cost; None without a move."""
    report = page.report
    if not report.moves:
        return None
    spent = {move.began: move for move in page.money.moves} if page.money else {}
    header = element("tr", *(element("th", name, scope="col") for name in COLUMNS))
    rows = (_row(page, move, spent.get(move.began)) for move in report.moves)
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


def _row(page: Page, move: MoveCost, spent: MoveSpending | None) -> Html:
    reason = f"{move.reason} (abandoned)" if move.abandoned else move.reason
    lost = UNKNOWN if move.steps_lost is None else str(move.steps_lost)
    paused = "under way" if move.seconds is None else seconds(move.seconds)
    return element(
        "tr",
        element("th", clock(move.began - page.start), scope="row"),
        *(element("td", text) for text in (move.origin, move.to, reason)),
        *(element("td", text, class_="number") for text in (paused, lost, _cost(spent))),
    )


def _cost(spent: MoveSpending | None) -> str:
    """Return machine time and price; only the time if no price is known."""
    if spent is None or spent.machine_hours is None:
        return UNKNOWN
    hours = f"{60 * spent.machine_hours:,.1f} machine-minutes"
    return hours if spent.usd is None else f"{hours}, {usd(spent.usd)}"
