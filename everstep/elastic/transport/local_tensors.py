"""The local tensors of DTensors: the shards that this process has of a model that FSDP2 shards inside a node.

The library sums, compares and copies only the memory of its own process, so it handles a local tensor like any other
tensor. Nothing here communicates.
"""

from typing import Any

import torch


def is_sharded(tensor: torch.Tensor) -> bool:
    """Return True if a tensor is a DTensor, of which this process has only a shard."""
    return hasattr(tensor, "to_local")  # the import of DTensor takes seconds


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the local tensor of a DTensor, which shares its memory; return an ordinary tensor unchanged."""
    if not is_sharded(tensor):
        return tensor
    sharded: Any = tensor
    with torch.no_grad():
        local: torch.Tensor = sharded.to_local()
    return local


def from_local(local: torch.Tensor, template: torch.Tensor) -> torch.Tensor:
    """Return a tensor that is sharded like `template`, with this local tensor; `local` if `template` is not sharded."""
    if not is_sharded(template):
        return local
    from torch.distributed.tensor import DTensor

    sharded: Any = template
    return DTensor.from_local(
        local,
        sharded.device_mesh,
        sharded.placements,
        run_check=False,
        shape=sharded.shape,
        stride=sharded.stride(),
    )
