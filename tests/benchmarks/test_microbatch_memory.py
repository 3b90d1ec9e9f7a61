"""The memory of a worker whose share of the batch grows when others leave."""

from argparse import Namespace

import pytest

from benchmarks.microbatch_memory import MODES, measure

OPTIONS = Namespace(model="resnet18", size=32, global_batch=32)


@pytest.mark.parametrize("mode", ["live", "exact"])
def test_memory_does_not_grow_when_the_other_workers_leave(mode: str) -> None:
    at_8_of_8, at_1_of_8 = (measure(OPTIONS, MODES[mode], workers) for workers in (8, 1))

    assert at_1_of_8 <= 1.1 * at_8_of_8


def test_without_a_bound_memory_grows_with_the_share() -> None:
    at_8_of_8, at_1_of_8 = (measure(OPTIONS, MODES["unbounded"], workers) for workers in (8, 1))

    assert at_1_of_8 > 4 * at_8_of_8, "otherwise the measurement shows nothing"
