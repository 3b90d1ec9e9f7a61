"""Operations on lists of tensors: on a GPU, one kernel for many tensors instead of one for each."""

from collections.abc import Sequence

import torch


def copy_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Copy each source into the target at the same position.

    On a GPU, torch copies a list of mixed dtypes one tensor at a time, so each pair of dtypes has its own call.

    Args:
        targets: tensors of any shapes and dtypes.
        sources: as many tensors; each has the shape of its target, or broadcasts to it.
    """
    by_dtypes: dict[tuple[torch.dtype, torch.dtype], tuple[list[torch.Tensor], list[torch.Tensor]]]
    by_dtypes = {}
    for target, source in zip(targets, sources, strict=True):
        group = by_dtypes.setdefault((target.dtype, source.dtype), ([], []))
        group[0].append(target)
        group[1].append(source)
    for group in by_dtypes.values():
        torch._foreach_copy_(*group)
