"""The moves of a group between zones, on the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from everstep.cli.durations import clock
from everstep.cli.report.money import Money, known_sum, traffic_sentence, usd
from everstep.cli.report.moves import MoveCost


def moves_table(moves: Sequence[MoveCost], training_start: float) -> Table:
    """Return one row for each move.

    Args:
        moves: the moves.
        training_start: Unix time at which training started.
    """
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    table.add_column("at", justify="right")
    table.add_column("move", no_wrap=True)
    table.add_column("group paused", justify="right")
    table.add_column("steps lost", justify="right")
    table.add_column("why")
    for move in moves:
        steps_lost = "..." if move.steps_lost is None else str(move.steps_lost)
        direction = Text.assemble(f"{move.origin} → {move.to}", (_outcome(move), "yellow"))
        table.add_row(
            clock(move.began - training_start), direction, pause_text(move), steps_lost, move.reason
        )
    return table


def _outcome(move: MoveCost) -> str:
    return " abandoned" if move.abandoned else ""


def pause_text(move: MoveCost) -> str:
    """Return the time that a move has cost the group; dots while it continues."""
    return "..." if move.seconds is None else f"{move.seconds:.2f} s"


def move_sentence(move: MoveCost) -> str:
    """Return one move and its cost as a line of text."""
    outcome = "under way" if move.seconds is None else f"the group paused {pause_text(move)}"
    kind = "abandoned move" if move.abandoned else "move"
    return f"{kind} from {move.origin} to {move.to}, {outcome}: {move.reason}"


def zones_text(cost: Money) -> str:
    """Return the costs of moves and of data between zones as text; empty if there are none."""
    return " ".join(filter(None, (_idle_sentence(cost), traffic_sentence(cost.between_zones))))


def _idle_sentence(cost: Money) -> str:
    """Return the machines that did not train during the moves that have ended, and their price."""
    hours = [move.machine_hours for move in cost.moves if move.machine_hours is not None]
    if not hours:
        return ""
    amount = known_sum([move.usd for move in cost.moves if move.machine_hours is not None])
    price = "" if amount is None else f", {usd(amount)}"
    return f"Idle machines during moves: {60 * sum(hours):,.1f} machine-minutes{price}."
