"""The state of an optimizer before its first step, after it, and from checkpoints."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

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


def state_with_new_head(optimizer_class: Callable[..., torch.optim.Optimizer]) -> OptimizerState:
    """Return the state of an optimizer that has trained a backbone before a head is added."""
    backbone, head = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    optimizer = optimizer_class([backbone], lr=0.1)
    backbone.grad = torch.ones(2)
    optimizer.step()
    optimizer.add_param_group({"params": [head]})
    return OptimizerState(optimizer, {backbone: "backbone", head: "head"})


def train_both(state: OptimizerState) -> list[list[float]]:
    """Take a step, and return the parameters."""
    parameters = [p for group in state.optimizer.param_groups for p in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.5)
    state.optimizer.step()
    return [p.tolist() for p in parameters]


def receive(source: OptimizerState, target: OptimizerState) -> None:
    """Copy a state as a joiner receives it; both have the same parameters."""
    sent, received = source.tensors(), target.tensors()
    non_tensor_state = source.non_tensor_state(sent)
    target.non_tensor_state(received)
    assert list(sent) == list(received)
    for name, tensor in received.items():
        tensor.copy_(sent[name])
    target.load(non_tensor_state, received)


def damped_sgd(parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Return an optimizer whose first momentum is the gradient, and not a part of it."""
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, dampening=0.5)


def test_a_parameter_without_state_beside_others_with_state_has_tensors_of_zeros() -> None:
    state = state_with_new_head(torch.optim.AdamW)
    tensors = state.tensors()

    assert tensors["optimizer.head.exp_avg"].tolist() == [0, 0, 0]
    assert tensors["optimizer.backbone.step"].item() == 1, "the trial step must not count"
    assert tensors["optimizer.backbone.exp_avg"].tolist() == pytest.approx([0.1, 0.1])
    assert len(state.optimizer.state) == 1, "the first step creates the state of the head"


@pytest.mark.parametrize("optimizer_class", [torch.optim.AdamW, torch.optim.Rprop, damped_sgd])
@pytest.mark.parametrize("steps", [0, 2])
def test_a_joiner_of_an_optimizer_with_a_new_head_continues_like_the_source(
    optimizer_class: Callable[..., torch.optim.Optimizer], steps: int
) -> None:
    source, target = state_with_new_head(optimizer_class), state_with_new_head(optimizer_class)
    weights = [train_both(source) for _ in range(steps)][-1:] or [[[0.9, 0.9], [1.0, 1.0, 1.0]]]
    for group, values in zip(target.optimizer.param_groups, weights[0], strict=True):
        group["params"][0].data = torch.tensor(values)
    for group, values in zip(source.optimizer.param_groups, weights[0], strict=True):
        group["params"][0].data = torch.tensor(values)

    receive(source, target)

    assert train_both(target) == train_both(source), "the head begins with its own first step"


def test_a_worker_that_is_ahead_loses_the_state_that_the_received_one_does_not_have() -> None:
    source, target = state_with_new_head(damped_sgd), state_with_new_head(damped_sgd)
    train_both(target)

    receive(source, target)

    assert len(target.optimizer.state) == 1
    assert target.tensors()["momentum.head"].tolist() == [0, 0, 0]


def test_an_optimizer_with_state_of_all_parameters_takes_no_trial_step() -> None:
    state, parameter = new_state()
    take_step(state, parameter)

    def step(_: Any, closure: None = None) -> None:
        pytest.fail("the trial step needs memory for a second state")

    optimizer = state.optimizer
    optimizer.__class__ = type("Other", (torch.optim.SGD,), {"step": step})

    assert list(OptimizerState(optimizer, {parameter: "weight"}).tensors()) == ["momentum.weight"]


class ListOptimizer(torch.optim.Optimizer):
    """An optimizer with a list of tensors in its state, as SOAP and Shampoo have, and state of no parameter."""

    def __init__(self, parameters: list[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        state: dict[Any, Any] = self.state
        state.setdefault("total", torch.zeros(1)).add_(1)
        for group in self.param_groups:
            for parameter in group["params"]:
                own = state[parameter]
                if not own:
                    own["Q"] = [torch.ones(n) for n in parameter.shape]
                    own["blocks"] = ({"left": torch.ones(2)},)
                for q in (*own["Q"], own["blocks"][0]["left"], state["total"]):
                    q.mul_(1 + parameter.grad.sum())
                change = own["Q"][-1] * own["blocks"][0]["left"][0] * state["total"]
                parameter.sub_(group["lr"] * change)


class GroupOptimizer(torch.optim.Optimizer):
    """An optimizer that creates a tensor in its parameter groups."""

    def __init__(self, parameters: list[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group.setdefault("count", torch.zeros(())).add_(1)
            for parameter in group["params"]:
                parameter.sub_(group["lr"] / group["count"] * parameter.grad)


def nested_state(
    optimizer_class: type[ListOptimizer | GroupOptimizer],
) -> tuple[OptimizerState, nn.Parameter]:
    parameter = nn.Parameter(torch.ones(2))
    return OptimizerState(optimizer_class([parameter], 0.1), {parameter: "weight"}), parameter


@pytest.mark.parametrize("optimizer_class", [ListOptimizer, GroupOptimizer])
@pytest.mark.parametrize("steps", [0, 2])
def test_a_joiner_receives_tensors_in_lists_and_in_parameter_groups(
    optimizer_class: type[ListOptimizer | GroupOptimizer], steps: int
) -> None:
    source, parameter = nested_state(optimizer_class)
    for _ in range(steps):
        take_step(source, parameter)
    target, target_parameter = nested_state(optimizer_class)
    target_parameter.data = parameter.detach().clone()

    receive(source, target)

    assert target.is_initialized == source.is_initialized
    for _ in range(2):
        take_step(source, parameter)
        take_step(target, target_parameter)
    assert target_parameter.tolist() == parameter.tolist()


@pytest.mark.parametrize("optimizer_class", [ListOptimizer, GroupOptimizer])
def test_a_worker_with_later_state_can_return_to_the_state_before_the_first_step(
    optimizer_class: type[ListOptimizer | GroupOptimizer],
) -> None:
    source, _ = nested_state(optimizer_class)
    target, parameter = nested_state(optimizer_class)
    take_step(target, parameter)

    receive(source, target)

    assert dict(target.optimizer.state) == {}
    assert target.optimizer.param_groups[0].keys() == {"params", "lr"}


def test_the_trial_step_changes_no_tensor_of_a_parameter_group() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = GroupOptimizer([parameter], 0.1)
    count = optimizer.param_groups[0]["count"] = torch.ones(())

    OptimizerState(optimizer, {parameter: "weight"})

    assert optimizer.param_groups[0]["count"] is count
    assert count == 1


class LateOptimizer(torch.optim.SGD):
    """An optimizer that creates a tensor in its second step."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for values in self.state.values():
            values["extra"] = self.extra
        super().step(closure)

    extra: Any = torch.zeros(1)


@pytest.mark.parametrize("extra", [torch.zeros(1), [torch.zeros(1)]])
def test_a_tensor_that_is_created_after_the_first_step_is_refused(extra: Any) -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = LateOptimizer([parameter], lr=0.1, momentum=0.9)
    optimizer.extra = extra
    state = OptimizerState(optimizer, {parameter: "weight"})
    take_step(state, parameter)
    state.non_tensor_state({})

    take_step(state, parameter)

    with pytest.raises(
        EverstepError, match="LateOptimizer has created 1 tensor of its state after"
    ):
        state.non_tensor_state({})


def test_the_trial_step_calls_no_hook_and_no_wrapper_of_step() -> None:
    parameter, calls = nn.Parameter(torch.ones(2)), list[str]()
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    handle = register_optimizer_step_post_hook(lambda *_: calls.append("after any"))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    wrapped_step: Any = optimizer.step

    def step() -> None:
        wrapped_step()
        calls.append("wrapper")

    optimizer.step = step  # type: ignore[assignment]
    attributes = dict(vars(optimizer))

    try:
        state = OptimizerState(optimizer, {parameter: "weight"})
        calls_of_trial_step, calls[:] = list(calls), []
        assert vars(optimizer) == attributes, "the scheduler warns if it precedes the first step"
        take_step(state, parameter)
    finally:
        handle.remove()

    assert calls_of_trial_step == []
    assert calls == ["before", "after", "after any", "wrapper"]
    assert scheduler.optimizer is optimizer
