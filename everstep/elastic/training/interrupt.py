"""Hooks that end a forward or backward pass at the next layer."""

from collections.abc import Callable

import torch
from torch import nn


def make_interruptible(model: nn.Module, check: Callable[[], None]) -> None:
    """Make a model's forward and backward passes call `check` at each layer, so that it can end them.

    A compiled forward pass is not interrupted: the call would be traced into it.
    """

    def check_forward(*_: object) -> None:
        if not torch.compiler.is_compiling():
            check()

    for module in model.modules():
        # `is None`, not a truth value: the length of a compiled module is undefined.
        if next(module.children(), None) is None:
            module.register_forward_pre_hook(check_forward)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call] # torch's
                lambda _: check()
            )
