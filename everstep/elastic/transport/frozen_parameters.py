"""Detection of frozen parameters that a forward pass changes, as the key encoder of MoCo's published code."""

import torch

from everstep.elastic.transport.local_tensors import is_sharded
from everstep.errors import EverstepError

CHECKED_STEPS = 5
"""A forward pass that changes a parameter does so in each step, but the first steps may not change its value."""

SAMPLED_ELEMENTS = 1000
"""Compared elements of a parameter: a copy of all could need as much memory as the model."""


class FrozenParameters:
    """The parameters of a model without gradients, which a forward pass must not change.

    Each worker would change them in each of its micro-batches, so that they would differ between workers: only
    gradients and buffers are summed.

    Args:
        model: the model.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._slots = [
            (f"{prefix}.{name}".removeprefix("."), module._parameters, name)
            for prefix, module in model.named_modules()
            for name, parameter in module.named_parameters(recurse=False)
            # FSDP replaces sharded parameters by whole ones for a while.
            if not (parameter.requires_grad or is_sharded(parameter) or _is_normalized(module))
        ]
        self._steps = 0
        self._samples: list[torch.Tensor] = []

    def begin_step(self) -> None:
        """Begin a step."""
        self._steps += 1

    def begin_pass(self) -> None:
        """Begin a forward pass: remember some elements of each parameter."""
        is_checked = self._steps <= CHECKED_STEPS
        self._samples = [self._sample(*slot) for slot in self._slots] if is_checked else []

    def end_pass(self) -> None:
        """Compare the parameters after a forward pass.

        Raises:
            EverstepError: the pass has changed one.
        """
        for slot, before in zip(self._slots, self._samples, strict=bool(self._samples)):
            after = self._sample(*slot)
            if not torch.equal(before, after):
                raise EverstepError(
                    f"the forward pass changes the parameter {slot[0]!r}, which has no gradient: its values would "
                    "differ between workers",
                    "Change it in a callback of Run.after_step, equally on all workers.",
                )

    def _sample(
        self, _name: str, parameters: dict[str, torch.nn.Parameter | None], key: str
    ) -> torch.Tensor:
        """Return the bytes of some elements: NaN equals itself; the pass may also replace the Parameter."""
        parameter = parameters.get(key)
        if parameter is None:
            return torch.empty(0, dtype=torch.uint8)
        elements = parameter.detach().flatten()
        return elements[:: max(1, len(elements) // SAMPLED_ELEMENTS)].clone().view(torch.uint8)


def _is_normalized(module: torch.nn.Module) -> bool:
    """Return True for a table whose rows a forward pass normalizes, equally on each worker that uses them."""
    return (
        isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag)
        and module.max_norm is not None
    )
