"""The parts of tensors that torch has split over the processes of a node: the DTensors of FSDP2.

The library sums, compares and copies only the memory of its own process, so it handles a part like any other
tensor. Nothing here communicates.
"""

from typing import Any

import torch


def is_split(tensor: torch.Tensor) -> bool:
    """Return True if this process has only a part of a tensor."""
    return hasattr(tensor, "to_local")  # a DTensor; the import of its class takes seconds


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a tensor, which shares its memory; of an ordinary tensor, the tensor."""
    if not is_split(tensor):
        return tensor
    split: Any = tensor
    with torch.no_grad():
        part: torch.Tensor = split.to_local()
    return part


def join_part(part: torch.Tensor, template: torch.Tensor) -> torch.Tensor:
    """Return a tensor that is split like `template` and has this part in this process."""
    if not is_split(template):
        return part
    from torch.distributed.tensor import DTensor

    split: Any = template
    return DTensor.from_local(
        part,
        split.device_mesh,
        split.placements,
        run_check=False,
        shape=split.shape,
        stride=split.stride(),
    )
