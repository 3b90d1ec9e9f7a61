"""The state of any optimizer as tensors with names, before and after its first step.

Most optimizers create their state in the first step. A worker that joins later must have the same
tensors, in the same order, to receive them. So their structure is found by a trial step with zero
gradients, which is undone. Until the first real step the optimizer stays as the user made it, and the
tensors of the state are zeros that the optimizer does not contain (`is_initialized` is False).
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from operator import is_not
from typing import Any

import torch
from torch import nn

from everstep.catalog.plurals import amount
from everstep.elastic.training.encoding import Tensors, decode, encode
from everstep.elastic.transport.local_tensors import local_tensor
from everstep.errors import EverstepError

MOMENTUM = "momentum_buffer"  # its names in checkpoints begin with `momentum`
INITIALIZED = "initialized"  # key of a flag in checkpoints
OLD_INITIALIZED = "materialised"  # its name in older ones
LATER_PARAMETERS = (
    "Create Run with every parameter that is ever trained, in the optimizer and with requires_grad. To train some "
    "later, set the learning rate of their parameter group to 0 until then: it belongs to the state of the run."
)


@dataclass(frozen=True)
class _Slot:
    """Description of one tensor of an optimizer's state.

    Attributes:
        name: its name in checkpoints.
        parameter: parameter that it belongs to.
        key: its key in the parameter's state.
        template: empty tensor of the same type, shape and layout, without memory.
        device: device on which the optimizer keeps it.
    """

    name: str
    parameter: nn.Parameter
    key: str
    template: torch.Tensor
    device: torch.device


class OptimizerState:
    """An optimizer's tensors by name, and its non-tensor state as JSON.

    Args:
        optimizer: optimizer of these parameters.
        names: name of each parameter of the model.

    Raises:
        EverstepError: the optimizer is not an optimizer, has no parameters, or parameters that are not the model's,
            or its step needs a closure or sparse gradients.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, names: Mapping[nn.Parameter, str]) -> None:
        if not hasattr(optimizer, "param_groups"):
            raise EverstepError(
                f"the optimizer is a {type(optimizer).__name__} without param_groups",
                "Pass one optimizer, with a parameter group for each part of the model that has its own settings.",
            )
        self.optimizer = optimizer
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        _check_parameters(self._parameters, names)
        self._frozen = [p for p in self._parameters if not p.requires_grad]
        state = dict(optimizer.state) or _take_trial_step(optimizer, self._parameters)
        self._slots = [
            _Slot(_tensor_name(names[p], key), p, key, torch.empty_like(t, device="meta"), t.device)
            for p in self._parameters
            for key, t in state.get(p, {}).items()
            if isinstance(t, torch.Tensor)
        ]
        self._placeholders: Tensors = {}
        self.non_tensor_count = sum(
            not torch.is_tensor(v) for d in state.values() for v in d.values()
        )

    def check_unchanged(self) -> None:
        """Check that the optimizer trains the parameters that it had at the beginning.

        Raises:
            EverstepError: a parameter was added or removed, or a frozen one needs gradients now: its gradient
                is not summed, and a joiner would not receive its state.
        """
        current = [p for group in self.optimizer.param_groups for p in group["params"]]
        if len(current) != len(self._parameters) or any(map(is_not, current, self._parameters)):
            raise EverstepError(
                "the optimizer's parameters have changed since Run was created", LATER_PARAMETERS
            )
        if count := sum(p.requires_grad for p in self._frozen):
            raise EverstepError(
                f"{amount(count, 'parameter')} that needed no gradients when Run was created need them now",
                LATER_PARAMETERS,
            )

    @property
    def is_initialized(self) -> bool:
        """True if the optimizer contains its state, for instance after a step; always if it has no tensors."""
        return bool(self.optimizer.state) or not self._slots

    def tensors(self) -> Tensors:
        """Return the state's tensors by name: the optimizer's, or zeros until it has them."""
        return {slot.name: local_tensor(self._tensor(slot)) for slot in self._slots}

    def non_tensor_state(self, tensors: Tensors) -> Any:  # noqa: ANN401 - JSON
        """Return the hyperparameters and the other values of the state that are not tensors, as JSON.

        Args:
            tensors: dict to which hyperparameters that are tensors are added, by name.
        """
        groups = [
            {key: value for key, value in group.items() if key != "params"}
            for group in self.optimizer.param_groups
        ]
        state = [
            {k: v for k, v in self.optimizer.state.get(p, {}).items() if not torch.is_tensor(v)}
            for p in self._parameters
        ]
        hyperparameters = {INITIALIZED: self.is_initialized, "groups": groups, "state": state}
        return encode(hyperparameters, "hyperparameters", tensors)

    def load(self, non_tensor_state: Any, tensors: Mapping[str, torch.Tensor]) -> None:  # noqa: ANN401 - JSON
        """Make the optimizer use the tensors that `tensors()` returned, with this non-tensor state.

        If it was saved before the optimizer's first step, clear the optimizer's state instead.

        Args:
            non_tensor_state: result of the method of this name; None in a checkpoint without it.
            tensors: the tensors that `non_tensor_state()` added to its argument.
        """
        hyperparameters: dict[str, Any] = {INITIALIZED: True}
        if non_tensor_state is not None:
            hyperparameters = decode(non_tensor_state, tensors)
        if hyperparameters.get(INITIALIZED, hyperparameters.get(OLD_INITIALIZED)):
            for slot in self._slots:
                self.optimizer.state[slot.parameter][slot.key] = self._tensor(slot)
            self._placeholders.clear()
        else:
            self.optimizer.state.clear()
        for parameter, values in zip(
            self._parameters, hyperparameters.get("state", ()), strict=False
        ):
            if values:
                self.optimizer.state[parameter].update(values)
        for group, values in zip(
            self.optimizer.param_groups, hyperparameters.get("groups", ()), strict=False
        ):
            group.update(values)

    def release(self) -> None:
        """Free the zeros that stand in for the state: the optimizer's first step allocates the state."""
        self._placeholders.clear()

    def _tensor(self, slot: _Slot) -> torch.Tensor:
        state = self.optimizer.state.get(slot.parameter, {})
        if slot.key in state:
            tensor: torch.Tensor = state[slot.key]
            return tensor
        if slot.name not in self._placeholders:
            self._placeholders[slot.name] = torch.zeros_like(slot.template, device=slot.device)
        return self._placeholders[slot.name]


def _tensor_name(parameter: str, key: str) -> str:
    return f"momentum.{parameter}" if key == MOMENTUM else f"optimizer.{parameter}.{key}"


@torch.no_grad()
def _take_trial_step(
    optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]
) -> dict[nn.Parameter, dict[str, Any]]:
    """Return the state after a step with zero gradients, and undo that step."""
    originals = [(p, p.detach().clone(), p.grad) for p in parameters]
    hyperparameters = [dict(group) for group in optimizer.param_groups]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step()
        return {p: dict(optimizer.state[p]) for p in parameters if p in optimizer.state}
    except torch.OutOfMemoryError:
        raise
    except (TypeError, RuntimeError) as error:
        need = "without a closure" if isinstance(error, TypeError) else "with dense gradients"
        raise EverstepError(
            f"{type(optimizer).__name__} cannot take a step {need}: {error}",
            "Use an optimizer whose step needs gradients only, such as SGD, AdamW or Adafactor.",
        ) from error
    finally:
        optimizer.state.clear()
        for group, values in zip(optimizer.param_groups, hyperparameters, strict=True):
            group.clear()  # some optimizers count their steps in the group
            group.update(values)
        for parameter, value, gradient in originals:
            parameter.copy_(value)
            parameter.grad = gradient


def _check_parameters(parameters: list[nn.Parameter], names: Mapping[nn.Parameter, str]) -> None:
    foreign_indices = [
        number for number, parameter in enumerate(parameters) if parameter not in names
    ]
    if not parameters or foreign_indices:
        raise EverstepError(
            f"{len(foreign_indices)} of the optimizer's {len(parameters)} parameters are not the model's"
            if foreign_indices
            else "the optimizer has no parameters",
            "Create the optimizer from model.parameters(), after the model is on its device.",
        )
