"""The progress messages of a long benchmark."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from benchmarks import progress


def test_a_log_gets_periodic_progress_on_standard_error_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.0, 20.0, 40.0, 60.0, 80.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    assert list(progress.track_with_lines(range(5), "rounds", 5)) == [0, 1, 2, 3, 4]

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "rounds: 2 of 5, about 60 s left",
        "rounds: 4 of 5, about 20 s left",
    ]


def test_a_terminal_has_a_bar_with_the_number_of_finished_rounds() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)

    rounds = progress.track_with_bar(range(3), "rounds", 3, console)
    next(rounds)
    next(rounds)

    assert "1/3" in screen.getvalue()
    assert list(rounds) == [2]
