"""One replica group of torchft, written like its own example train_ddp.py, except for the all-reduce of gradients.

That example wraps the model in torchft's DistributedDataParallel. In torchft 0.2.0, `_comm_hook` of its ddp.py
fails with an AssertionError when an all-reduce over Gloo breaks, so each lost worker ends the survivors' processes too.
Here `Manager.allreduce` averages the gradients and reports a failed all-reduce to the manager, as torchft intends.
"""

import os
from datetime import timedelta

import torch
from torchft import Manager, Optimizer, ProcessGroupGloo

from benchmarks.comparison.workload import (
    GLOBAL_BATCH,
    NODES,
    TIMEOUT_SECONDS,
    StepJournal,
    build_model,
    build_optimizer,
    loss_of,
)

SHARE = GLOBAL_BATCH // NODES


def average_gradients(manager: Manager, model: torch.nn.Module) -> None:
    """Average the gradients over all replica groups, in one buffer; a failure is reported to the manager."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    buffer = torch.cat([gradient.flatten() for gradient in gradients])
    manager.allreduce(buffer).wait()
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, average in zip(gradients, torch.split(buffer, sizes), strict=True):
        gradient.copy_(average.view_as(gradient))


def main() -> None:
    """Train until killed."""
    model = build_model()
    local_optimizer = build_optimizer(model)

    def load_state_dict(state: dict[str, dict[str, object]]) -> None:
        model.load_state_dict(state["model"])
        local_optimizer.load_state_dict(state["optimizer"])

    def state_dict() -> dict[str, dict[str, object]]:
        return {"model": model.state_dict(), "optimizer": local_optimizer.state_dict()}

    node = int(os.environ["COMPARISON_NODE"][1:])
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=TIMEOUT_SECONDS)),
        min_replica_size=1,
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        timeout=timedelta(seconds=TIMEOUT_SECONDS),
        replica_id=f"node{node}_",
    )
    optimizer = Optimizer(manager, local_optimizer)
    journal = StepJournal.of_this_node()
    batches_read = 0  # batches of this replica's shard, which has every third batch of the samples
    while True:
        journal.begin()
        first_sample = (batches_read * NODES + node) * SHARE
        samples = range(first_sample, first_sample + SHARE)
        batches_read += 1
        last_step = manager.current_step()
        optimizer.zero_grad()
        loss_of(model, samples).backward()  # type: ignore[no-untyped-call]
        average_gradients(manager, model)
        journal.record_computed(last_step + 1, manager.num_participants(), samples)
        optimizer.step()
        if manager.current_step() > last_step:
            journal.record_committed()


if __name__ == "__main__":
    main()
