"""Checks of models that are sharded over processes (FSDP2), before `Run` trains them."""

from collections.abc import Mapping

from torch import nn

from everstep.elastic.checkpoint.sharded_store import Sharding
from everstep.elastic.recovery.sharded_worker import ShardedGroup
from everstep.elastic.recovery.worker import Group
from everstep.elastic.transport.local_tensors import is_sharded, local_tensor
from everstep.errors import EverstepError


def sharding_of(group: Group | None) -> Sharding | None:
    """Return this worker's shard of the model; None if each worker has the whole model.

    Args:
        group: the group that was passed to `Run`.
    """
    if not isinstance(group, ShardedGroup) or group.shards == 1:
        return None
    return Sharding(group.local_rank, group.shards, lambda: group.node_processes)


def check_sharding(
    model: nn.Module,
    group: Group | None,
    unsupported: Mapping[str, bool],
    unsupported_by_hand: Mapping[str, bool],
) -> None:
    """Check a model that is sharded over the workers of a node; an unsharded model is accepted.

    Args:
        model: the model.
        group: the group that was passed to `Run`.
        unsupported: arguments of `Run` that a sharded model does not allow, and whether each is set.
        unsupported_by_hand: arguments that a model does not allow that the program, and not torch, has sharded.

    Raises:
        EverstepError: the model is sharded in another way, or cannot be trained with these arguments.
    """
    sharded = {name: p for name, p in model.named_parameters() if is_sharded(p)}
    if not sharded:
        if sharding_of(group):
            _refuse({**unsupported, **unsupported_by_hand})
        return
    name, parameter = next(iter(sharded.items()))
    if not isinstance(group, ShardedGroup) or not group.mesh_size:
        raise EverstepError(
            f"the parameter {name} is a {type(parameter.data).__name__}, of which this process has "
            "one shard, and Run does not know the processes with the others",
            "Shard the model by fully_shard over the mesh of attach_sharded(...).node_mesh(), as "
            "examples/sharded/fsdp.py does, or pass an unsharded model.",
        )
    _refuse(unsupported)
    for name, parameter in model.named_parameters():
        if (
            name not in sharded
            or local_tensor(parameter).numel() * group.mesh_size != parameter.numel()
        ):
            raise EverstepError(
                f"the parameter {name} of shape {tuple(parameter.shape)} is not sharded evenly "
                f"over the {group.mesh_size} workers of a node",
                "Apply fully_shard to the whole model, and make the first dimension of each parameter a "
                "multiple of the number of workers.",
            )


def _refuse(unsupported: Mapping[str, bool]) -> None:
    """Raise EverstepError if an argument is set."""
    if arguments := [argument for argument, is_set in unsupported.items() if is_set]:
        raise EverstepError(
            f"a sharded model cannot be trained with {', '.join(arguments)}: no worker has the whole model",
            "Remove these arguments of Run.",
        )
