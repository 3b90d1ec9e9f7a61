"""Models: torchvision's ResNet and EfficientNet families, by name."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from everstep.catalog.trainer_options import MODELS
from everstep.spelling import unknown_name


@dataclass(frozen=True)
class Precision:
    """Arithmetic of a model on a device: the type of matrix products, and the memory layout.

    Attributes:
        dtype: type of matrix products and convolutions; None for the parameters' type.
        memory_format: memory layout of images and weights.
    """

    dtype: torch.dtype | None
    memory_format: torch.memory_format = torch.channels_last

    @property
    def needs_scaler(self) -> bool:
        """True if small gradients would become zero without a gradient scaler."""
        return self.dtype is torch.float16

    def autocast(self, device: torch.device) -> torch.autocast:
        """Return the context manager of a forward pass."""
        return torch.autocast(device.type, self.dtype, enabled=self.dtype is not None)


def check_name(name: str) -> str:
    """Return `name` if it is the name of a model.

    Raises:
        EverstepError: there is no such model; the message has similar names and all valid ones.
    """
    if name in MODELS:
        return name
    raise unknown_name("model", name, MODELS)


def build(name: str, classes: int) -> nn.Module:
    """Return a newly initialized model with one output per class.

    In a ResNet, the last normalization of every residual block starts at zero, so that a block begins as the
    identity: a short training run with a large batch reaches a given accuracy in a few percent less time.
    """
    import torchvision.models  # takes seconds, and only this function needs it

    constructor = getattr(torchvision.models, check_name(name))
    arguments = {"zero_init_residual": True} if name.startswith("resnet") else {}
    model: nn.Module = constructor(weights=None, num_classes=classes, **arguments)
    for module in model.modules():
        is_plain = type(module) is nn.Conv2d and module.groups == 1 and module.dilation == (1, 1)
        if is_plain and module.padding_mode == "zeros":
            module.__class__ = CroppedKernelConv2d  # parameters, names and values do not change
    return model


class CroppedKernelConv2d(nn.Conv2d):
    """A convolution that skips kernel weights over padding: the same function, but faster.

    The last blocks of a ResNet have inputs of 1x1 or 2x2 pixels when the image is small, and a 3x3
    kernel around one pixel multiplies padding by eight of its nine weights. There is then one output pixel,
    for which the part of the kernel over the image is enough.
    """

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Convolve an input of shape (n, in, height, width), with the output shape of Conv2d."""
        kernel_part = _kernel_part(self, images.shape[-2], images.shape[-1])
        if kernel_part is None:
            return super().forward(images)
        kernel: torch.Tensor = _KernelSlice.apply(self.weight, *kernel_part)
        # Not a matrix product: Debian's torch has oneDNN for convolutions, but a plain BLAS.
        return nn.functional.conv2d(images, kernel, self.bias)


class _KernelSlice(torch.autograd.Function):
    """Part of a kernel, whose backward pass makes one copy instead of one for each sliced dimension."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, rows: slice, columns: slice) -> torch.Tensor:  # noqa: ANN401 - torch's
        ctx.part = (slice(None), slice(None), rows, columns)
        ctx.save_for_backward(weight)
        return weight[ctx.part].contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # noqa: ANN401 - torch's
        full_gradient = torch.zeros_like(*ctx.saved_tensors)
        full_gradient[ctx.part] = gradient
        return full_gradient, None, None


def _kernel_part(module: nn.Conv2d, height: int, width: int) -> tuple[slice, slice] | None:
    """Return the part of the kernel over the image; None if the whole kernel is used."""
    if isinstance(module.padding, str) or module.kernel_size == (1, 1):
        return None
    parts = []
    for axis, size in enumerate((height, width)):
        padding, kernel = module.padding[axis], module.kernel_size[axis]
        has_one_output = (size + 2 * padding - kernel) // module.stride[axis] == 0
        if not has_one_output or padding + size > kernel:
            return None
        parts.append(slice(padding, padding + size))
    return parts[0], parts[1]


def precision(name: str, device: torch.device, *, exact: bool = False) -> Precision:
    """Return the fastest precision of a model on a device.

    A GPU without native bfloat16, such as a T4, computes in float16 with a gradient scaler. In mode `exact`,
    which rounds gradients itself, it computes in float32. On a CPU, bfloat16 is faster only with native
    support, and eight times slower without. It is never faster for EfficientNet: it halves the speed of
    depthwise convolutions.
    """
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Precision(torch.bfloat16)
        return Precision(None if exact else torch.float16)
    is_bfloat16_faster = name.startswith("resnet") and _has_native_bfloat16()
    return Precision(torch.bfloat16 if is_bfloat16_faster else None)


def _has_native_bfloat16() -> bool:
    """Return True if the CPU has instructions for bfloat16."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - one line is enough
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return the parameters for the optimizer, with weight decay only for weights.

    Biases and the parameters of normalization layers do not decay.
    """
    weights = [p for p in model.parameters() if p.ndim > 1]
    other_parameters = [p for p in model.parameters() if p.ndim <= 1]
    return [
        {"params": weights, "weight_decay": weight_decay},
        {"params": other_parameters, "weight_decay": 0.0},
    ]
