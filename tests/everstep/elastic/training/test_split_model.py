"""Models that torch has split over processes, as `Run` accepts or refuses them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from everstep import elastic
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.sharded_worker import ShardedGroup
from everstep.elastic.training.split_model import check_split
from everstep.elastic.transport.parts import is_split, join_part, own_part
from everstep.errors import EverstepError


class GroupOfSize(ShardedGroup):
    """A group with a mesh of a given size, without an agent.

    Args:
        size: number of workers.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def mesh_size(self) -> int:
        """Number of workers."""
        return self._size


@pytest.fixture
def split_model(tmp_path: Path) -> Iterator[nn.Module]:
    """Yield a model that is split into one part."""
    distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    model = nn.Linear(5, 6)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    yield model
    distributed.destroy_process_group()


def error_of(model: nn.Module, group: ShardedGroup | None, **unsupported: bool) -> EverstepError:
    with pytest.raises(EverstepError) as exception:
        check_split(model, group, unsupported)
    return exception.value


def test_a_split_model_needs_a_group_that_has_its_mesh(split_model: nn.Module) -> None:
    for group in (None, GroupOfSize(0)):
        error = error_of(split_model, group)
        assert "the parameter weight is a DTensor" in error.problem
        assert "examples/sharded/fsdp.py" in error.fix


def test_arguments_that_need_the_whole_model_are_refused(split_model: nn.Module) -> None:
    error = error_of(split_model, GroupOfSize(1), scaler=True, checkpoint=False, max_grad_norm=True)

    assert "cannot be trained with scaler, max_grad_norm:" in error.problem


def test_a_disabled_gradient_scaler_counts_as_none(split_model: nn.Module) -> None:
    optimizer = torch.optim.SGD(split_model.parameters(), lr=0.1)

    def start(*, enabled: bool) -> elastic.Run:
        return elastic.Run(
            split_model,
            optimizer,
            dataset_size=4,
            global_batch=4,
            epochs=1,
            scaler=torch.amp.GradScaler("cpu", enabled=enabled),
            group=(GroupOfSize(1), TimeAccount()),
        )

    with pytest.raises(EverstepError, match="cannot be trained with scaler"):
        start(enabled=True)
    start(enabled=False)._session.state.reducer.close()


def test_unequal_parts_are_refused(split_model: nn.Module) -> None:
    error = error_of(split_model, GroupOfSize(2))

    assert "weight of shape (6, 5) is not sharded evenly over the 2 workers" in error.problem


def test_a_parameter_that_is_not_split_is_refused(split_model: nn.Module) -> None:
    model = nn.Sequential(split_model, nn.Linear(6, 1))

    assert "the parameter 1.weight" in error_of(model, GroupOfSize(1)).problem


def test_equal_parts_and_whole_models_are_accepted(split_model: nn.Module) -> None:
    check_split(split_model, GroupOfSize(1), {"scaler": False})
    check_split(nn.Linear(5, 6), None, {"scaler": True})


def test_a_part_shares_the_memory_of_its_tensor(split_model: nn.Module) -> None:
    (weight, _) = split_model.parameters()

    own_part(weight).fill_(3)

    assert torch.equal(own_part(weight), torch.full((6, 5), 3.0))
    assert not is_split(own_part(weight))


def test_a_joined_part_is_split_like_its_model(split_model: nn.Module) -> None:
    (weight, _) = split_model.parameters()
    joined = join_part(torch.ones(6, 5), weight)

    weight.grad = joined
    torch.optim.SGD([weight], lr=1.0).step()

    assert is_split(joined)
    assert joined.shape == weight.shape
    ordinary = torch.ones(2)
    assert join_part(ordinary, ordinary) is own_part(ordinary) is ordinary
