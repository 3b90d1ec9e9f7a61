"""`everstep doctor`: is this machine fit, and is anything left on it that should not be."""

import json
from dataclasses import asdict

import typer
from rich.table import Table
from rich.text import Text

from everstep.cli import machine
from everstep.cli.commands.options import AsJson
from everstep.cli.console import results
from everstep.cli.failures import FAILED


def doctor(*, as_json: AsJson = False) -> None:
    """List what a twin left behind, and check this machine; exits with 1 if anything is left."""
    from twin.nodes import leftovers
    from twin.paths import state_directory

    found = machine.checks(state_directory())
    left = leftovers()
    if as_json:
        content = {
            "checks": [asdict(one) for one in found],
            "leftovers": [asdict(one) for one in left],
        }
        results.print(json.dumps(content, indent=2, default=str), markup=False)
    else:
        results.print(_checks_table(found))
        results.print()
        results.print(
            _leftovers_table(left) if left else Text("nothing is left over", style="green")
        )
    if left:
        raise typer.Exit(FAILED)


def _checks_table(found: list[machine.Check]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), show_header=False, pad_edge=False)
    for check in found:
        mark = Text("✓", style="green") if check.good else Text("✗", style="red")
        remedy = "" if check.good else check.remedy
        table.add_row(mark, check.what, Text(check.found, style="bright_black"), remedy)
    return table


def _leftovers_table(left: list) -> Table:  # type: ignore[type-arg]
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    for column in ("left over", "what", "how to remove it"):
        table.add_column(column)
    for one in left:
        table.add_row(str(one.kind), str(one.what), str(one.how_to_remove))
    return table
