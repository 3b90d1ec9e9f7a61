"""The networks: torchvision's ResNet and EfficientNet families, by name."""

import difflib
from dataclasses import dataclass

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
    return model


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
