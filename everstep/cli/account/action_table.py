"""The tables of actions in docs/eks.md and docs/aks.md, between two markers."""

from collections.abc import Iterable, Sequence

from everstep.cli.marked_section import replace_section

BEGIN, END = "<!-- actions: begin -->", "<!-- actions: end -->"


def as_table(rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return a Markdown table of actions by the type of resource or the task that needs them."""
    lines = [f"| {label} | `{'`, `'.join(actions)}` |" for label, actions in rows]
    return "\n".join(["| for | needed actions |", "| --- | --- |", *lines])


def with_table(page: str, table: str) -> str:
    """Return a page with a table between its two markers.

    Raises:
        ValueError: the page lacks a marker.
    """
    return replace_section(page, BEGIN, END, f"\n{table}\n")
