"""Measure the CPU time of the reducer of mode `exact` in a step, without the model.

    python3 -m benchmarks.exact_cost
    python3 -m benchmarks.exact_cost --model resnet50 --shards 4 --json

The gradients are random numbers in the shapes of a model's parameters, and there is no all-reduce. `add`
rounds and adds the gradients of all shards of one worker, `sum` converts the sums back to gradients,
`adapt` chooses the units of the next step. One thread, as in `exact`; medians over steps.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from everstep.elastic.transport.exact_reducer import ExactReducer
from trainer import models

SAMPLES = 64  # in a shard
DEVIATION = 1e-3  # standard deviation of the gradients
WARM_UP = 2  # steps


class Stopwatch:
    """CPU time of this process by phase and step."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = {}

    def begin_step(self) -> None:
        """Start a step."""
        for values in self._seconds.values():
            values.append(0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the CPU time of the context to a phase of this step."""
        started_at = time.process_time()
        yield
        self._seconds.setdefault(name, [0.0])[-1] += time.process_time() - started_at

    def medians(self) -> dict[str, float]:
        """Return the median of each phase, in milliseconds, without the first steps."""
        return {
            name: round(1000 * statistics.median(values[WARM_UP:]), 2)
            for name, values in self._seconds.items()
        }


def main() -> None:
    """Measure and print the phases of a step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--shards", type=int, default=2, help="shards of this worker in a step")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = models.build(options.model, 10).to(memory_format=torch.channels_last)
    phases = measure(model, options.shards, options.steps + WARM_UP)
    phases["total"] = round(sum(phases.values()), 2)
    if options.json:
        print(json.dumps({"model": options.model, "shards": options.shards, "ms": phases}))
    else:
        print(
            *(f"{name:<6} {milliseconds:8.2f} ms" for name, milliseconds in phases.items()),
            sep="\n",
        )


def measure(model: nn.Module, shards: int, steps: int) -> dict[str, float]:
    """Return the milliseconds of each phase."""
    all_shards = 2 * shards  # as in a group of two workers
    reducer = ExactReducer(model, scalars=10, shards=all_shards)
    set_gradients, stopwatch = gradient_setter(model), Stopwatch()
    for _ in range(steps):
        stopwatch.begin_step()
        reducer.clear()
        for _ in range(shards):
            reducer.begin_shard()
            set_gradients()
            with stopwatch.phase("add"):
                fits = reducer.add_shard(SAMPLES)
            if not fits:
                raise RuntimeError("a gradient does not fit into any range")
        with stopwatch.phase("sum"):
            scalars = reducer.sum(SAMPLES * all_shards, [1] * 10, lambda _: None)
        with stopwatch.phase("adapt"):
            if scalars is not None:
                reducer.adapt_ranges()
    return stopwatch.medians()


def gradient_setter(model: nn.Module) -> Callable[[], None]:
    """Return a function that gives each parameter a gradient in new memory, as autograd does."""
    generator = torch.Generator().manual_seed(0)
    gradients = [
        torch.randn(parameter.numel(), generator=generator).mul_(DEVIATION)
        for parameter in model.parameters()
    ]

    def set_gradients() -> None:
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = torch.empty_like(parameter)
            parameter.grad.as_strided(gradient.shape, (1,)).copy_(gradient)

    return set_gradients


if __name__ == "__main__":
    main()
