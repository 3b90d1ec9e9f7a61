"""The buffers of a model: their values before a forward pass, and its changes of them."""

import torch

from everstep.catalog.plurals import amount
from everstep.elastic.transport.frozen_parameters import FrozenParameters
from everstep.elastic.transport.tensor_lists import copy_all
from everstep.errors import EverstepError


class Buffers:
    """The buffers of a model, as tensors that stay the same.

    A forward pass may replace a buffer (`self.mean = 0.9 * self.mean + ...`) instead of changing it. A sum over the
    workers would then miss its values, so `end_pass` copies them into the original tensor and puts that back. A
    buffer that gets another shape is not touched: it is a cache, or the state of the run refuses it.

    Args:
        model: the model.

    Attributes:
        averaged: floating-point buffers, such as running means and variances.
        counters: buffers of one integer, such as the number of batches that a layer has seen.
        saved_averaged: values of `averaged` when they were last saved.
        saved_counters: values of `counters` when they were last saved.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._slots = [
            (module._buffers, name, buffer)
            for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        self._names = {buffer: name for name, buffer in model.named_buffers()}
        self.averaged = [buffer for buffer in self._names if buffer.is_floating_point()]
        self.counters = [buffer for buffer in self._names if _is_counter(buffer)]
        others = [b for b in self._names if not (b.is_floating_point() or _is_counter(b))]
        # In this order, so that one operation handles each kind.
        self._all = [*self.averaged, *self.counters, *others]
        self._saved = [buffer.clone() for buffer in self._all]
        counted = len(self.averaged) + len(self.counters)
        self.saved_averaged = self._saved[: len(self.averaged)]
        self.saved_counters = self._saved[len(self.averaged) : counted]
        self._others = list(zip(others, self._saved[counted:], strict=True))
        self._versions = [buffer._version for buffer in others]
        self._frozen_parameters = FrozenParameters(model)

    def save(self) -> None:
        """Save all values at the beginning of a step."""
        self._frozen_parameters.begin_step()
        self._put_back()
        copy_all(self._saved, self._all)

    def restore(self) -> None:
        """Restore all saved values."""
        self._put_back()
        copy_all(self._all, self._saved)

    def begin_pass(self) -> None:
        """Begin a forward pass."""
        self._frozen_parameters.begin_pass()
        self._versions = [buffer._version for buffer, _ in self._others]

    def end_pass(self) -> None:
        """Make the values after a forward pass available in the original tensors.

        Raises:
            EverstepError: the pass has changed a buffer whose changes by several workers cannot be combined, or a
                parameter without a gradient.
        """
        self._frozen_parameters.end_pass()
        self._put_back()
        for (buffer, saved), version in zip(self._others, self._versions, strict=True):
            if buffer._version == version or torch.equal(buffer, saved):
                continue
            values = amount(buffer.numel(), "value")
            raise EverstepError(
                f"the forward pass changes the buffer {self._names[buffer]!r} ({values} of {buffer.dtype}): only "
                "floating-point numbers and single integers of several workers can be combined",
                "Change it in a callback of Run.after_step, equally on all workers, or use floating-point numbers.",
            )

    @torch.no_grad()
    def _put_back(self) -> None:
        for buffers, name, original in self._slots:
            current = buffers.get(name)
            if current is None or current is original or current.shape != original.shape:
                continue
            original.copy_(current)
            buffers[name] = original


def _is_counter(buffer: torch.Tensor) -> bool:
    is_integer = not (buffer.is_floating_point() or buffer.is_complex())
    return is_integer and buffer.dtype != torch.bool and buffer.numel() == 1
