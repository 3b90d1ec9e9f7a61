"""The networks: torchvision's ResNet and EfficientNet families, by name."""

import difflib
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from everstep.errors import EverstepError

NAMES = (
    *(f"resnet{depth}" for depth in (18, 34, 50, 101, 152)),
    *(f"efficientnet_b{scale}" for scale in range(8)),
)


@dataclass(frozen=True)
class Precision:
    """How a model computes on a device: in bfloat16 where that pays, and in which memory layout."""

    autocast: bool
    memory_format: torch.memory_format = torch.channels_last


def check_name(name: str) -> str:
    """The name, if it is one of ours; otherwise an error that names the nearest."""
    if name in NAMES:
        return name
    near = difflib.get_close_matches(name, NAMES, n=3, cutoff=0.3)
    raise EverstepError(
        f"there is no model {name!r}",
        f"Nearest: {', '.join(near)}." if near else f"Choose one of {', '.join(NAMES)}.",
    )


def build(name: str, classes: int) -> nn.Module:
    """A freshly initialised model, with as many outputs as there are classes.

    The last normalisation of every residual block starts at zero, so that a block begins as the
    identity: a short training run with a large batch reaches a given accuracy some percent sooner.
    """
    import torchvision.models as zoo

    constructor = getattr(zoo, check_name(name))
    arguments = {"zero_init_residual": True} if name.startswith("resnet") else {}
    model: nn.Module = constructor(weights=None, num_classes=classes, **arguments)
    for module in model.modules():
        if type(module) is nn.Conv2d and module.groups == 1 and module.padding_mode == "zeros":
            module.__class__ = SnugConv2d  # parameters, names and values stay as they are
    return model


class SnugConv2d(nn.Conv2d):
    """A convolution that multiplies only by what touches the image: the same function, sooner.

    The last blocks of a ResNet see images of 1x1 or 2x2 pixels when its input is small, and a 3x3
    kernel around one pixel multiplies eight times by padding. There is then one output pixel, for
    which the part of the kernel that lies on the image is enough.
    """

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Shape (n, in, height, width) to (n, out, 1, 1) or whatever Conv2d gives."""
        covered = _covered(self, images.shape[-2], images.shape[-1])
        if covered is None:
            return super().forward(images)
        kernel: torch.Tensor = _Inner.apply(self.weight, *covered)
        # Not a matrix product: Debian's torch has oneDNN for convolutions, but a plain BLAS.
        return nn.functional.conv2d(images, kernel, self.bias)


class _Inner(torch.autograd.Function):
    """A part of a kernel: two slices, whose gradients autograd would fill, copy and lay out one by one."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, rows: slice, columns: slice) -> torch.Tensor:  # noqa: ANN401 - torch's
        ctx.part = (slice(None), slice(None), rows, columns)
        ctx.save_for_backward(weight)
        return weight[ctx.part].contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # noqa: ANN401 - the same
        whole = torch.zeros_like(*ctx.saved_tensors)
        whole[ctx.part] = gradient
        return whole, None, None


def _covered(module: nn.Conv2d, height: int, width: int) -> tuple[slice, slice] | None:
    """The part of the kernel that lies on the image, where there is one output pixel; else None."""
    if isinstance(module.padding, str) or module.kernel_size == (1, 1):
        return None
    parts = []
    for axis, size in enumerate((height, width)):
        padding, kernel = module.padding[axis], module.kernel_size[axis]
        one_output = (size + 2 * padding - kernel) // module.stride[axis] == 0
        if not one_output or padding + size > kernel:
            return None
        parts.append(slice(padding, padding + size))
    return parts[0], parts[1]


def precision(name: str, device: torch.device) -> Precision:
    """What is fastest for a model on a device.

    On a CPU bfloat16 pays only where the processor multiplies it natively, and never for
    EfficientNet, whose depthwise convolutions it halves in speed; without native support it is
    eight times slower.
    """
    if device.type != "cpu":
        return Precision(autocast=True)
    return Precision(autocast=name.startswith("resnet") and _multiplies_bfloat16())


def _multiplies_bfloat16() -> bool:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:  # noqa: PTH123 - one line is enough
            flags = next((line for line in info if line.startswith("flags")), "")
    except OSError:
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Parameters for the optimizer: weights decay, biases and normalisation do not."""
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    return [
        {"params": weights, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
