"""The training program of the chaos tests, whose parameters count how often each sample was applied.

The gradient of `counts` is -1/global batch at each sample of the step, and its learning rate is the
global batch. So a step adds exactly 1 to the count of each of its samples, without rounding; a sample that
is left out, or summed twice, changes the result permanently. `weights` are ordinary parameters: two
histories that differ anywhere have different weights.
"""

import argparse
import hashlib
import os
import time
from pathlib import Path

import torch
from torch import nn

from everstep import elastic

SAMPLES, BATCH, WIDTH = 512, 32, 2048


class CountingModel(nn.Module):
    """Counts of samples, and weights that are fitted to a function of the sample's index."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(SAMPLES))
        self.weights = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the sum of these samples' losses; shape ()."""
        waves = torch.cos(ids.double()[:, None] * torch.arange(1, WIDTH + 1) * 0.37).float()
        error = waves @ self.weights / WIDTH**0.5 - torch.sin(ids.double()).float()
        loss: torch.Tensor = (error**2).sum() - self.counts[ids].sum()
        return loss


def digest(model: CountingModel) -> str:
    """Return the digest of all parameters."""
    sha256 = hashlib.sha256(model.counts.detach().numpy().tobytes())
    sha256.update(model.weights.detach().numpy().tobytes())
    return sha256.hexdigest()[:16]


def main() -> None:
    """Train until the node is stopped, and record each applied step with the state before and after it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--mode", default="live")
    options = parser.parse_args()
    model = CountingModel()
    optimizer = torch.optim.SGD(
        [
            {"params": [model.counts], "lr": float(BATCH)},
            {"params": [model.weights], "lr": 0.1, "momentum": 0.9},
        ]
    )
    run = elastic.Run(
        model,
        optimizer,
        dataset_size=SAMPLES,
        global_batch=BATCH,
        epochs=1_000_000,
        mode=options.mode,
        shard_size=4,
        checkpoint=options.run,
        checkpoint_seconds=1.0,
        storage_timeout_seconds=4.0,
        keep_checkpoints=1_000_000,  # the checker reads all of them
    )
    digest_before = ""

    @run.after_step
    def note() -> None:
        run.note(
            "applied",
            step=run.step + 1,
            before=digest_before,
            after=digest(model),
            process=os.getpid(),
        )

    for batch in run:
        with batch:
            for ids in batch.microbatches():
                time.sleep(options.step_seconds if not batch.is_warm_up else 0.0)
                (model(ids) * batch.weight(1)).backward()
            digest_before = digest(model)
            batch.step()


if __name__ == "__main__":
    main()
