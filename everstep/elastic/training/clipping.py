"""Clipping of the summed gradients by their norm, equally on workers with different types of device.

The order in which a device adds numbers depends on its type, and in float32 it changes the last bits of a norm. The
workers would then scale equal gradients by different factors, and the models would differ. So squares are summed in
float64, where the order changes bits far below those that `BITS` keeps.
"""

import math
from collections.abc import Iterable

import torch

from everstep.elastic.transport.local_tensors import local_tensor

BITS = 16
"""Significant bits of a norm: its relative error of at most 2^-16 is below the error of a float32 sum over 25 million
numbers, 2e-5.

Two orders of summation, whose results differ by 1e-13 at most, then round differently in about one of 10^8 steps.
"""


def clip(parameters: Iterable[torch.Tensor], max_norm: float) -> None:
    """Scale the gradients, in place, so that their norm does not exceed a maximum.

    Args:
        parameters: parameters, on any devices; some may have no gradient.
        max_norm: maximum of the Euclidean norm of all gradients together.
    """
    clipped = list(parameters)
    gradients = [parameter.grad for parameter in clipped if parameter.grad is not None]
    if gradients:
        norm = torch.tensor(gradient_norm(gradients))
        torch.nn.utils.clip_grads_with_norm_(clipped, max_norm, norm)


def clip_shards(parameters: Iterable[torch.Tensor], max_norm: float, sum_of_squares: float) -> None:
    """Scale this worker's shards of the gradients, in place, so that the norm of all shards does not exceed a maximum.

    Args:
        parameters: parameters, of which this worker has shards.
        max_norm: maximum of the Euclidean norm of all gradients together.
        sum_of_squares: sum of the squares of all gradients, over all shards.
    """
    norm = torch.tensor(_rounded(math.sqrt(sum_of_squares)))
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)  # as torch does
    if gradients := _local_gradients(parameters):
        torch._foreach_mul_(gradients, float(factor))


def sum_of_squares(parameters: Iterable[torch.Tensor]) -> float:
    """Return the sum of the squares of this worker's shards of the gradients."""
    if not (gradients := _local_gradients(parameters)):
        return 0.0
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float64)
    return float(torch.stack(list(norms)).square().sum())


def _local_gradients(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [local_tensor(parameter.grad) for parameter in parameters if parameter.grad is not None]


def gradient_norm(gradients: list[torch.Tensor]) -> float:
    """Return the Euclidean norm of all gradients together, rounded to `BITS` bits."""
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float64)
    # On one device first, so that the GPU is waited for once.
    device = norms[0].device
    return _rounded(math.hypot(*torch.stack([norm.to(device) for norm in norms]).tolist()))


def _rounded(norm: float) -> float:
    """Return a norm rounded to `BITS` bits."""
    if not math.isfinite(norm):
        return norm
    mantissa, exponent = math.frexp(norm)
    return math.ldexp(round(math.ldexp(mantissa, BITS)), exponent - BITS)
