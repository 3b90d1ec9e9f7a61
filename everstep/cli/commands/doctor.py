"""`everstep doctor`: checks this machine for the twin, or a cloud account for a stack."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everstep.cli.account import doctor as account_doctor
from everstep.cli.check_table import PENDING, Mark, check_table, mark_of
from everstep.cli.commands.options import AsJson
from everstep.cli.console import results
from everstep.cli.durations import clock
from everstep.cli.engine import host_checks, prerequisites
from everstep.cli.engine.host_checks import HostCheck
from everstep.cli.errors import FAILED
from everstep.cli.twin_settings import down_command

if TYPE_CHECKING:
    from cloudtwin.facade import Leftover, RunningTwin


StackToCheck = Annotated[
    str,
    typer.Option("--stack", help="Check the cloud account of this stack instead of this machine."),
]


def doctor(*, stack: StackToCheck = "", as_json: AsJson = False) -> None:
    """Check this machine and list running twins and leftovers; with --stack, the cloud account.

    Exits with 1 if there are leftovers, or if a check would stop `up`.
    """
    if stack:
        account_doctor.run(stack, as_json=as_json)
        return
    from cloudtwin import facade

    machine = host_checks.run_checks(facade.state_directory())
    checks = {
        "machine": machine,
        "packages": prerequisites.packages(may_install=host_checks.may_install(machine)),
        "programs": [*prerequisites.programs(), *prerequisites.images()],
        "clouds": prerequisites.sdks(),
    }
    running, leftovers = facade.twins(down_command), facade.leftovers(down_command)
    if as_json:
        results.print(
            json.dumps(as_value(checks, leftovers, running), indent=2, default=str), markup=False
        )
    else:
        results.print(screen(checks, leftovers, running))
    if leftovers or any(blocks_up(check) for group in checks.values() for check in group):
        raise typer.Exit(FAILED)


def blocks_up(check: HostCheck) -> bool:
    """Return True if `up` stops because of this check."""
    return check.fatal and not check.passed


def as_value(
    checks: Mapping[str, Sequence[HostCheck]],
    leftovers: "Sequence[Leftover]",
    running: "Sequence[RunningTwin]" = (),
) -> dict[str, list[dict[str, object]]]:
    """Return checks, running twins and leftovers as plain values for JSON."""
    return {
        "checks": [
            {"part": part, **asdict(check)} for part, group in checks.items() for check in group
        ],
        "twins": [asdict(twin) for twin in running],
        "leftovers": [leftover.as_value() for leftover in leftovers],
    }


def screen(
    checks: Mapping[str, Sequence[HostCheck]],
    leftovers: "Sequence[Leftover]",
    running: "Sequence[RunningTwin]" = (),
) -> RenderableType:
    """Return checks, running twins and leftovers as tables for a terminal."""
    twins: list[RenderableType] = [_twins_table(running), Text()] if running else []
    return Group(
        *(line for part, group in checks.items() for line in _part(part, group)),
        *twins,
        _leftovers_table(leftovers) if leftovers else Text("✓ no leftovers", style="green"),
    )


def _part(name: str, checks: Sequence[HostCheck]) -> list[RenderableType]:
    table = check_table(checks, 24, _fix, _mark)
    return [Text(name, style="bold"), table, Text()]


def _mark(check: HostCheck) -> Mark:
    return PENDING if check.passed and check.pending else mark_of(check)


def _fix(check: HostCheck) -> str:
    """Return the fix if one is needed."""
    return check.fix if check.pending or not check.passed else ""


def _twins_table(running: "Sequence[RunningTwin]") -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    for column in ("running twin", "age", "machines", "how to take it down"):
        table.add_column(column, overflow="fold")
    for twin in running:
        machines = ", ".join(twin.machines) or "none"
        cells = (twin.state, clock(twin.age_seconds), machines, twin.how_to_remove)
        table.add_row(*map(Text, cells))
    return table


def _leftovers_table(leftovers: "Sequence[Leftover]") -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    for column in ("leftover", "name", "how to remove it"):
        table.add_column(column, overflow="fold")
    for leftover in leftovers:
        name, command = Text(leftover.name), Text(leftover.how_to_remove)
        table.add_row(Text(leftover.kind, style="red"), name, command)
    return table
