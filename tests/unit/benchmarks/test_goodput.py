"""The simulation of goodput over spot markets."""

from argparse import Namespace
from itertools import accumulate

from benchmarks.goodput import WORKLOADS, history, simulate
from everstep.goodput import Cause


def test_a_history_never_takes_more_machines_than_there_are_and_has_the_markets_rate():
    changes = list(history(1, 16, per_hour=0.6, hours=350))
    sizes = accumulate(
        (one.machines if one.cause is Cause.JOIN else -one.machines for one in changes), initial=16
    )

    assert all(0 <= size <= 16 for size in sizes)
    assert 0.5 < len(changes) / 350 < 0.7


def test_living_on_keeps_almost_all_of_the_time_and_restarting_from_an_epoch_does_not():
    options = Namespace(seeds=3, hours=350, gigabits=10)
    for workload in WORKLOADS:
        rows = simulate(workload, 16, options)
        shares = {row["design"]: row["goodput"]["median"] for row in rows}

        assert shares["live"] >= 0.995
        assert all(share < shares["live"] for name, share in shares.items() if name != "live")
        assert all(row["assumptions"] for row in rows)
