"""What a long benchmark says while it runs."""

import io

from rich.console import Console

from benchmarks import progress


def test_a_log_hears_now_and_then_how_far_it_is_and_results_stay_alone(monkeypatch, capsys):
    clock = iter([0.0, 0.0, 20.0, 40.0, 60.0, 80.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))

    assert list(progress.written(range(5), "rounds", 5)) == [0, 1, 2, 3, 4]

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "rounds: 2 of 5, about 60 s left",
        "rounds: 4 of 5, about 20 s left",
    ]


def test_a_terminal_has_a_bar_that_knows_how_many_rounds_are_done():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)

    rounds = progress.drawn(range(3), "rounds", 3, console)
    next(rounds), next(rounds)

    assert "1/3" in screen.getvalue()
    assert list(rounds) == [2]
