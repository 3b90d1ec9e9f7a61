"""The pause when a node returns, in the benchmarks that freeze nodes."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import elasticity, trainer
from tests.trainer.elastic.nodes import JournalEntry, Nodes


def step(at: float, number: int, generation: int, world_size: int) -> JournalEntry:
    entry = {"at": at, "step": number, "seconds": 1.0}
    return {**entry, "generation": generation, "world_size": world_size}


class RecordedNodes(Nodes):
    """Nodes whose journal is written by the test."""

    def __init__(self, steps: list[JournalEntry]) -> None:
        self.steps = steps

    def journal(self, kind: str) -> list[JournalEntry]:
        del kind
        return self.steps

    def signal_all(self, name: str, number: int) -> None:
        """Send nothing."""
        del name, number


def steps_around_a_freeze(event_time: float) -> list[JournalEntry]:
    """Return the steps after a freeze at `event_time`; the frozen worker records its last one late, after 2.5 s."""
    return [
        step(event_time + 1, 2, generation=2, world_size=2),
        step(event_time + 2, 3, generation=2, world_size=2),
        step(event_time + 2.5, 2, generation=1, world_size=3),
        step(event_time + 6, 4, generation=3, world_size=3),
    ]


def test_the_pause_at_a_return_ends_with_a_step_of_a_later_group() -> None:
    nodes = RecordedNodes([step(time.time(), 1, generation=1, world_size=3)])

    _, _, pause = trainer._measure_event(
        nodes, "freeze", lambda _: nodes.steps.extend(steps_around_a_freeze(time.time())), "w1"
    )

    assert pause == pytest.approx(4.0), "from the survivors' last step, not from the late one"


def test_the_cost_of_a_return_begins_with_the_last_step_of_the_survivors() -> None:
    steps = steps_around_a_freeze(0.0)
    nodes: Any = SimpleNamespace(journal=lambda _: steps)

    join = elasticity.change(nodes, 2.2, steps[-1])

    assert join.extra == pytest.approx(4.0 - 1.0)
