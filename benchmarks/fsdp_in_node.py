"""FSDP2 over the processes of a node and an all-reduce across nodes, compared with an unsharded model in one process.

    python -m benchmarks.fsdp_in_node

Two nodes of two processes train on CPUs, with gloo. In the middle, all node groups are built again, as after the
loss of a process: torch cannot replace the group of a sharded model, so a new model is sharded and gets the tensors.
"""

import copy
import multiprocessing
import sys
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, nn
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, TCPStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import mse_loss

NODES, NODE_PROCESSES, STEPS, SAMPLES, FEATURES = 2, 2, 10, 64, 16
TOLERANCE = 1e-6
TIMEOUT = timedelta(seconds=120)


def blocks() -> nn.Sequential:
    """Return the unsharded model, equal in all processes."""
    torch.manual_seed(0)
    sizes = [(FEATURES, 4 * FEATURES)] * 2
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(a, b), nn.Tanh(), nn.Linear(b, a)) for a, b in sizes)
    )


def optimizer_of(model: nn.Module) -> torch.optim.SGD:
    """Return an optimizer with a state."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a sharded tensor, without copying it."""
    assert isinstance(tensor, DTensor)
    part: torch.Tensor = tensor.to_local()
    return part


class Worker:
    """One of a node's processes, with one shard of the model."""

    def __init__(self, port: int, node: int, rank: int) -> None:
        self._store = TCPStore("127.0.0.1", port, is_master=False, use_libuv=False, timeout=TIMEOUT)
        self._node, self._rank, self._groups = node, rank, 0
        shard_store = PrefixStore(f"shard-{rank}", self._store)
        self._shard_group: Any = ProcessGroupGloo(shard_store, node, NODES, TIMEOUT)
        self.build()

    def build(self) -> None:
        """Build the node's group, shard a new model over it, and copy the tensors of the former model."""
        parts, moments = self.parts() if self._groups else ([], [])
        if self._groups:
            distributed.destroy_process_group()
        self._groups += 1
        store = PrefixStore(f"node-{self._node}-{self._groups}", self._store)
        distributed.init_process_group(
            "gloo", store=store, rank=self._rank, world_size=NODE_PROCESSES
        )
        self.model = blocks()
        mesh = init_device_mesh("cpu", (NODE_PROCESSES,))
        for module in (*self.model, self.model):
            fully_shard(module, mesh=mesh)
        for module in self.model.modules():  # the settings do not apply to submodules
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo has no PREMUL_SUM
        self._optimizer = optimizer_of(self.model)
        for parameter, part, moment in zip(self.model.parameters(), parts, moments, strict=False):
            with torch.no_grad():
                local(parameter).copy_(part)
                momentum = torch.zeros_like(parameter)
                local(momentum).copy_(moment)
            self._optimizer.state[parameter]["momentum_buffer"] = momentum

    def parts(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return copies of this process's parameters and momenta."""
        parameters = list(self.model.parameters())
        state = self._optimizer.state
        moments = [local(state[parameter]["momentum_buffer"]).clone() for parameter in parameters]
        return [local(parameter).detach().clone() for parameter in parameters], moments

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Train on this process's samples, in two micro-batches."""
        share = SAMPLES // (NODES * NODE_PROCESSES)
        first_sample = (self._node * NODE_PROCESSES + self._rank) * share
        for is_last, start in enumerate((first_sample, first_sample + share // 2)):
            shard = slice(start, start + share // 2)
            assert isinstance(self.model, FSDPModule)
            self.model.set_requires_gradient_sync(bool(is_last))
            loss = mse_loss(self.model(inputs[shard]), targets[shard])
            (loss * (share / 2 / SAMPLES)).backward()  # type: ignore[no-untyped-call]  # torch has no type
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            self._shard_group.allreduce([local(parameter.grad)]).wait()
        self._optimizer.step()
        self._optimizer.zero_grad()

    @torch.no_grad()
    def difference(self, unsharded: nn.Module) -> float:
        """Return the greatest difference of a parameter from the unsharded model's; NaN if a difference is NaN."""
        pairs = zip(self.model.parameters(), unsharded.parameters(), strict=True)
        differences = [
            (local(shard) - expected.chunk(NODE_PROCESSES)[self._rank]).abs().max()
            for shard, expected in pairs
        ]
        return float(torch.stack(differences).max())  # NaN if one is NaN, unlike Python's max


def work(port: int, node: int, rank: int) -> None:
    """Train the sharded and the unsharded model; exit with 1 if they differ."""
    unsharded, worker = copy.deepcopy(blocks()), Worker(port, node, rank)
    optimizer = optimizer_of(unsharded)
    inputs = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(1))
    targets = torch.sin(inputs)
    for step in range(STEPS):
        if step == STEPS // 2:
            worker.build()
        worker.step(inputs, targets)
        mse_loss(unsharded(inputs), targets).backward()  # type: ignore[no-untyped-call]  # torch has no type
        optimizer.step()
        optimizer.zero_grad()
    difference = worker.difference(unsharded)
    shard_size = sum(part.numel() for part in worker.parts()[0])
    size = sum(parameter.numel() for parameter in unsharded.parameters())
    print(
        f"node {node}, process {rank}: {shard_size} of {size} parameters, difference {difference:.1e}"
    )
    distributed.destroy_process_group()
    sys.exit(not difference <= TOLERANCE)  # NaN fails, too


def main() -> int:
    """Run all processes; return 1 if one fails, for example because its shard differs from the unsharded model."""
    store = TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False, timeout=TIMEOUT
    )
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=work, args=(store.port, node, rank))
        for node in range(NODES)
        for rank in range(NODE_PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return int(any(process.exitcode for process in processes))


if __name__ == "__main__":
    sys.exit(main())
