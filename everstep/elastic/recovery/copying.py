"""Comparison of the states of a new generation's workers, and copying of the tensors that differ.

A state is a list of tensors in an order that is the same on every worker. A tensor's checksum tells whether a
worker has its values: each 64-bit word is multiplied by a constant that depends on its position, and the products are
added modulo 2^64 (90 MB in 18 to 20 ms on one core). Different tensors have equal checksums with a probability of at
most 2^-32, if the constants are random. The sum of the words alone, twice as fast, is not enough: a step that adds the
smallest amount to one number and subtracts it from another does not change it, and the worker without that step kept
its old parameters. The checksum does not protect against forgery.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence

import torch

from everstep.elastic.data_order.leftover import Span
from everstep.elastic.recovery.state_machine import CopyPlan, StateReport, StepProgress
from everstep.elastic.transport.link import Link

MAX_COMPUTED_SPANS = 8  # spans that fit into a report; each lost group adds one or two
BLOCK_WORDS = 4096  # words of one block, 32 KiB: the constants stay in a CPU cache
GPU_BLOCKS = 4096
_PROGRESS_NUMBERS = 4  # two `StepProgress`, each a generation and a step
_HEADER_NUMBERS = _PROGRESS_NUMBERS + 2 * MAX_COMPUTED_SPANS  # numbers before the checksums


def checksums(tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Return a checksum of each tensor."""
    return tuple(torch.stack([_checksum(tensor) for tensor in tensors]).tolist()) if tensors else ()


def compare(
    link: Link, report: StateReport, tensors: Sequence[torch.Tensor]
) -> tuple[StateReport, ...]:
    """Exchange reports; return all of them by rank, with the checksums that `report` lacks.

    A worker without a state computes no checksums, and its report has none: it lacks every tensor, including tensors
    of zeros, whose checksum is 0.
    """
    sums = checksums(tensors) if report.progress.agreed_generation else (0,) * len(tensors)
    unused = [(0, 0)] * (MAX_COMPUTED_SPANS - len(report.computed_units))
    edges = [edge for span in (*report.computed_units, *unused) for edge in span]
    numbers = [*_pair(report.progress), *_pair(report.committed), *edges, *sums]
    record = torch.tensor(numbers, dtype=torch.int64)
    records = [record] if link.world_size == 1 else link.all_gather(record)
    return tuple(_report(record.tolist()) for record in records)


def copy(link: Link, plan: CopyPlan, tensors: Sequence[torch.Tensor]) -> None:
    """Send and receive all tensors of the plan at the same time.

    Raises:
        PeerLostError: a worker died during the copy; the tensors to receive are torn.
    """
    outgoing, incoming = [], []
    for rank, missing_tensors in sorted(plan.missing_tensors.items()):
        for tensor in missing_tensors:
            source = plan.source_of(tensor)
            tag = rank * len(tensors) + tensor
            if source == link.rank:
                outgoing.append((rank, tag, _flat(tensors[tensor])))
            elif rank == link.rank:
                incoming.append((source, tag, _flat(tensors[tensor])))
    link.send_and_receive(outgoing, incoming)


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
    progress = StepProgress(numbers[0], numbers[1])
    return StateReport(
        progress,
        StepProgress(numbers[2], numbers[3]),
        tuple(numbers[_HEADER_NUMBERS:]) if progress.agreed_generation else (),
        tuple(computed_units),
    )


def _pair(progress: StepProgress) -> tuple[int, int]:
    return progress.agreed_generation, progress.step


def _checksum(tensor: torch.Tensor) -> torch.Tensor:
    """Return the checksum of a tensor as a tensor without dimensions, on the same device."""
    words, level = _words(_flat(tensor)), 0
    while words.numel() > 1:
        words, level = _block_checksums(words, level), level + 1
    return words.sum()


def _words(flat: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes as 64-bit words, padded with zeros."""
    content = flat.view(torch.uint8)
    tail = content.numel() % 8
    if not tail:
        return content.view(torch.int64)
    return torch.cat([content, content.new_zeros(8 - tail)]).view(torch.int64)


def _block_checksums(words: torch.Tensor, level: int) -> torch.Tensor:
    """Return a checksum for each block of `BLOCK_WORDS` words; the last block may be shorter."""
    constants = _constants(level).to(words.device)
    count = words.numel() // BLOCK_WORDS
    blocks = words[: count * BLOCK_WORDS].view(count, BLOCK_WORDS)
    sums = _products(blocks, constants) if blocks.is_cuda else torch.mv(blocks, constants)
    last_words = words[count * BLOCK_WORDS :]
    if not last_words.numel():
        return sums
    return torch.cat([sums, (last_words * constants[: last_words.numel()]).sum().reshape(1)])


def _products(blocks: torch.Tensor, constants: torch.Tensor) -> torch.Tensor:
    """Return the product of a matrix and a vector of integers, which torch does not have on a GPU.

    Its parts limit the memory of the intermediate products to 128 MiB.
    """
    parts: Sequence[torch.Tensor] = blocks.split(GPU_BLOCKS)  # type: ignore[no-untyped-call] # torch's
    return torch.cat([(part * constants).sum(1) for part in parts])


@functools.cache
def _constants(level: int) -> torch.Tensor:
    """Return the constants of one level: odd numbers that look random and are the same on all workers."""
    digest = hashlib.shake_256(f"everstep checksum {level}".encode()).digest(8 * BLOCK_WORDS)
    return torch.frombuffer(bytearray(digest), dtype=torch.int64) | 1


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's memory as one dimension; the layouts are equal on all workers."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))
