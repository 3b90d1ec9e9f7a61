"""Comparison of states: which tensors a worker receives."""

from typing import cast

import torch

from everstep.elastic.recovery.copying import compare
from everstep.elastic.recovery.state_machine import StateReport, StepProgress, plan_copy
from everstep.elastic.transport.abortable_group import AbortableGroup


class Recorder:
    """The connection of a worker in a group of two: it records what it sends, and receives `others`."""

    rank, world_size = 0, 2

    def __init__(self, others: list[torch.Tensor]) -> None:
        self.others, self.records = others, list[torch.Tensor]()

    def all_gather(self, record: torch.Tensor) -> list[torch.Tensor]:
        self.records.append(record)
        index = len(self.records) - 1
        return [record, self.others[index] if index < len(self.others) else record]


def comparison(
    first: tuple[StepProgress, torch.Tensor], second: tuple[StepProgress, torch.Tensor]
) -> tuple[tuple[StateReport, ...], int]:
    """Return the reports of two workers with one tensor each, and the number of exchanges."""
    others = list[torch.Tensor]()
    for _ in range(3):  # until the second worker has answered each exchange of the first
        connection = Recorder(others)
        reports = compare(cast("AbortableGroup", connection), StateReport(first[0]), [first[1]])
        mirror = Recorder(connection.records)
        compare(cast("AbortableGroup", mirror), StateReport(second[0]), [second[1]])
        others = mirror.records
    return reports, len(connection.records)


def test_a_worker_that_is_behind_receives_a_tensor_whose_changes_add_up_to_zero() -> None:
    old, new = torch.tensor([3, 0, 8, 0]), torch.tensor([4, 0, 7, 0])

    reports, exchanges = comparison((StepProgress(2, 11), new), (StepProgress(2, 10), old))

    plan = plan_copy(reports)
    assert plan is not None
    assert (plan.sources, plan.missing_tensors) == ((0,), {1: (0,)})
    assert exchanges == 2


def test_a_worker_that_is_behind_keeps_the_tensors_that_no_step_has_changed() -> None:
    frozen = torch.arange(10)

    reports, _ = comparison((StepProgress(2, 11), frozen), (StepProgress(2, 10), frozen.clone()))

    plan = plan_copy(reports)
    assert plan is not None
    assert plan.missing_tensors == {1: ()}


def test_workers_of_equal_progress_exchange_their_checksums_once() -> None:
    tensor = torch.arange(10)

    reports, exchanges = comparison((StepProgress(2, 11), tensor), (StepProgress(2, 11), tensor))

    plan = plan_copy(reports)
    assert plan is not None
    assert (plan.sources, plan.missing_tensors, exchanges) == ((0, 1), {}, 1)


def test_a_worker_without_a_state_also_receives_tensors_of_zeros() -> None:
    """An interrupted copy leaves arbitrary numbers in its tensors."""
    torn_tensor = torch.ones(3)

    reports, exchanges = comparison(
        (StepProgress(2, 10), torch.zeros(3)), (StepProgress(), torn_tensor)
    )

    plan = plan_copy(reports)
    assert plan is not None
    assert (plan.missing_tensors, exchanges) == ({1: (0,)}, 1)
