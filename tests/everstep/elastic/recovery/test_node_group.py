"""torch's process group of a node, over real connections in one process, one thread per worker."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from everstep.elastic.recovery.node_group import NodeProcessGroup
from everstep.elastic.transport.abortable_group import AbortableGroup
from everstep.elastic.transport.group import PeerLostError
from tests.everstep.elastic.transport.process_groups import WAIT_SECONDS, run

WORKERS = 2


def run_on_all(port: int, work: Callable[[NodeProcessGroup, AbortableGroup], Any]) -> list[Any]:
    """Return the result of each worker of a node."""

    def run_worker(process_group: AbortableGroup) -> Any:
        return work(
            NodeProcessGroup(process_group.rank, WORKERS, lambda: process_group), process_group
        )

    return run(port, WORKERS, run_worker)


def gather(group: NodeProcessGroup, value: float) -> list[float]:
    output = torch.full((WORKERS,), 7.0)
    group.all_gather_single(output, torch.tensor([value])).wait()
    return output.tolist()


def test_the_parts_of_a_node_are_gathered(port: int) -> None:
    results = run_on_all(port, lambda group, process_group: gather(group, process_group.rank + 1.0))

    assert results == [[1.0, 2.0]] * WORKERS


def test_gradients_are_summed_and_each_worker_receives_its_part(port: int) -> None:
    def scatter(group: NodeProcessGroup, process_group: AbortableGroup) -> list[float]:
        output, values = torch.zeros(1), torch.tensor([1.0, 10.0]) * (process_group.rank + 1)
        group.reduce_scatter_single(output, values).wait()
        return output.tolist()

    assert run_on_all(port, scatter) == [[3.0], [30.0]]


def test_a_lost_group_yields_zeros_so_that_a_pass_can_end_and_the_error_is_raised_later(
    port: int,
) -> None:
    all_built = threading.Barrier(WORKERS)

    def lose(group: NodeProcessGroup, process_group: AbortableGroup) -> list[float]:
        group.raise_error()
        # An abort would end the other worker's attempt to build its group.
        all_built.wait(WAIT_SECONDS)
        process_group.abort()
        output = gather(group, 1.0)
        with pytest.raises(PeerLostError):
            group.raise_error()
        return output

    assert run_on_all(port, lose) == [[0.0] * WORKERS] * WORKERS


def test_the_error_of_a_generation_is_forgotten_in_the_next_one(port: int) -> None:
    def lose_and_continue(group: NodeProcessGroup, process_group: AbortableGroup) -> list[float]:
        group._error = PeerLostError("lost")
        assert gather(group, 5.0) == [0.0] * WORKERS
        group.begin_generation()
        group.raise_error()
        return gather(group, process_group.rank + 1.0)

    assert run_on_all(port, lose_and_continue) == [[1.0, 2.0]] * WORKERS


def test_a_pass_outside_a_group_fails_and_computes_nothing_with_zeros() -> None:
    def no_process_group() -> AbortableGroup:
        raise PeerLostError("this worker is in no group")

    with pytest.raises(PeerLostError, match="in no group"):
        gather(NodeProcessGroup(0, WORKERS, no_process_group), 1.0)
