"""The state of any optimizer as tensors with names, before and after its first step.

Most optimizers create their state in the first step. A worker that joins later must have the same
tensors, in the same order, to receive them. So their structure is found by a trial step with zero
gradients, which is undone. Until the first real step the optimizer stays as the user made it, and the
tensors that it lacks are represented by zeros that it does not contain. A trained backbone with a new
head lacks some of them, a new optimizer all (`is_initialized` is False).

An optimizer with state for each parameter that is trained takes no trial step: its own state shows the structure. The
trial step of any other optimizer runs on a copy of its state. It needs memory for this copy, for the
state of all parameters and for a copy of them, until it is undone.
"""

import copy
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from operator import is_not
from typing import Any

import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from everstep.catalog.plurals import amount
from everstep.elastic.training.encoding import Tensors, count_values, decode, encode
from everstep.elastic.transport.local_tensors import from_local, local_tensor
from everstep.errors import EverstepError

MOMENTUM = "momentum_buffer"  # its names in checkpoints begin with `momentum`
INITIALIZED = "initialized"  # key of a flag in checkpoints
OLD_INITIALIZED = "materialised"  # its name in older ones
PATH = "hyperparameters"  # prefix of the names of tensors in groups and in containers
STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
LATER_PARAMETERS = (
    "Create Run with every parameter that is ever trained, in the optimizer and with requires_grad. To train some "
    "later, set the learning rate of their parameter group to 0 until then: it belongs to the state of the run."
)


@dataclass(frozen=True)
class _Template:
    """Description of a tensor.

    Attributes:
        empty: empty tensor of the same type, shape and layout, without memory.
        device: device on which the optimizer keeps the tensor.
    """

    empty: torch.Tensor
    device: torch.device


@dataclass(frozen=True)
class _Slot:
    """One tensor of an optimizer's state that is not inside a list or another container.

    Attributes:
        name: its name in checkpoints.
        parameter: parameter that it belongs to.
        key: its key in the parameter's state.
    """

    name: str
    parameter: nn.Parameter
    key: str


class OptimizerState:
    """An optimizer's tensors by name, and its non-tensor state as JSON.

    Args:
        optimizer: optimizer of these parameters.
        names: name of each parameter of the model.

    Attributes:
        value_count: number of values in the JSON after the first step.

    Raises:
        EverstepError: the optimizer is not an optimizer, has no parameters, or parameters that are not the model's,
            or its step needs a closure or sparse gradients, or its state contains objects that cannot be saved.
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
        self._names = names
        self._frozen = [p for p in self._parameters if not p.requires_grad]
        self._group_keys = [set(group) for group in optimizer.param_groups]
        self._slots: list[_Slot] = []
        self._templates: dict[str, _Template] = {}
        self._placeholders: Tensors = {}
        # A value that cannot be saved cannot be copied for the trial step either.
        encode(self._values(), PATH, {})
        is_complete = all(optimizer.state.get(p) for p in self._parameters if p.requires_grad)
        with nullcontext() if is_complete else _trial_step(optimizer, self._parameters):
            self._find_tensors()

    def _find_tensors(self) -> None:
        """Record the structure of a state that is complete."""
        state = self.optimizer.state
        self._slots = list(self._own_slots())
        self._templates = {s.name: _template(state[s.parameter][s.key]) for s in self._slots}
        nested: Tensors = {}
        self.value_count = count_values(encode(self._values(), PATH, nested))
        self._nested_names = list(nested)
        self._templates |= {name: _template(tensor) for name, tensor in nested.items()}

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
        """True if the optimizer contains state, for instance after a step; always if it has no tensors."""
        return bool(self.optimizer.state) or not self._templates

    def tensors(self) -> Tensors:
        """Return the state's tensors by name: the optimizer's, or zeros until it has them.

        Tensors in containers and in parameter groups are not included: `non_tensor_state()` adds them.
        """
        return {slot.name: local_tensor(self._tensor(slot)) for slot in self._slots}

    def non_tensor_state(self, tensors: Tensors) -> Any:  # noqa: ANN401 - JSON
        """Return the hyperparameters and the other values of the state that are not tensors, as JSON.

        Args:
            tensors: dict to which the tensors in containers and in parameter groups are added by name: the
                optimizer's, or zeros until it has them.

        Raises:
            EverstepError: the optimizer has created a tensor later than in its first step.
        """
        nested: Tensors = {}
        encoded = encode({INITIALIZED: self.is_initialized, **self._values()}, PATH, nested)
        self._check_complete(nested)
        for name in self._nested_names:  # on each worker the same names in the same order
            tensors[name] = local_tensor(self._own_or_zeros(name, nested.get(name)))
        return encoded

    def load(self, non_tensor_state: Any, tensors: Mapping[str, torch.Tensor]) -> None:  # noqa: ANN401 - JSON
        """Make the optimizer use the tensors that `tensors()` returned, with this non-tensor state.

        State that the saved optimizer did not have, such as all of it before the first step, is removed.

        Args:
            non_tensor_state: result of the method of this name; None in a checkpoint without it.
            tensors: the tensors that `non_tensor_state()` added to its argument.
        """
        hyperparameters: dict[str, Any] = {INITIALIZED: True}
        if non_tensor_state is not None:
            hyperparameters = decode(non_tensor_state, self._as_own(tensors))
        loaded = self._loaded_state(hyperparameters)
        state: dict[Any, Any] = self.optimizer.state
        for parameter in self._parameters:
            state.pop(parameter, None)
        state.update(loaded)
        self._load_shared(hyperparameters)
        self._load_groups(hyperparameters.get("groups", ()))
        self._placeholders.clear()  # those in use belong to the optimizer now

    def release(self) -> None:
        """Free the zeros that stand in for the state: the optimizer's first step allocates the state."""
        self._placeholders.clear()

    def _values(self) -> dict[str, Any]:
        """Return the hyperparameters and all values of the state, except the tensors of slots."""
        state = self.optimizer.state
        return {
            "groups": [
                {key: value for key, value in group.items() if key != "params"}
                for group in self.optimizer.param_groups
            ],
            # None if a parameter has no state: its next step initializes it, not always with zeros.
            "state": [
                _without_tensors(state[p]) if state.get(p) else None for p in self._parameters
            ],
            "shared": {key: v for key, v in state.items() if not torch.is_tensor(key)},
            "absent": [slot.name for slot in self._slots if self._is_absent(slot)],
        }

    def _loaded_state(
        self, hyperparameters: Mapping[str, Any]
    ) -> dict[nn.Parameter, dict[str, Any]]:
        """Return the state of each parameter that has one."""
        saved: dict[nn.Parameter, Any] = {parameter: {} for parameter in self._parameters}
        saved |= zip(self._parameters, hyperparameters.get("state", ()), strict=False)
        absent = set(hyperparameters.get("absent", ()))  # older checkpoints lack it
        loaded: dict[nn.Parameter, dict[str, Any]] = defaultdict(dict)
        if hyperparameters.get(INITIALIZED, hyperparameters.get(OLD_INITIALIZED)):
            for slot in self._slots:
                if saved[slot.parameter] is not None and slot.name not in absent:
                    loaded[slot.parameter][slot.key] = self._tensor(slot)
        for parameter, values in saved.items():
            if values:
                loaded[parameter].update(values)
        return loaded

    def _load_shared(self, hyperparameters: Mapping[str, Any]) -> None:
        """Load the state that belongs to no parameter; older checkpoints lack it."""
        if (shared := hyperparameters.get("shared")) is None:
            return
        state: dict[Any, Any] = self.optimizer.state
        for key in [key for key in state if not torch.is_tensor(key)]:
            del state[key]
        state.update(shared)

    def _load_groups(self, saved: Iterable[Mapping[str, Any]]) -> None:
        for group, keys, values in zip(
            self.optimizer.param_groups, self._group_keys, saved, strict=False
        ):
            for key in group.keys() - keys - values.keys():  # steps have added it
                del group[key]
            group.update(values)

    def _own_slots(self) -> Iterator[_Slot]:
        """Yield a slot for each tensor that the optimizer has now."""
        for parameter in self._parameters:
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if torch.is_tensor(value):
                    yield _Slot(_tensor_name(self._names[parameter], key), parameter, key)

    def _own_tensor(self, slot: _Slot) -> torch.Tensor | None:
        tensor = self.optimizer.state.get(slot.parameter, {}).get(slot.key)
        return tensor if isinstance(tensor, torch.Tensor) else None

    def _is_absent(self, slot: _Slot) -> bool:
        """Return True if the slot's parameter has state, but nothing with the slot's key."""
        state = self.optimizer.state.get(slot.parameter, {})
        return bool(state) and slot.key not in state

    def _tensor(self, slot: _Slot) -> torch.Tensor:
        return self._own_or_zeros(slot.name, self._own_tensor(slot))

    def _own_or_zeros(self, name: str, own: torch.Tensor | None) -> torch.Tensor:
        """Return the optimizer's tensor, or zeros that remain the same until it has one."""
        if own is not None:
            self._placeholders.pop(name, None)
            return own
        if name not in self._placeholders:
            template = self._templates[name]
            self._placeholders[name] = torch.zeros_like(template.empty, device=template.device)
        return self._placeholders[name]

    def _as_own(self, tensors: Mapping[str, torch.Tensor]) -> Tensors:
        """Return tensors that are sharded like the optimizer's."""
        own = {
            name: from_local(tensors[name], self._templates[name].empty)
            for name in self._nested_names
            if name in tensors
        }
        return {**tensors, **own}

    def _check_complete(self, nested: Tensors) -> None:
        """Refuse a tensor that a joiner would not receive, and a later process could not restore."""
        names = [*(slot.name for slot in self._own_slots()), *nested]
        if unexpected := [name for name in names if name not in self._templates]:
            raise EverstepError(
                f"{type(self.optimizer).__name__} has created {amount(len(unexpected), 'tensor')} of its state after "
                f"its first step, such as {unexpected[0]}",
                "Use an optimizer that creates all tensors of its state in its first step, whatever the gradients.",
            )


def _template(tensor: torch.Tensor) -> _Template:
    return _Template(torch.empty_like(tensor, device="meta"), tensor.device)


def _without_tensors(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not torch.is_tensor(value)}


def _tensor_name(parameter: str, key: str) -> str:
    return f"momentum.{parameter}" if key == MOMENTUM else f"optimizer.{parameter}.{key}"


@contextmanager
def _trial_step(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]
) -> Iterator[None]:
    """Take a step with zero gradients; undo it at the end of the context.

    The step changes copies of the state, of the tensors in the parameter groups, and of the attributes.
    """
    originals = [(p, p.detach().clone(), p.grad) for p in parameters]
    attributes, state = dict(vars(optimizer)), dict(optimizer.state)
    groups = [dict(group) for group in optimizer.param_groups]
    try:
        _replace_by_copies(optimizer, parameters)
        _hide_callbacks(optimizer)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        with _without_global_hooks():
            _take_step(optimizer)
        yield
    finally:
        vars(optimizer).clear()
        vars(optimizer).update(attributes)
        optimizer.state.clear()
        optimizer.state.update(state)
        for group, values in zip(optimizer.param_groups, groups, strict=True):
            group.clear()  # some optimizers count their steps in the group
            group.update(values)
        for parameter, value, gradient in originals:
            parameter.detach().copy_(value)
            parameter.grad = gradient


def _replace_by_copies(
    optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]
) -> None:
    """Replace the state and the hyperparameters by copies, which a step may change in place."""
    memo: dict[int, Any] = {id(p): p for p in parameters}
    for key, values in optimizer.state.items():
        optimizer.state[key] = copy.deepcopy(values, memo)
    for group in optimizer.param_groups:
        group.update({k: copy.deepcopy(v, memo) for k, v in group.items() if k != "params"})


def _hide_callbacks(optimizer: torch.optim.Optimizer) -> None:
    """Hide the user's hooks, and wrappers of `step` such as a scheduler's, which would count a step."""
    attributes = vars(optimizer)
    attributes.update({name: OrderedDict() for name in STEP_HOOKS if name in attributes})
    if getattr(type(optimizer), "step", None) not in (None, torch.optim.Optimizer.step):
        attributes.pop("step", None)


@contextmanager
def _without_global_hooks() -> Iterator[None]:
    """Hide the hooks of all optimizers."""
    registries: tuple[dict[int, Any], ...] = (
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    )
    hooks = [dict(registry) for registry in registries]
    for registry in registries:
        registry.clear()
    try:
        yield
    finally:
        for registry, original in zip(registries, hooks, strict=True):
            registry.update(original)


@torch.no_grad()
def _take_step(optimizer: torch.optim.Optimizer) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step()
    except torch.OutOfMemoryError:
        raise
    except (TypeError, RuntimeError) as error:
        need = "without a closure" if isinstance(error, TypeError) else "with dense gradients"
        raise EverstepError(
            f"{type(optimizer).__name__} cannot take a step {need}: {error}",
            "Use an optimizer whose step needs gradients only, such as SGD, AdamW or Adafactor.",
        ) from error


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
