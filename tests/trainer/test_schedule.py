"""The schedule of the learning rate."""

from itertools import pairwise

import pytest

from trainer.schedule import Schedule


def test_the_rate_rises_linearly_to_its_peak_and_falls_to_zero_as_a_cosine() -> None:
    schedule = Schedule(peak=0.4, total_steps=100, warmup_fraction=0.1)
    rates = [schedule.rate(step) for step in range(101)]

    assert rates[0] == 0.04
    assert rates[9] == rates[10] == 0.4
    assert rates[40] == pytest.approx(0.3), "a third of half a cosine: (1 + cos 60°) / 2"
    assert all(later < earlier for earlier, later in pairwise(rates[10:]))
    assert rates[100] == 0


def test_a_run_of_one_step_trains_at_the_peak_rate() -> None:
    assert Schedule(peak=0.4, total_steps=1, warmup_fraction=0.1).rate(0) == 0.4
