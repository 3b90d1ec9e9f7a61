"""A worker of torchrun: DistributedDataParallel, and restarts from the last checkpoint in a shared folder."""

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.comparison.workload import (
    SAVE_STEPS,
    TIMEOUT_SECONDS,
    StepJournal,
    build_model,
    build_optimizer,
    loss_of,
    samples_of_step,
)


def main() -> None:
    """Train from the last checkpoint until killed."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_SECONDS))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = build_model()
    optimizer = build_optimizer(model)
    path = Path(os.environ["COMPARISON_FOLDER"]) / "checkpoint.pt"
    step = restore(path, model, optimizer)
    ddp_model = nn.parallel.DistributedDataParallel(model)
    journal = StepJournal.of_this_node()
    while True:
        journal.begin()
        batch = samples_of_step(step)
        bounds = [batch.start + len(batch) * index // world_size for index in (rank, rank + 1)]
        samples = range(*bounds)
        optimizer.zero_grad()
        loss_of(ddp_model, samples).backward()  # type: ignore[no-untyped-call]
        step += 1
        journal.record_computed(step, world_size, samples)
        optimizer.step()
        journal.record_committed()
        if step % SAVE_STEPS == 0 and rank == 0:
            save(path, model, optimizer, step)


def restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint; return its number of completed steps, 0 without a checkpoint."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Replace the checkpoint atomically."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


if __name__ == "__main__":
    main()
