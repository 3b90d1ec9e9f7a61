"""A small image classifier that trains on the GPU through the library's public loop."""

from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from everstep import elastic
from trainer import models

BATCH, SHARD, STEPS, PIXELS, CLASSES = 32, 8, 4, 64, 10
GPU = torch.device("cuda", 0)


def images(samples: int) -> TensorDataset:
    """Return random images with labels, the same each time."""
    generator = torch.Generator().manual_seed(2)
    return TensorDataset(
        torch.randn(samples, 3, PIXELS, PIXELS, generator=generator),
        torch.randint(0, CLASSES, (samples,), generator=generator),
    )


def classifier(name: str = "resnet18") -> nn.Module:
    """Return a model with the same initial values each time, on the GPU, in channels_last."""
    torch.manual_seed(1)
    model = models.build(name, CLASSES)
    return model.to(GPU, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> elastic.Run:
    """Train a model on random images and return the completed run."""
    precision = models.precision("resnet18", GPU, exact=options.get("mode") == "exact")
    run = elastic.Run(
        model,
        optimizer,
        dataset=images(BATCH * STEPS),
        global_batch=BATCH,
        epochs=1,
        scaler=torch.amp.GradScaler("cuda", enabled=precision.needs_scaler),
        **options,
    )
    for batch in run:
        with batch:
            for x, y in batch.microbatches():
                with precision.autocast(GPU):
                    outputs = model(x.to(memory_format=torch.channels_last))
                batch.backward(nn.functional.cross_entropy(outputs.float(), y))
            batch.step()
    return run
