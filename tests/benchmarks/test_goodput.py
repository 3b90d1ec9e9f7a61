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


def test_live_mode_has_the_highest_goodput_and_restarts_from_the_last_epoch_the_lowest() -> None:
    options = Namespace(seeds=3, hours=350, gigabits=10)
    for workload in WORKLOADS:
        rows = simulate(workload, 16, options)
        shares = {row["design"]: row["goodput"]["median"] for row in rows}

        assert shares["live"] >= 0.995
        assert max(shares, key=shares.__getitem__) == "live"
        assert min(shares, key=shares.__getitem__) == "restart, a checkpoint an epoch"
        assert all(row["assumptions"] for row in rows)
