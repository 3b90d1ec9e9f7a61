"""Checksums of tensors, by which workers find out whose tensors differ.

There are two:

* `word_sums` adds the 64-bit words of a tensor, at memory speed (90 MB in 11 ms on one core). It detects one wrong
  number, but not every state that is a step behind: an optimizer step that adds the smallest amount to one
  number and subtracts it from another leaves the sum unchanged.
* `checksums` takes three times as long. Each 32-bit number is multiplied by a 64-bit constant for its position, and the
  products are added modulo 2^64. With random constants, two different tensors have equal checksums with a probability
  of at most 2^-33 for each level of blocks: their numbers differ by less than 2^32, so the sum of the products is
  0 for at most one of 2^33 constants (Carter and Wegman, "Universal Classes of Hash Functions", 1979). With
  64-bit numbers, changes of two sign bits would cancel out.

Neither protects against forgery, since the constants are public.
"""

import functools
import hashlib
from collections.abc import Sequence

import torch

BLOCK = 4096  # numbers of one block: its constants, 32 KiB, stay in a CPU cache
CPU_BLOCKS = 32  # blocks that are converted to 64-bit numbers at the same time, 1 MiB: they stay in a CPU cache
GPU_BLOCKS = 4096  # likewise, 128 MiB of a GPU's memory


def word_sums(tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Return the sum of each tensor's 64-bit words, modulo 2^64."""
    return _as_integers([_words(tensor).sum() for tensor in tensors])


def checksums(tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Return a checksum of each tensor, in which every bit and its position count."""
    return _as_integers([_checksum(_words(tensor)) for tensor in tensors])


def flat_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's memory as one dimension; the layouts are equal on all workers."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def _as_integers(sums: Sequence[torch.Tensor]) -> tuple[int, ...]:
    return tuple(torch.stack(list(sums)).tolist()) if sums else ()  # waits for a GPU only once


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes as 64-bit integers, padded with zeros."""
    content = flat_memory(tensor).view(torch.uint8)
    tail = content.numel() % 8
    if not tail:
        return content.view(torch.int64)
    return torch.cat([content, content.new_zeros(8 - tail)]).view(torch.int64)


def _checksum(words: torch.Tensor) -> torch.Tensor:
    """Return the checksum of 64-bit integers as a tensor without dimensions, on the same device.

    Each level replaces a block of 32-bit numbers with one integer.
    """
    for level in range(words.numel()):
        words = _block_sums(words.view(torch.int32), level)
        if words.numel() == 1:
            break
    return words.sum()


def _block_sums(numbers: torch.Tensor, level: int) -> torch.Tensor:
    """Return the sum of products of each block of 32-bit numbers; the last block may be shorter."""
    constants = _constants(level).to(numbers.device)
    count = numbers.numel() // BLOCK
    blocks = numbers[: count * BLOCK].view(count, BLOCK)
    sums = _gpu_sums(blocks, constants) if numbers.is_cuda else _cpu_sums(blocks, constants)
    last_numbers = numbers[count * BLOCK :]
    if not last_numbers.numel():
        return sums
    return torch.cat([sums, (last_numbers * constants[: last_numbers.numel()]).sum().reshape(1)])


def _cpu_sums(blocks: torch.Tensor, constants: torch.Tensor) -> torch.Tensor:
    """Return the product of a matrix of 32-bit numbers and the constants."""
    sums = torch.empty(len(blocks), dtype=torch.int64)
    buffer = torch.empty(min(CPU_BLOCKS, len(blocks)), BLOCK, dtype=torch.int64)
    for first in range(0, len(blocks), CPU_BLOCKS):
        part = blocks[first : first + CPU_BLOCKS]
        wide_part = buffer[: len(part)].copy_(part)
        torch.mv(wide_part, constants, out=sums[first : first + len(part)])
    return sums


def _gpu_sums(blocks: torch.Tensor, constants: torch.Tensor) -> torch.Tensor:
    """Return the same product as `_cpu_sums`: torch cannot multiply integer matrices on a GPU."""
    parts: Sequence[torch.Tensor] = blocks.split(GPU_BLOCKS)  # type: ignore[no-untyped-call] # torch's
    return torch.cat([(part * constants).sum(1) for part in parts])


@functools.cache
def _constants(level: int) -> torch.Tensor:
    """Return the constants of one level: they look random, and are the same on all workers."""
    digest = hashlib.shake_256(f"everstep checksum {level}".encode()).digest(8 * BLOCK)
    return torch.frombuffer(bytearray(digest), dtype=torch.int64)
