"""Measure the memory of a worker while its group shrinks: 8, 4, 2 and 1 of 8 workers.

    python3 -m benchmarks.microbatch_memory
    python3 -m benchmarks.microbatch_memory --model resnet50 --size 64 --json

The global batch is constant, so a worker's share grows from an eighth to all of it. The benchmark
measures the peak of the activations that a step keeps for its backward pass, in bytes, with each storage
counted once: parameters, optimizer and the sums have the same size for any share. `unbounded` computes the
share in one batch; `live` in micro-batches as large as the share of one of 8 workers; `exact` in shards of that size.
The worker is one process; it does not take part in an all-reduce.
"""

import argparse
import json
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torchvision
from torch import nn

from benchmarks.progress import track
from everstep.elastic import Run
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.worker import SingleProcessGroup, TrainingState
from everstep.elastic.transport.group import RankAssignment

WORKERS = (8, 4, 2, 1)
MODES: dict[str, dict[str, Any]] = {
    "unbounded": {},
    "live": {"max_microbatch": True},
    "exact": {"mode": "exact", "shard_size": True},
}
"""Options of `Run`; True stands for the share of one of 8 workers."""


class OneOfMany(SingleProcessGroup):
    """The group of a worker that computes its share as if there were other workers."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def join(self, state: TrainingState) -> RankAssignment:
        """Return the rank assignment of the first worker."""
        super().join(state)
        return RankAssignment(0, self._workers, None, self._workers, lambda _: None)


class SavedActivations:
    """Bytes of the tensors that autograd keeps, except parameters; each storage counts once.

    Attributes:
        peak: largest sum so far.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self._uses = Counter[int]()
        self._bytes = self.peak = 0

    def keep(self, tensor: torch.Tensor) -> "_SavedTensor":
        """Count a tensor until autograd releases it."""
        storage = tensor.untyped_storage()
        saved_tensor = _SavedTensor(tensor)
        if storage.data_ptr() not in self._parameters:
            self._add(storage.data_ptr(), storage.nbytes())
            weakref.finalize(saved_tensor, self._release, storage.data_ptr(), storage.nbytes())
        return saved_tensor

    def _add(self, storage: int, size: int) -> None:
        self._uses[storage] += 1
        if self._uses[storage] == 1:
            self._bytes += size
            self.peak = max(self.peak, self._bytes)

    def _release(self, storage: int, size: int) -> None:
        self._uses[storage] -= 1
        if not self._uses[storage]:
            self._bytes -= size


class _SavedTensor:
    """A tensor that autograd keeps."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def main() -> None:
    """Print the peaks for each mode, and the ratio of the last peak to the first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=32, help="side of an image, pixels")
    parser.add_argument("--global-batch", type=int, default=128)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = [(mode, workers) for mode in MODES for workers in WORKERS]
    peaks: dict[str, list[int]] = {mode: [] for mode in MODES}
    for mode, workers in track(cases, "cases", len(cases)):
        peaks[mode].append(measure(options, MODES[mode], workers))
    report = {
        mode: {"bytes": values, "ratio": round(values[-1] / values[0], 3)}
        for mode, values in peaks.items()
    }
    if options.json:
        print(json.dumps({"workers": WORKERS, **report}, indent=1))
    else:
        print(*lines(peaks), sep="\n")


def measure(options: argparse.Namespace, mode: dict[str, Any], workers: int) -> int:
    """Return the peak of one step of one worker, in bytes."""
    torch.manual_seed(0)
    share = options.global_batch // max(WORKERS)
    model: nn.Module = torchvision.models.get_model(options.model, num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    run = Run(
        model,
        optimizer,
        dataset_size=options.global_batch,
        global_batch=options.global_batch,
        epochs=1,
        group=(OneOfMany(workers), TimeAccount()),
        overlap="off",
        **{name: share if value is True else value for name, value in mode.items()},
    )
    activations = SavedActivations(model)
    batches = iter(run)
    batch = next(batches)
    for indices in batch.microbatches():
        with torch.autograd.graph.saved_tensors_hooks(activations.keep, lambda saved: saved.tensor):
            images = torch.randn(len(indices), 3, options.size, options.size)
            loss = nn.functional.cross_entropy(model(images), indices % 10)
        batch.backward(loss)
        del loss
    return activations.peak


def lines(peaks: dict[str, list[int]]) -> Sequence[str]:
    """Return the table as lines of text."""
    table = ["workers of 8    " + "".join(f"{workers:>10}" for workers in WORKERS) + "  1 to 8"]
    for mode, values in peaks.items():
        cells = "".join(f"{value / 2**20:>6.1f} MiB" for value in values)
        table.append(f"{mode:<16}{cells}  {values[-1] / values[0]:.3f}")
    return table


if __name__ == "__main__":
    main()
