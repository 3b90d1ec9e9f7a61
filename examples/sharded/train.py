"""Train a model that is split over the workers of a node, and replicated across nodes.

    everstep launch --nproc-per-node 2 examples/sharded/train.py

Each block of the model is split as in Megatron-LM: the first matrix by columns, the second matrix by rows, so that a
block needs one sum over the node's workers in each direction. A worker has only its part of the parameters, gradients
and momentum. Across nodes, the library sums and copies each part separately. A node is lost as a whole: the other nodes
have its state. `python3 train.py` trains an unsplit model.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.autograd.function import FunctionCtx
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

from everstep import elastic
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.sharded_worker import attach_sharded

FEATURES, HIDDEN, BLOCKS = 16, 64, 2
SumInNode = Callable[[torch.Tensor], None]


class SplitContext(FunctionCtx):
    """Context of the backward pass of a split block."""

    sum_in_node: SumInNode


class Enter(torch.autograd.Function):
    """The input of a split block, equal on the node's workers; the backward pass sums their gradients."""

    @staticmethod
    def forward(ctx: SplitContext, x: torch.Tensor, sum_in_node: SumInNode) -> torch.Tensor:
        """Return the input, which is equal on all workers."""
        ctx.sum_in_node = sum_in_node
        return x.view_as(x)

    @staticmethod
    def backward(ctx: SplitContext, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient over all parts of the block."""
        total = gradient.contiguous().clone()
        ctx.sum_in_node(total)
        return total, None


class Leave(torch.autograd.Function):
    """The sum of a split block's outputs over the node's workers; the gradient is equal on all of them."""

    @staticmethod
    def forward(ctx: SplitContext, x: torch.Tensor, sum_in_node: SumInNode) -> torch.Tensor:
        """Return the output of all parts of the block."""
        del ctx
        total = x.contiguous().clone()
        sum_in_node(total)
        return total

    @staticmethod
    def backward(ctx: SplitContext, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient."""
        del ctx
        return gradient, None


class SplitBlock(nn.Module):
    """One part of a residual block of two matrices, cut from the whole block.

    Args:
        wide: the whole first matrix, split by columns.
        narrow: the whole second matrix, split by rows.
        part: number of this part.
        parts: number of parts.
        sum_in_node: function that sums over the workers of this node.
    """

    def __init__(
        self, wide: nn.Linear, narrow: nn.Linear, part: int, parts: int, sum_in_node: SumInNode
    ) -> None:
        super().__init__()
        self.wide = nn.Parameter(wide.weight.detach().chunk(parts, 0)[part].clone())
        self.wide_bias = nn.Parameter(wide.bias.detach().chunk(parts, 0)[part].clone())
        self.narrow = nn.Parameter(narrow.weight.detach().chunk(parts, 1)[part].clone())
        self._sum_in_node = sum_in_node

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the whole block."""
        hidden = torch.tanh(Enter.apply(x, self._sum_in_node) @ self.wide.T + self.wide_bias)
        output: torch.Tensor = Leave.apply(hidden @ self.narrow.T, self._sum_in_node)
        return x + output


def main() -> None:
    """Train, print the loss of each step on every node, and save this worker's part of the model on one node."""
    options = parse()
    part, parts = (
        int(os.environ.get("LOCAL_RANK", "0")),
        int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    )
    device = elastic.choose_device()
    accounting = TimeAccount.of_process()
    group = attach_sharded(device, accounting, parts) if parts > 1 else None
    sum_in_node = group.sum_in_node if group else lambda _: None
    torch.manual_seed(0)
    blocks = [
        SplitBlock(
            nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, FEATURES), part, parts, sum_in_node
        )
        for _ in range(BLOCKS)
    ]
    model = nn.Sequential(*blocks).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    run = elastic.Run(
        model,
        optimizer,
        dataset=samples(),
        global_batch=options.global_batch,
        epochs=options.epochs,
        checkpoint=options.run,
        checkpoint_steps=options.checkpoint_steps,
        overlap="off",
        group=(group, accounting) if group else None,
    )
    for batch in run:
        with batch:
            for x, y in batch.microbatches():
                batch.backward(mse_loss(model(x), y))
            if batch.step() and part == 0:
                print(
                    f"step {batch.number}: loss {batch.loss:.4f}, {run.world_size} nodes",
                    flush=True,
                )
    if run.leads:
        torch.save(model.state_dict(), options.run / f"part-{part}-of-{parts}.pt")


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
    options = parser.parse_args()
    options.run.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
