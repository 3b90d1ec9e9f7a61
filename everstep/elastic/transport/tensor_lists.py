"""Operations on lists of tensors: on a GPU, one kernel for many tensors instead of one for each."""

from collections.abc import Sequence

import torch


def copy_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Copy each source into the target at its place in the list.

    On a GPU torch copies a list with several types one tensor at a time, so each pair of types has its own call.

    Args:
        targets: tensors of any shapes and types.
        sources: as many tensors; each has the shape of its target, or broadcasts to it.
    """
    by_types: dict[tuple[torch.dtype, torch.dtype], tuple[list[torch.Tensor], list[torch.Tensor]]]
    by_types = {}
    for target, source in zip(targets, sources, strict=True):
        group = by_types.setdefault((target.dtype, source.dtype), ([], []))
        group[0].append(target)
        group[1].append(source)
    for group in by_types.values():
        torch._foreach_copy_(*group)
