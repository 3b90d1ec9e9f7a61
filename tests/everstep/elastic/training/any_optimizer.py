"""A small training program with an optimizer of choice, plain or elastic."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from everstep import elastic
from everstep.elastic.data_order.sampler import SampleOrder

SAMPLES, BATCH, EPOCHS = 240, 24, 4
OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
    "Adafactor": lambda model: torch.optim.Adafactor(model.parameters(), lr=0.01),
}


def samples() -> TensorDataset:
    """Return random samples, the same in every process."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, 6, generator=generator)
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def network() -> nn.Module:
    """Return the initial model, the same in every process."""
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def weights(model: nn.Module) -> list[float]:
    """Return all parameters in one list."""
    return [float(x) for p in model.parameters() for x in p.detach().flatten()]


def train_plainly(name: str) -> list[float]:
    """Return the parameters after an ordinary training loop in one process."""
    model, order = network(), SampleOrder(SAMPLES, BATCH, EPOCHS, 0)
    optimizer = OPTIMIZERS[name](model)
    inputs, labels = samples().tensors
    for step in range(order.total_steps):
        ids = torch.from_numpy(order.batch(step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[ids]), labels[ids]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return weights(model)


def main() -> None:
    """Train elastically, and write the parameters."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path)
    parser.add_argument("--optimizer", choices=list(OPTIMIZERS))
    parser.add_argument("--step-seconds", type=float, help="pause in each step")
    parser.add_argument("--alone-seconds", type=float, help="the pause in a group of one worker")
    options = parser.parse_args()
    model = network()
    run = elastic.Run(
        model,
        OPTIMIZERS[options.optimizer](model),
        dataset=samples(),
        global_batch=BATCH,
        epochs=EPOCHS,
        checkpoint=options.run,
        max_microbatch=5,
    )
    for batch in run:
        for x, y in batch.microbatches():
            batch.backward(nn.functional.cross_entropy(model(x), y))
        time.sleep(options.step_seconds if run.world_size > 1 else options.alone_seconds)
        batch.step()
    if run.leads:
        (options.run / "weights.json").write_text(json.dumps(weights(model)))


if __name__ == "__main__":
    main()
