"""Measure the peak resident memory of a worker with an eighth of the global batch, and with all of it.

    python3 -m benchmarks.worker_memory
    python3 -m benchmarks.worker_memory --modes unbounded live exact --rounds 1 --json

The global batch is constant, so the share of a worker grows from 1/8 to 8/8 when 7 of 8 workers leave.
Each measurement has its own process, which takes a few steps and then reads VmHWM, the largest resident memory that
the kernel has seen: interpreter, libraries, model, optimizer, sums and activations. `started` is the same
before the first step, `peak` after the last. Modes and shares take turns; medians over rounds.

torch itself takes most of a gibibyte, so the activations of an eighth must take more than that: by default
the model is `narrow`, 16 layers of 16 channels, which keep 8 MiB for each image of 64 pixels and compute
little. `benchmarks.microbatch_memory` counts the activations only.
"""

import argparse
import json
import statistics
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torchvision
from torch import nn

from benchmarks.microbatch_memory import MODES, WORKERS, OneOfMany
from benchmarks.progress import track
from everstep.elastic import Run
from everstep.elastic.accounting.time_account import TimeAccount

SHARES = {"1/8": max(WORKERS), "8/8": 1}
"""A worker's share of the global batch, and the number of workers."""

NARROW, LAYERS, CHANNELS, CLASSES = "narrow", 16, 16, 10
Point = tuple[str, str]
"""A mode and a share."""

Sample = dict[str, int]
"""Kibibytes of `started` and `peak`."""


def main() -> None:
    """Measure all points in turn and print absolute values and ratios."""
    options = parse(sys.argv[1:])
    if options.point:
        print(json.dumps(measure(options, *options.point)))
        return
    points = [(mode, share) for mode in options.modes for share in SHARES]
    samples: dict[Point, list[Sample]] = {point: [] for point in points}
    rounds = [point for _ in range(options.rounds) for point in points]
    for point in track(rounds, "processes", len(rounds)):
        samples[point].append(measure_in_a_process(sys.argv[1:], point))
    report = summarize(samples)
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print(*lines(report), sep="\n")


def parse(arguments: Sequence[str]) -> Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=NARROW, help="`narrow`, or a name of torchvision")
    parser.add_argument("--size", type=int, default=64, help="side of an image, pixels")
    parser.add_argument("--global-batch", type=int, default=1280)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=["live", "exact"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--point", nargs=2, metavar=("MODE", "SHARE"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def measure_in_a_process(arguments: Sequence[str], point: Point) -> Sample:
    """Return the memory of a new process with these options."""
    command = [sys.executable, "-m", "benchmarks.worker_memory", *arguments, "--point", *point]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    sample: Sample = json.loads(output)
    return sample


def measure(options: Namespace, mode: str, share: str) -> Sample:
    """Take steps as one worker in this process, and return its memory in KiB."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    largest_microbatch = options.global_batch // max(WORKERS)
    model = build(options.model)
    run = Run(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        dataset_size=options.global_batch * options.steps,
        global_batch=options.global_batch,
        epochs=1,
        group=(OneOfMany(SHARES[share]), TimeAccount()),
        overlap="off",
        **{key: largest_microbatch if v is True else v for key, v in MODES[mode].items()},
    )
    started = peak_kibibytes()
    for batch in run:
        for indices in batch.microbatches():
            images = torch.randn(len(indices), 3, options.size, options.size)
            batch.backward(nn.functional.cross_entropy(model(images), indices % CLASSES))
        batch.step()
    return {"started": started, "peak": peak_kibibytes()}


def build(name: str) -> nn.Module:
    """Return a new model."""
    if name != NARROW:
        model: nn.Module = torchvision.models.get_model(name, num_classes=CLASSES)
        return model
    layers: list[nn.Module] = [nn.Conv2d(3, CHANNELS, 1)]
    for _ in range(LAYERS):
        layers += [nn.Conv2d(CHANNELS, CHANNELS, 1), nn.BatchNorm2d(CHANNELS), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES)
    )


def peak_kibibytes() -> int:
    """Return the largest resident memory of this process so far."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def summarize(samples: dict[Point, list[Sample]]) -> dict[str, dict[str, float]]:
    """Return for each mode the medians in MiB, and the ratio of the peaks at 8/8 and 1/8."""
    report: dict[str, dict[str, float]] = {}
    for (mode, share), values in samples.items():
        row = report.setdefault(mode, {})
        for name in ("started", "peak"):
            row[f"{name} {share}"] = round(statistics.median(v[name] for v in values) / 1024, 1)
    for row in report.values():
        row["ratio"] = round(row["peak 8/8"] / row["peak 1/8"], 3)
    return report


def lines(report: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the table as lines of text."""
    yield f"{'MiB':<10}{'started':>10}{'peak 1/8':>12}{'peak 8/8':>12}{'ratio':>8}"
    for mode, row in report.items():
        yield (
            f"{mode:<10}{row['started 1/8']:>10.1f}{row['peak 1/8']:>12.1f}{row['peak 8/8']:>12.1f}"
            f"{row['ratio']:>8.3f}"
        )


if __name__ == "__main__":
    main()
