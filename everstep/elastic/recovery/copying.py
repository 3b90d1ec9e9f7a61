"""Comparison of the states of a new generation's workers, and copying of the tensors that differ.

A state is a list of tensors in an order that is the same on every worker. Usually all workers with a state have the
same one, and their sums of words (`checksums`) can only differ if a machine is faulty. If a worker is behind, its
tensors are compared by checksums that no step leaves unchanged.
"""

from collections.abc import Callable, Mapping, Sequence

import torch

from everstep.elastic.data_order.leftover import Span
from everstep.elastic.recovery.checksums import checksums, flat_memory, word_sums
from everstep.elastic.recovery.state_machine import CopyPlan, StateReport, StepProgress
from everstep.elastic.transport.abortable_group import AbortableGroup

MAX_COMPUTED_SPANS = 8  # spans that fit into a report; each lost group adds one or two
_PROGRESS_NUMBERS = (
    5  # generation and step of two `StepProgress`, and whether the epoch has ended in the first
)
_HEADER_NUMBERS = _PROGRESS_NUMBERS + 2 * MAX_COMPUTED_SPANS  # numbers before the checksums


def compare(
    process_group: AbortableGroup, report: StateReport, tensors: Sequence[torch.Tensor]
) -> tuple[StateReport, ...]:
    """Exchange reports; return all of them by rank, with the checksums that `report` lacks.

    A worker without a state computes no checksums, and its report has none: it lacks every tensor, including tensors
    of zeros, whose checksum is 0.
    """
    reports = _exchange(process_group, report, tensors, word_sums)
    if len({r.progress for r in reports if r.progress.agreed_generation}) <= 1:
        return reports
    return _exchange(process_group, report, tensors, checksums)


def _exchange(
    process_group: AbortableGroup,
    report: StateReport,
    tensors: Sequence[torch.Tensor],
    compute_sums: Callable[[Sequence[torch.Tensor]], tuple[int, ...]],
) -> tuple[StateReport, ...]:
    """Exchange reports with sums of all tensors."""
    sums = compute_sums(tensors) if report.progress.agreed_generation else (0,) * len(tensors)
    unused = [(0, 0)] * (MAX_COMPUTED_SPANS - len(report.computed_units))
    edges = [edge for span in (*report.computed_units, *unused) for edge in span]
    epoch_ended = int(report.progress.epoch_ended)
    numbers = [*_pair(report.progress), *_pair(report.committed), epoch_ended, *edges, *sums]
    record = torch.tensor(numbers, dtype=torch.int64)
    records = [record] if process_group.world_size == 1 else process_group.all_gather(record)
    return tuple(_report(record.tolist()) for record in records)


def copy(process_group: AbortableGroup, plan: CopyPlan, tensors: Sequence[torch.Tensor]) -> None:
    """Send and receive all tensors of the plan at the same time.

    Raises:
        PeerLostError: a worker died during the copy; the tensors to receive are torn.
    """
    outgoing, incoming = [], []
    for rank, missing_tensors in sorted(plan.missing_tensors.items()):
        for tensor in missing_tensors:
            source = plan.source_of(tensor)
            tag = rank * len(tensors) + tensor
            if source == process_group.rank:
                outgoing.append((rank, tag, flat_memory(tensors[tensor])))
            elif rank == process_group.rank:
                incoming.append((source, tag, flat_memory(tensors[tensor])))
    process_group.send_and_receive(outgoing, incoming)


def received_bytes(plan: CopyPlan, rank: int, tensors: Sequence[torch.Tensor]) -> Mapping[int, int]:
    """Return the number of bytes that a rank receives by the plan, by the rank that sends them."""
    received: dict[int, int] = {}
    for tensor in plan.missing_tensors.get(rank, ()):
        source = plan.source_of(tensor)
        received[source] = received.get(source, 0) + tensors[tensor].nbytes
    return received


def _report(numbers: list[int]) -> StateReport:
    edges = numbers[_PROGRESS_NUMBERS:_HEADER_NUMBERS]
    computed_units: list[Span] = [
        span for span in zip(edges[::2], edges[1::2], strict=True) if any(span)
    ]
    progress = StepProgress(numbers[0], numbers[1], epoch_ended=bool(numbers[4]))
    return StateReport(
        progress,
        StepProgress(numbers[2], numbers[3]),
        tuple(numbers[_HEADER_NUMBERS:]) if progress.agreed_generation else (),
        tuple(computed_units),
    )


def _pair(progress: StepProgress) -> tuple[int, int]:
    return progress.agreed_generation, progress.step
