"""The state of an optimizer before its first step, after it, and from checkpoints."""

import pytest
import torch
from torch import nn

from everstep.elastic.training.encoding import decode, encode
from everstep.elastic.training.optimizer_state import OptimizerState
from everstep.errors import EverstepError


def new_state(momentum: float = 0.9) -> tuple[OptimizerState, nn.Parameter]:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=momentum)
    return OptimizerState(optimizer, {parameter: "weight"}), parameter


def take_step(state: OptimizerState, parameter: nn.Parameter) -> None:
    parameter.grad = torch.ones(2)
    state.optimizer.step()


def test_an_optimizer_contains_its_state_from_its_first_step_on() -> None:
    state, parameter = new_state()
    is_initialized_before = state.is_initialized
    tensors_before = {name: tensor.tolist() for name, tensor in state.tensors().items()}

    take_step(state, parameter)

    assert (is_initialized_before, state.is_initialized) == (False, True)
    assert tensors_before == {"momentum.weight": [0, 0]}
    assert state.tensors()["momentum.weight"].tolist() == [1, 1]


class CountingOptimizer(torch.optim.SGD):
    """An optimizer that counts its steps in a parameter group, as schedule-free optimizers do."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1


def test_the_trial_step_changes_no_hyperparameter() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = CountingOptimizer([parameter], lr=0.1, momentum=0.9)

    OptimizerState(optimizer, {parameter: "weight"})

    assert "steps" not in optimizer.param_groups[0]
    assert optimizer.param_groups[0]["params"] == [parameter]


def test_the_trial_step_changes_neither_parameters_nor_gradients() -> None:
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = gradient = torch.full((2,), 3.0)

    # Weight decay changes a parameter even if its gradient is zero.
    OptimizerState(torch.optim.SGD([parameter], lr=0.1, weight_decay=0.1), {parameter: "weight"})

    assert parameter.tolist() == [1, 1]
    assert parameter.grad is gradient
    assert gradient.tolist() == [3, 3]


def test_an_optimizer_of_sparse_gradients_is_refused() -> None:
    parameter = nn.Parameter(torch.ones(2))

    with pytest.raises(EverstepError, match="SparseAdam cannot take a step with dense gradients"):
        OptimizerState(torch.optim.SparseAdam([parameter]), {parameter: "weight"})


def test_an_optimizer_without_tensors_always_contains_its_state() -> None:
    assert new_state(momentum=0)[0].is_initialized


@pytest.mark.parametrize("name", ["initialized", "materialised"])
@pytest.mark.parametrize("is_initialized", [False, True])
def test_a_checkpoint_records_under_either_name_whether_the_optimizer_contained_its_state(
    name: str, is_initialized: bool
) -> None:
    state, parameter = new_state()
    take_step(state, parameter)
    tensors = state.tensors()
    non_tensor_state = decode(state.non_tensor_state(tensors), tensors)
    del non_tensor_state["initialized"]

    state.load(
        encode({**non_tensor_state, name: is_initialized}, "hyperparameters", tensors), tensors
    )

    assert state.is_initialized == is_initialized
