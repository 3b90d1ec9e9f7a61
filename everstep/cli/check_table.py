"""Results of checks as a table for a terminal: a mark, the checked property, the observed value and the fix."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from rich.table import Table
from rich.text import Text

Mark = tuple[str, str]
"""A character and its color."""

GOOD, PENDING, WARNING, BAD = ("✓", "green"), ("○", "cyan"), ("!", "yellow"), ("✗", "red")


class CheckResult(Protocol):
    """The common properties of all checks; see `HostCheck` and `AccountCheck`."""

    @property
    def name(self) -> str:
        """The checked property."""

    @property
    def passed(self) -> bool:
        """True if the property is as required."""

    @property
    def observed(self) -> str:
        """The observed value."""

    @property
    def fatal(self) -> bool:
        """True if a failure stops `up`."""


Check = TypeVar("Check", bound=CheckResult)


def mark_of(check: CheckResult) -> Mark:
    """Return the mark of a check that has run."""
    if check.passed:
        return GOOD
    return BAD if check.fatal else WARNING


def check_table(
    checks: Iterable[Check],
    name_width: int,
    fix: Callable[[Check], str],
    mark: Callable[[Check], Mark] = mark_of,
) -> Table:
    """Return one row for each check.

    Args:
        checks: the results.
        name_width: minimum width of the column of names, characters.
        fix: function that returns the fix for the line below the observed value, or an empty text.
        mark: function that returns the mark of a check.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    table.add_column(width=1)
    table.add_column(min_width=name_width)
    table.add_column(overflow="fold")
    for check in checks:
        character, color = mark(check)
        details = Text(check.observed, style="bright_black")
        if text := fix(check):
            details.append(f"\n{text}", style="default")
        table.add_row(Text(character, style=color), Text(check.name), details)
    return table
