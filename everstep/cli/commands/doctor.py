"""`everstep doctor`: is this machine fit, and is anything left on it that should not be."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everstep.cli import machine, toolbox
from everstep.cli.commands.options import AsJson
from everstep.cli.console import results
from everstep.cli.failures import FAILED
from everstep.cli.machine import Check

if TYPE_CHECKING:
    from twin.nodes import Leftover

GOOD, PENDING, DOUBTFUL, BAD = ("✓", "green"), ("○", "cyan"), ("!", "yellow"), ("✗", "red")


def doctor(*, as_json: AsJson = False) -> None:
    """Check what the twin needs here, and list what one left behind.

    Exits with 1 if anything is left over, or if something would stop `everstep up`.
    """
    from twin.nodes import leftovers
    from twin.paths import state_directory

    machine_checks = machine.checks(state_directory())
    found = {
        "machine": machine_checks,
        "packages": toolbox.packages(may_install=machine.may_install(machine_checks)),
        "programs": [*toolbox.programs(), *toolbox.images()],
        "clouds": toolbox.sdks(),
    }
    left = leftovers()
    if as_json:
        results.print(json.dumps(as_value(found, left), indent=2, default=str), markup=False)
    else:
        results.print(screen(found, left))
    if left or any(stops_up(one) for part in found.values() for one in part):
        raise typer.Exit(FAILED)


def stops_up(check: Check) -> bool:
    """Whether `up` would end because of it."""
    return check.fatal and not check.good


def as_value(
    found: Mapping[str, Sequence[Check]], left: "Sequence[Leftover]"
) -> dict[str, list[dict[str, object]]]:
    """What was found, for programs."""
    return {
        "checks": [{"part": part, **asdict(one)} for part, all_ in found.items() for one in all_],
        "leftovers": [asdict(one) for one in left],
    }


def screen(found: Mapping[str, Sequence[Check]], left: "Sequence[Leftover]") -> RenderableType:
    """What was found, for a person."""
    return Group(
        *(line for part, checks in found.items() for line in _part(part, checks)),
        _leftovers_table(left) if left else Text("✓ nothing is left over", style="green"),
    )


def _part(name: str, checks: Sequence[Check]) -> list[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    table.add_column(width=1)
    table.add_column(min_width=24)
    table.add_column(overflow="fold")
    for check in checks:
        mark, colour = _mark(check)
        table.add_row(Text(mark, style=colour), check.what, _found(check))
    return [Text(name, style="bold"), table, Text()]


def _mark(check: Check) -> tuple[str, str]:
    if not check.good:
        return BAD if check.fatal else DOUBTFUL
    return PENDING if check.pending else GOOD


def _found(check: Check) -> Text:
    """How it is, and below it what to do where something is to be done."""
    text = Text(check.found, style="bright_black")
    if check.remedy and (check.pending or not check.good):
        text.append(f"\n{check.remedy}", style="default")
    return text


def _leftovers_table(left: "Sequence[Leftover]") -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    for column in ("left over", "what", "how to remove it"):
        table.add_column(column, overflow="fold")
    for one in left:
        table.add_row(Text(one.kind, style="red"), one.what, one.how_to_remove)
    return table
