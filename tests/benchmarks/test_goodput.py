"""The simulation of goodput over spot markets."""

from argparse import Namespace
from itertools import accumulate

from benchmarks.goodput import WORKLOADS, history, simulate
from everstep.goodput import ChangeCause


def test_a_history_has_the_rate_of_the_market_and_a_valid_number_of_machines() -> None:
    changes = list(history(1, 16, per_hour=0.6, hours=350))
    sizes = accumulate(
        (
            change.machines if change.cause is ChangeCause.JOIN else -change.machines
            for change in changes
        ),
        initial=16,
    )

    assert all(0 <= size <= 16 for size in sizes)
    assert 0.5 < len(changes) / 350 < 0.7


def test_live_mode_has_a_higher_goodput_than_every_design_that_restarts() -> None:
    options = Namespace(seeds=3, hours=350, gigabits=10)
    for workload in WORKLOADS:
        rows = simulate(workload, 16, options)
        shares = {row["design"]: row["goodput"]["median"] for row in rows}

        assert shares["live"] >= 0.995
        assert len(shares) > 1
        assert all(share < shares["live"] for name, share in shares.items() if name != "live")
        assert all(row["assumptions"] for row in rows)
