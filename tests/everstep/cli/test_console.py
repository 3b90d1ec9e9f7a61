"""The consoles, and the progress on one of them."""

import io
from contextlib import AbstractContextManager, nullcontext

import pytest
from rich.console import Console

from everstep.cli.console import DistinctLines, Terminal, can_ask, results, warn


def test_without_a_terminal_only_new_details_are_printed() -> None:
    output = io.StringIO()
    with DistinctLines(output).step("Starting") as step:
        for detail in ("booting", "booting", "waiting for gpu-1", "waiting for gpu-1"):
            step.note(detail)

    assert [line.strip() for line in output.getvalue().splitlines()][:3] == [
        "... Starting",
        "booting",
        "waiting for gpu-1",
    ]
    assert output.getvalue().count("booting") == 1


@pytest.mark.parametrize("failing", [False, True])
def test_on_a_terminal_a_step_leaves_one_line_with_its_result(failing: bool) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80, color_system=None)
    end: AbstractContextManager[object] = nullcontext()
    if failing:
        end = pytest.raises(ValueError, match="no compiler")
    with end, Terminal(console).step("Building the tools") as step:
        step.note("pulumi")
        if failing:
            raise ValueError("no compiler")

    (line,) = [line for line in output.getvalue().splitlines() if "✓" in line or "✗" in line]
    assert f" {'✗' if failing else '✓'} Building the tools" in line


def test_inner_steps_are_indented() -> None:
    output = io.StringIO()
    terminal = Terminal(Console(file=output, force_terminal=True, width=80, color_system=None))
    with terminal.step("outer"), terminal.step("inner"):
        pass

    assert "   ✓ inner" in output.getvalue()
    assert " ✓ outer" in output.getvalue()


def test_an_ipv6_address_is_printed_unchanged(capfd: pytest.CaptureFixture[str]) -> None:
    address = "https://[fd00:a:b:100::1]:6443"

    results.print(address, markup=False)
    warn(address)

    streams = capfd.readouterr()
    assert streams.out == f"{address}\n"
    assert streams.err == f"warning: {address}\n"


def test_no_question_can_be_asked_without_a_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)

    assert not can_ask()
