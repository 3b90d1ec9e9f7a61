"""Measure the training throughput of ResNet-50 and EfficientNets on one GPU, with synthetic data.

    python3 -m benchmarks.gpu
    python3 -m benchmarks.gpu --models resnet50 efficientnet_b0 --batch 256 --rounds 5
    python3 -m benchmarks.gpu --json

The images are in the GPU's memory, so decoding is not measured, only the forward and backward pass, and the
optimizer. `plain` is an ordinary loop, `live` and `exact` are the same step through `everstep.elastic.Run` in
a group of one worker; they take turns. `exact` computes a step in shards, a quarter of the batch each.
Weights and images are in channels_last; matrix products are in bfloat16 if the GPU has it, else in float16
with a gradient scaler, and for `exact`, which has none, in float32. A batch that does not fit is halved until it does.
The output is a Markdown table for docs/measurements.md, beside published figures of other programs.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import nn

from everstep.elastic import Run
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.worker import SingleProcessGroup
from trainer import models

CLASSES = 1000
PIXELS = {"resnet50": 224, "efficientnet_b0": 224, "efficientnet_b4": 380}
"""Side of an image in published measurements; 224 for others."""

PUBLISHED = {
    "resnet50": "2,470 on an A100 80 GB and 1,200 on a V100 (NVIDIA, AMP and DALI); about 7,100 on an H100 "
    "(MLPerf 3.0, calculated)",
    "efficientnet_b0": "2,489 on an A100 80 GB, 1,301 to 1,401 on a V100 (NVIDIA, AMP and DALI)",
    "efficientnet_b4": "331 on an A100 80 GB, 204 on a V100 (NVIDIA, AMP and DALI)",
}
"""Images per second on one GPU."""

NO_GPU = (
    "no GPU: torch finds none. Run this on a machine with an NVIDIA GPU, or pass --device cpu to see that "
    "the program runs."
)
WARM_UP_STEPS = 5  # cuDNN chooses its algorithms in the first

SHARDS = 4
"""Shards of a batch in mode `exact`."""

Block = Callable[[int], None]
"""A function that takes a number of steps."""

Loss = Callable[[nn.Module, int], torch.Tensor]
"""A function that returns a model's mean loss over the first samples of the batch."""


@dataclass(frozen=True)
class Throughput:
    """The throughput of one model.

    Attributes:
        model: its name.
        pixels: side of an image.
        batch: samples of a step.
        precision: type of matrix products of the plain loop and of `live`.
        plain: images per second of an ordinary loop, median over rounds.
        live: the same through `Run`.
        exact: the same in mode `exact`.
        exact_precision: its type of matrix products.
        gigabytes: peak of the memory that torch allocated, with the models and optimizers of all three loops;
            0 on a CPU.
    """

    model: str
    pixels: int
    batch: int
    precision: str
    plain: float
    live: float
    exact: float
    exact_precision: str
    gigabytes: float


def main() -> None:
    """Measure each model and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(PIXELS))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--pixels", type=int, help="side of an image; by default as published")
    parser.add_argument("--steps", type=int, default=20, help="steps in one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit(NO_GPU)
    results = []
    for name in options.models:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        pixels = options.pixels or PIXELS.get(name, 224)
        results.append(measure(name, pixels, options.batch, device, options.steps, options.rounds))
    if options.json:
        print(json.dumps({"gpu": gpu_name(device), "results": [asdict(r) for r in results]}))
    else:
        print(*table(results, gpu_name(device)), sep="\n")


def gpu_name(device: torch.device) -> str:
    """Return the name of the GPU, or CPU without one, and the version of torch."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"{name}, torch {torch.__version__}"


def measure(
    name: str, pixels: int, batch: int, device: torch.device, steps: int, rounds: int
) -> Throughput:
    """Return the throughput with this batch, halved until it fits.

    Raises:
        torch.OutOfMemoryError: not even one sample fits.
    """
    while True:
        try:
            return _measure(name, pixels, batch, device, steps, rounds)
        except torch.OutOfMemoryError:
            if batch == 1:
                raise
            batch //= 2
        torch.cuda.empty_cache()


def _measure(
    name: str, pixels: int, batch: int, device: torch.device, steps: int, rounds: int
) -> Throughput:
    precision = models.precision(name, device)
    exact_precision = models.precision(name, device, exact=True)
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    images = torch.randn(batch, 3, pixels, pixels, device=device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (batch,), device=device)

    def loss_in(precision: models.Precision) -> Loss:
        def loss_of(model: nn.Module, samples: int) -> torch.Tensor:
            with precision.autocast(device):
                outputs = model(images[:samples])
            return nn.functional.cross_entropy(outputs.float(), labels[:samples])

        return loss_of

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    blocks = {
        "plain": plain_block(name, device, precision, loss_in(precision), batch),
        "live": run_block(name, device, precision, loss_in(precision), batch, "live"),
        "exact": run_block(name, device, exact_precision, loss_in(exact_precision), batch, "exact"),
    }
    seconds = time_blocks(blocks, device, steps, rounds)
    memory = torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else 0.0
    rates = {
        variant: round(steps * batch / statistics.median(times), 1)
        for variant, times in seconds.items()
    }
    return Throughput(
        name,
        pixels,
        batch,
        type_name(precision),
        rates["plain"],
        rates["live"],
        rates["exact"],
        type_name(exact_precision),
        round(memory, 1),
    )


def type_name(precision: models.Precision) -> str:
    """Return the name of the type of matrix products, such as bfloat16."""
    return str(precision.dtype or torch.float32).removeprefix("torch.")


def time_blocks(
    blocks: dict[str, Block], device: torch.device, steps: int, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of each block in each round; the blocks take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in blocks}
    for block in blocks.values():
        block(WARM_UP_STEPS)
    for _ in range(rounds):
        for name, block in blocks.items():
            wait_for(device)
            started_at = time.perf_counter()
            block(steps)
            wait_for(device)
            seconds[name].append(time.perf_counter() - started_at)
    return seconds


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def new_model(name: str, device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model in training mode, and the trainer's optimizer."""
    model = models.build(name, CLASSES).train()
    model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    groups = models.parameter_groups(model, 1e-4)
    return model, torch.optim.SGD(groups, lr=1e-4, momentum=0.9, nesterov=True)


def plain_block(
    name: str,
    device: torch.device,
    precision: models.Precision,
    loss_of: Loss,
    batch: int,
) -> Block:
    """Return an ordinary training loop."""
    model, optimizer = new_model(name, device)
    scaler = torch.amp.GradScaler(device.type, enabled=precision.needs_scaler)

    def block(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, batch)).backward()  # type: ignore[no-untyped-call] # torch has no type
            scaler.step(optimizer)
            scaler.update()

    return block


def run_block(
    name: str,
    device: torch.device,
    precision: models.Precision,
    loss_of: Loss,
    batch: int,
    mode: Literal["live", "exact"],
) -> Block:
    """Return the loop of the library, whose samples are always the same images."""
    model, optimizer = new_model(name, device)
    run = Run(
        model,
        optimizer,
        dataset_size=batch * 1000,
        global_batch=batch,
        epochs=1000,
        mode=mode,
        shard_size=max(batch // SHARDS, 1),
        scaler=torch.amp.GradScaler(device.type, enabled=precision.needs_scaler),
        group=(SingleProcessGroup(), TimeAccount()),
    )
    batches = iter(run)

    def block(steps: int) -> None:
        for _ in range(steps):
            step = next(batches)
            for _ in step.microbatches():
                step.backward(loss_of(model, len(step.indices)))
            step.step()

    return block


def table(results: Sequence[Throughput], gpu: str) -> list[str]:
    """Return the results as a Markdown table."""
    lines = [
        f"One GPU ({gpu}), synthetic data, channels_last: `python -m benchmarks.gpu`. Images per second.",
        "",
        "| model | pixels, batch, precision | plain loop | `live` | `exact` | peak memory | published |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    return [*lines, *map(_row, results)]


def _row(result: Throughput) -> str:
    shape = f"{result.pixels}, {result.batch}, {result.precision}"
    live, exact = (
        f"{rate:,.0f} ({rate / result.plain:.3f})" for rate in (result.live, result.exact)
    )
    if result.exact_precision != result.precision:
        exact += f" in {result.exact_precision}"
    published = PUBLISHED.get(result.model, "not known")
    return (
        f"| {result.model} | {shape} | {result.plain:,.0f} | {live} | {exact} | {result.gigabytes} GB "
        f"| {published} |"
    )


if __name__ == "__main__":
    main()
