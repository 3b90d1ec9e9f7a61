"""A small training program for the tests of queries. Its arguments are the port of its metrics and its folder.

It saves often and trains until it is killed. `time.sleep` keeps it from using a whole core.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from everstep import elastic
from everstep.catalog.names import METRICS_PORT_VARIABLE

STEP_SECONDS = 0.05


def main() -> None:
    """Train a linear layer until the process is killed."""
    os.environ[METRICS_PORT_VARIABLE], folder = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    model = torch.nn.Linear(4, 1)
    run = elastic.Run(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        dataset=dataset,
        global_batch=8,
        epochs=1_000_000,
        checkpoint=folder,
        checkpoint_seconds=1,
    )
    for batch in run:
        for inputs, targets in batch.microbatches():
            batch.backward(torch.nn.functional.mse_loss(model(inputs), targets), inputs)
        time.sleep(STEP_SECONDS)
        batch.step()


if __name__ == "__main__":
    main()
