"""Models that are sharded over processes (FSDP2), as `Run` accepts or refuses them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from everstep import elastic
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.sharded_worker import ShardedGroup
from everstep.elastic.training.optimizer_state import OptimizerState
from everstep.elastic.training.sharded_model import check_sharding
from everstep.elastic.transport.local_tensors import from_local, is_sharded, local_tensor
from everstep.errors import EverstepError


class GroupOfSize(ShardedGroup):
    """A group with a mesh of a given size, without an agent.

    Args:
        size: number of workers.
    """

    def __init__(self, size: int) -> None:
        self._size = self.shards = size
        self.local_rank, self.node_processes = 0, ""

    @property
    def mesh_size(self) -> int:
        """Number of workers."""
        return self._size


@pytest.fixture
def sharded_model(tmp_path: Path) -> Iterator[nn.Module]:
    """Yield a model that is sharded over one process."""
    distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    model = nn.Linear(5, 6)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    yield model
    distributed.destroy_process_group()


def error_of(model: nn.Module, group: ShardedGroup | None, **unsupported: bool) -> EverstepError:
    with pytest.raises(EverstepError) as exception:
        check_sharding(model, group, unsupported, {"max_grad_norm": True})
    return exception.value


def test_a_sharded_model_needs_a_group_that_has_its_mesh(sharded_model: nn.Module) -> None:
    for group in (None, GroupOfSize(0)):
        error = error_of(sharded_model, group)
        assert "the parameter weight is a DTensor" in error.problem
        assert "examples/sharded/fsdp.py" in error.fix


def test_arguments_that_need_the_whole_model_are_refused(sharded_model: nn.Module) -> None:
    error = error_of(sharded_model, GroupOfSize(1), scaler=True, exact=False, other=True)

    assert "cannot be trained with scaler, other:" in error.problem


def test_a_model_that_the_program_has_sharded_allows_fewer_arguments() -> None:
    """A parameter that is on all workers would count several times in the norm of the gradients."""
    error = error_of(nn.Linear(5, 6), GroupOfSize(2), scaler=False)

    assert "cannot be trained with max_grad_norm:" in error.problem


def test_a_disabled_gradient_scaler_counts_as_none(sharded_model: nn.Module) -> None:
    optimizer = torch.optim.SGD(sharded_model.parameters(), lr=0.1)

    def start(*, enabled: bool) -> elastic.Run:
        return elastic.Run(
            sharded_model,
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


def test_unequal_shards_are_refused(sharded_model: nn.Module) -> None:
    error = error_of(sharded_model, GroupOfSize(2))

    assert "weight of shape (6, 5) is not sharded evenly over the 2 workers" in error.problem


def test_a_parameter_that_is_not_sharded_is_refused(sharded_model: nn.Module) -> None:
    model = nn.Sequential(sharded_model, nn.Linear(6, 1))

    assert "the parameter 1.weight" in error_of(model, GroupOfSize(1)).problem


def test_equal_shards_and_unsharded_models_are_accepted(sharded_model: nn.Module) -> None:
    check_sharding(sharded_model, GroupOfSize(1), {"scaler": False}, {"max_grad_norm": True})
    check_sharding(nn.Linear(5, 6), None, {"scaler": True}, {"max_grad_norm": True})


def test_a_local_tensor_shares_the_memory_of_its_dtensor(sharded_model: nn.Module) -> None:
    (weight, _) = sharded_model.parameters()

    local_tensor(weight).fill_(3)

    assert torch.equal(local_tensor(weight), torch.full((6, 5), 3.0))
    assert not is_sharded(local_tensor(weight))


def test_a_tensor_from_a_local_tensor_is_sharded_like_its_template(
    sharded_model: nn.Module,
) -> None:
    (weight, _) = sharded_model.parameters()
    sharded = from_local(torch.ones(6, 5), weight)

    weight.grad = sharded
    torch.optim.SGD([weight], lr=1.0).step()

    assert is_sharded(sharded)
    assert sharded.shape == weight.shape
    ordinary = torch.ones(2)
    assert from_local(ordinary, ordinary) is local_tensor(ordinary) is ordinary


class ListMomentum(torch.optim.Optimizer):
    """An optimizer with its momentum in a list, as SOAP has its preconditioners."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                (momentum,) = self.state[parameter].setdefault("m", [torch.zeros_like(parameter)])
                parameter.sub_(momentum.add_(parameter.grad))


@pytest.mark.parametrize("is_partial", [False, True])
def test_a_shard_in_a_list_of_the_optimizer_is_received_as_a_shard(
    sharded_model: nn.Module, *, is_partial: bool
) -> None:
    weight, bias = sharded_model.parameters()
    optimizer: Any = ListMomentum([weight, bias])
    if is_partial:
        weight.grad = torch.ones_like(weight)
        optimizer.param_groups[0]["params"] = [weight]
        optimizer.step()
        optimizer.param_groups[0]["params"] = [weight, bias]
    state = OptimizerState(optimizer, {weight: "weight", bias: "bias"})
    tensors = state.tensors()
    state.non_tensor_state(tensors)
    own = {name: tensor.tolist() for name, tensor in tensors.items()}
    assert not any(map(is_sharded, tensors.values()))
    weight.grad, bias.grad = torch.ones_like(weight), torch.ones_like(bias)
    optimizer.step()
    text = state.non_tensor_state({})
    optimizer.state.clear()
    received = state.tensors()
    state.non_tensor_state(received)
    for tensor in received.values():
        tensor.fill_(4)

    state.load(text, received)

    assert own["hyperparameters.state.0.m.0"][0][0] == int(is_partial), "the trial step is undone"
    (momentum,) = optimizer.state[bias]["m"]
    assert is_sharded(momentum)
    assert local_tensor(momentum).tolist() == [4] * 6
    optimizer.step()
