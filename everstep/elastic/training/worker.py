"""One worker of a run: its group, its rank, its journal and the account of its time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.distributed import get_node_local_rank

from everstep.catalog.names import POD_NAME_VARIABLE
from everstep.elastic.accounting.journal import Journal
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.compatibility import IncompatibleWorkerError
from everstep.elastic.recovery.live_worker import LiveGroup, attach_live
from everstep.elastic.recovery.worker import Group, SingleProcessGroup
from everstep.elastic.transport.group import RankAssignment
from everstep.errors import EverstepError

_has_run = False  # whether this process is connected to its agent for a run


@dataclass
class Worker:
    """This process as a worker.

    Attributes:
        group: the worker's connection to the others.
        accounting: account of the worker's time.
        journal: journal of the worker's events.
        device: device on which the model computes.
        assignment: the worker's rank in the current generation.
        saver: rank of the worker that writes the checkpoints: 0, until its storage hangs or cannot store the last one.
        requests_stop: whether the program has called `Run.stop`.
    """

    group: Group
    accounting: TimeAccount
    journal: Journal
    device: torch.device
    assignment: RankAssignment
    saver: int = 0
    requests_stop: bool = False

    @property
    def leads(self) -> bool:
        """True if this worker is rank 0; the node's workers have one rank if each has a shard of the model."""
        return self.assignment.rank == 0

    @property
    def records(self) -> bool:
        """True if this worker records the steps of the group: of several workers with rank 0, the first."""
        return self.leads and self.assignment.shard == 0

    @property
    def saves(self) -> bool:
        """True if this worker writes the checkpoints, or its shard of them."""
        return self.assignment.rank == self.saver

    def overlaps(self, choice: str) -> bool:
        """Return True if gradients are summed during the backward pass; equal on all workers of a group.

        Between workers on the CPUs of one machine this gains nothing, because the all-reduces take CPU time
        from the backward pass.
        """
        if choice != "auto":
            return choice == "on"
        return self.device.type != "cpu" or self.assignment.local_peers < self.assignment.world_size

    def set_threads(self, *, exact: bool) -> None:
        """Set the threads of a model on the CPU: one for `exact`; otherwise an elastic worker's share of the CPUs."""
        if self.device.type != "cpu":
            return
        threads = len(os.sched_getaffinity(0)) // self.assignment.local_peers
        if exact:
            threads = 1  # the number of threads in a sum decides its last bits
        if exact or isinstance(self.group, LiveGroup):
            torch.set_num_threads(max(1, threads))


def choose_device() -> torch.device:
    """Return this worker's GPU, or the CPU. Call it before the model is created."""
    if torch.cuda.is_available():
        local_rank = get_node_local_rank(0)
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    return torch.device("cpu")


def connect(device: torch.device, accounting: TimeAccount) -> Group:
    """Return the group of the agent that started this process, or the group of a single process.

    Raises:
        EverstepError: another launcher started several workers, which could not find each other, or this process has
            a run with its agent already.
    """
    global _has_run  # noqa: PLW0603 - of the process
    if _has_run:
        raise EverstepError(
            "this process has a run already, and a launcher starts workers for one run only",
            "Start each run with its own `everstep launch`, or train without a launcher.",
        )
    if group := attach_live(device, accounting):
        _has_run = True
        return group
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        raise EverstepError(
            f"WORLD_SIZE is {world_size}, but no agent started this worker",
            "Start several workers with `everstep launch --nproc-per-node N ...`.",
        )
    return SingleProcessGroup()


@contextmanager
def announce_errors(group: Group) -> Iterator[None]:
    """Announce an error that ends the run, or only this worker, to the agents."""
    try:
        yield
    except IncompatibleWorkerError as error:
        group.report_incompatibility(str(error))
        raise
    except EverstepError as error:
        group.report_failure(str(error))
        raise


def worker_name() -> str:
    """Return the name of this journal's writer: the pod, or host and node rank; and the local rank if it is not 0."""
    local_rank = get_node_local_rank(0)
    pod = (
        os.environ.get(POD_NAME_VARIABLE)
        or f"{os.uname().nodename}-{os.environ.get('GROUP_RANK', '0')}"
    )
    return f"{pod}-{local_rank}" if local_rank else pod
