"""The progress display."""

import io

import pytest
from rich.console import Console

from everstep.cli.console import DistinctLines, Terminal


def test_without_a_terminal_only_new_details_are_printed() -> None:
    out = io.StringIO()
    with DistinctLines(out).step("Starting") as step:
        for detail in ("booting", "booting", "waiting for gpu-1", "waiting for gpu-1"):
            step.note(detail)

    assert [line.strip() for line in out.getvalue().splitlines()][:3] == [
        "... Starting",
        "booting",
        "waiting for gpu-1",
    ]
    assert out.getvalue().count("booting") == 1


@pytest.mark.parametrize("failing", [False, True])
def test_on_a_terminal_a_step_leaves_one_line_with_its_result(failing: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    try:
        with Terminal(console).step("Building the tools") as step:
            step.note("pulumi")
            if failing:
                raise ValueError
    except ValueError:
        pass

    lines = out.getvalue().replace("\x1b[2K", "").splitlines()
    assert any(("✗" if failing else "✓") in line and "Building the tools" in line for line in lines)


def test_inner_steps_are_indented() -> None:
    out = io.StringIO()
    terminal = Terminal(Console(file=out, force_terminal=True, width=80, color_system=None))
    with terminal.step("outer"), terminal.step("inner"):
        pass

    assert "   ✓ inner" in out.getvalue()
    assert " ✓ outer" in out.getvalue()
