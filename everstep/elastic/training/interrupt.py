"""Hooks that end a forward or backward pass at the next layer."""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


class LayerCheck:
    """A hook before the forward pass of a layer; a copy of the model, saved or in memory, has one without a check.

    Args:
        check: function to call; None in a copy.
    """

    def __init__(self, check: Callable[[], None] | None = None) -> None:
        self._check = check

    def __call__(self, *_: object) -> None:
        """Call the function; not in a compiled forward pass, since the call would be traced into it."""
        if self._check is not None and not torch.compiler.is_compiling():
            self._check()

    def __reduce__(self) -> tuple[type["LayerCheck"], tuple[()]]:
        """Return how to create a copy."""
        return LayerCheck, ()


def make_interruptible(model: nn.Module, check: Callable[[], None]) -> list[RemovableHandle]:
    """Make a model's forward and backward passes call `check` at each layer, so that it can end them.

    Returns:
        handles that remove the hooks: with them, a model cannot be scripted.
    """
    check_layer = LayerCheck(check)
    layers = [
        module.register_forward_pre_hook(check_layer)
        for module in model.modules()
        # `is None`, not a truth value: the length of a compiled module is undefined.
        if next(module.children(), None) is None
    ]
    parameters = [
        parameter.register_post_accumulate_grad_hook(lambda _: check())  # type: ignore[no-untyped-call] # torch's
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    return [*layers, *parameters]
