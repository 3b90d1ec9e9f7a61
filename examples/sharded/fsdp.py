"""Train a model that FSDP2 splits over the workers of a node, and that is replicated across nodes.

    everstep launch --nproc-per-node 2 examples/sharded/fsdp.py

A worker has one part of each parameter, of its gradient and of the optimizer's state. torch gathers the parameters of
a block within the node to compute the block; across nodes, the library sums and copies each part. A node is lost as a
whole: the other nodes have its state. `python3 fsdp.py` trains the whole model in one process.
"""

import argparse
import os
from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

from everstep import elastic
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.sharded_worker import attach_sharded

FEATURES, HIDDEN, BLOCKS = 16, 64, 2


def main() -> None:
    """Train, print each step on every node, and save this worker's part of the model on one node."""
    options = parse()
    part, parts = (
        int(os.environ.get("LOCAL_RANK", "0")),
        int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    )
    device, accounting = elastic.choose_device(), TimeAccount.of_process()
    group = attach_sharded(device, accounting, parts) if parts > 1 else None
    torch.manual_seed(0)
    model = nn.Sequential(*(block() for _ in range(BLOCKS))).to(device)
    if group:
        split(model, group.node_mesh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    run = elastic.Run(
        model,
        optimizer,
        dataset=samples(),
        global_batch=options.global_batch,
        epochs=options.epochs,
        checkpoint=options.run,
        checkpoint_steps=options.checkpoint_steps,
        max_grad_norm=options.max_grad_norm,
        group=(group, accounting) if group else None,
    )
    for batch in run:
        with batch:
            for inputs, targets in batch.microbatches():  # the same on all workers of the node
                x, y = inputs.tensor_split(parts)[part], targets.tensor_split(parts)[part]
                loss = mse_loss(model(x), y, reduction="sum") / FEATURES
                (loss / options.global_batch).backward()
            if batch.step() and part == 0:
                print(f"step {batch.number}: {run.world_size} nodes", flush=True)
    if run.leads:
        torch.save(parts_of(model), options.run / f"part-{part}-of-{parts}.pt")


def block() -> nn.Module:
    """Return a block of two matrices."""
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, FEATURES))


def split(model: nn.Sequential, mesh: DeviceMesh) -> None:
    """Split a model over a node's workers; gradients become sums, since each loss is a part of the global mean."""
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
    for module in model.modules():  # the settings do not apply to submodules
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no PREMUL_SUM


def parts_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return this worker's part of each parameter."""
    return {
        name: value.to_local() if isinstance(value, DTensor) else value
        for name, value in model.state_dict().items()
    }


def samples() -> TensorDataset:
    """Return random inputs and a smooth function of them."""
    x = torch.randn(256, FEATURES, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, torch.sin(x.roll(1, dims=1)))


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=Path(), help="folder of checkpoints and result")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--checkpoint-steps", type=int, default=100)
    parser.add_argument("--max-grad-norm", type=float, default=0.1)
    options = parser.parse_args()
    options.run.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
