"""The GPUs of this machine, and what tests cannot check with them."""

import torch

NO_GPU = (
    "no GPU: torch finds none, so nothing was tested. Run `make test-gpu` on a machine with an NVIDIA GPU, "
    "its driver and a CUDA build of torch."
)


def gpu_count() -> int:
    """Return the number of GPUs that torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def skip_reason(needed: int, count: int, purpose: str) -> str | None:
    """Return why something cannot be tested on a machine with `count` GPUs; None if it can be.

    Args:
        needed: number of GPUs that the test needs.
        count: number of GPUs of the machine, at least 1.
        purpose: what the test checks.
    """
    if count >= needed:
        return None
    return f"{count} GPU{'s' * (count > 1)}: {purpose} not tested; it needs {needed}"


def describe(count: int) -> list[str]:
    """Return a line for each GPU: name, compute capability, memory."""
    lines = []
    for number in range(count):
        gpu = torch.cuda.get_device_properties(number)
        memory = gpu.total_memory / 2**30
        lines.append(f"GPU {number}: {gpu.name}, {gpu.major}.{gpu.minor}, {memory:.0f} GiB")
    return lines
