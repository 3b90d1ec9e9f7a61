"""A worker whose node holds one replica of the model in shards, one for each of its workers.

For a model that does not fit on one device (docs/decisions/0012): the workers of a node receive the same samples and
compute them together, with tensor parallelism or FSDP2. Workers with the same shard, one on each node, sum their
gradients and copy their state. So a rank of the training loop is a node. `examples/sharded` uses this module.

A step is applied only after all workers have received the sums of their shards. Either all workers of a node apply it
or none (`node_agreements`), and a node's state counts only if all its shards are of the same step. Gradients of a
broken step are not kept: the workers of a node may have computed different parts of it.
"""

import contextlib
import logging
import os
import secrets
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.distributed import get_node_local_rank

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.accounting.time_account import Activity, TimeAccount
from everstep.elastic.checkpoint.sharded_store import SnapshotName
from everstep.elastic.recovery import copying
from everstep.elastic.recovery.live_worker import LiveGroup
from everstep.elastic.recovery.node_agreements import RESULT_NUMBERS, NodeAgreements
from everstep.elastic.recovery.state_machine import (
    Action,
    Assigned,
    Compare,
    Compared,
    Copied,
    Copy,
    Event,
    StateReport,
    StepProgress,
)
from everstep.elastic.recovery.worker import TrainingState, Votes
from everstep.elastic.recovery.worker_process import connect_to_agent
from everstep.elastic.transport import channel
from everstep.elastic.transport.abortable_group import AbortableGroup, GroupAddress
from everstep.elastic.transport.group import (
    PeerLostError,
    RankAssignment,
    await_text,
    set_text,
)
from everstep.elastic.transport.stalls import Stall
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from everstep.elastic.recovery.node_group import NodeProcessGroup


log = logging.getLogger(__name__)


class GroupWithSubgroups(AbortableGroup):
    """The group of all workers, with two subgroups that are built and aborted with it.

    Args:
        address: address of the group of all workers.
        shards: number of workers of each node.
        device: device of the tensors.
        group: group whose agent receives the reports of stalls.

    Attributes:
        shard: group of the workers with this worker's shard; its rank is the node's.
        node: group of this node's workers; its rank is the local rank.
    """

    def __init__(
        self, address: GroupAddress, shards: int, device: torch.device, group: "ShardedGroup"
    ) -> None:
        super().__init__(address, device, group.report_stall, group.note_stall)
        node, shard = divmod(address.rank, shards)
        nodes = address.world_size // shards
        self.shard = AbortableGroup(
            replace(address, part=f"/shard-{shard}", rank=node, world_size=nodes),
            device,
            group.report_stall,
            group.note_stall,
        )
        self.node = AbortableGroup(
            replace(address, part=f"/node-{node}", rank=shard, world_size=shards),
            device,
            group.report_stall,
        )

    def build(self) -> None:
        """Build the group, then its subgroups."""
        super().build()
        self.shard.build()
        self.node.build()

    def abort(self) -> None:
        """Abort the group and its subgroups."""
        super().abort()
        self.shard.abort()
        self.node.abort()

    def close(self) -> None:
        """Release the group and its subgroups."""
        super().close()
        self.shard.close()
        self.node.close()


class ShardedGroup(LiveGroup):
    """The group of a worker with one shard.

    Args:
        stream: connection to the agent.
        device: device of the model.
        shards: number of workers of each node.
        agreements: results of agreements, shared with the other workers of this node.
        accounting: account of the worker's time.

    Attributes:
        shards: number of workers of each node.
        local_rank: number of this worker's shard.
        node_processes: text for the processes of this node's workers, as they have last met; see `SnapshotName`.
    """

    def __init__(
        self,
        stream: channel.MessageStream,
        device: torch.device,
        shards: int,
        agreements: NodeAgreements,
        accounting: TimeAccount | None = None,
    ) -> None:
        self._agreements = agreements
        self.shards, self.local_rank = shards, get_node_local_rank(0)
        self.node_processes = ""
        self._own_process, self._snapshots = secrets.randbits(31), 0
        self._node_group: NodeProcessGroup | None = None
        super().__init__(stream, device, accounting)

    @property
    def mesh_size(self) -> int:
        """Number of workers among which torch shards a model; 0 without `node_mesh`."""
        return self._node_group.size() if self._node_group else 0

    def node_mesh(self) -> "DeviceMesh":
        """Return the mesh of this node's workers, for `fully_shard`; call it once, before the model is sharded.

        The mesh's group becomes torch's default group of this process. It has connections only while this worker
        is in a generation.
        """
        # Imported only here: it takes seconds, and only models that torch shards need it.
        from everstep.elastic.recovery.node_group import NodeProcessGroup, node_mesh

        self._node_group = NodeProcessGroup(
            self.local_rank, self.shards, lambda: self._groups().node
        )
        return node_mesh(self._node_group, self._device)

    def sum_in_node(self, tensor: torch.Tensor) -> None:
        """Sum a tensor over the workers of this node, in place; for the model's forward and backward pass.

        Raises:
            PeerLostError: a worker of the group is gone.
        """
        self._groups().node.sum(tensor)

    def join(self, state: TrainingState) -> RankAssignment:
        """Wait for a generation and join it; the returned rank is the node's."""
        assignment = super().join(state)
        if self._node_group:
            self._node_group.begin_generation()
        shard = self._groups().shard
        return replace(
            assignment,
            rank=shard.rank,
            world_size=shard.world_size,
            shard=self.local_rank,
            shards=self.shards,
            store=shard.store,
            sum=self._sum_shard,
            # Gradients that torch sums in the node may be wrong until the backward pass has ended.
            begin_all_reduce=None if self._node_group else shard.begin_all_reduce,
        )

    def _sum_shard(self, tensor: torch.Tensor) -> None:
        """Sum a tensor over the workers with this shard; first raise the error of a collective in the node, if any."""
        self._raise_node_error()
        self._groups().shard.sum(tensor)

    def _raise_node_error(self) -> None:
        if self._node_group:
            self._node_group.raise_error()

    def agree(self, votes: Votes) -> Votes:
        """Return the votes of the workers with all shards, once the all-reduces of all shards are complete.

        If a peer is lost before this worker receives the result, but not before another worker of the node does, that
        result counts; the next collective raises PeerLostError.

        A checkpoint is due if it is for all workers of the node that writes it: a worker that still writes the
        last one is not ready for another. All other numbers are equal on all nodes, so only the first one's count.
        """
        self._raise_node_error()
        process_group = self._groups()
        own_votes = votes if process_group.shard.rank == 0 else Votes(due=votes.due)
        sums = torch.tensor(astuple(own_votes), dtype=torch.float64, device=self._device)
        agreed_votes = Votes(*self._sum_with_node(process_group, sums))
        return replace(agreed_votes, due=float(agreed_votes.due == self.shards))

    def _sum_with_node(self, group: AbortableGroup, numbers: torch.Tensor) -> tuple[float, ...]:
        """Return the sums of these numbers over a group: on all workers of this node, or on none."""
        try:
            group.sum(numbers)
        except PeerLostError as error:
            self._groups().abort()  # the others must not wait for this worker while it waits for them
            if not (result := self._agreements.find_result()):
                raise
            log.info("a result reached only another worker of this node: %s", error)
        else:
            result = tuple(numbers.tolist())
        self._agreements.record(result)
        return result

    def agree_in_node(self, key: str, text: str) -> str:
        """Return the text of the node's first worker on all of its workers; `key` is used once in a generation."""
        node = self._groups().node
        if node.store is None:
            raise PeerLostError("the group of this node is not built")
        if node.rank == 0:
            set_text(node.store, key, text)
        return await_text(node.store, key)

    def next_snapshot(self) -> str:
        """Return the name of the next snapshot, equal on all workers of this node."""
        self._snapshots += 1
        agreed_generation = self._core.progress.agreed_generation
        return str(SnapshotName(self.node_processes, self._snapshots, agreed_generation))

    def _agree_on_snapshot_names(self, node: AbortableGroup) -> None:
        """Exchange with the workers of this node what makes the names of their next snapshots equal."""
        own_numbers = torch.tensor([self._own_process, self._snapshots], dtype=torch.int64)
        processes, snapshots = zip(*(n.tolist() for n in node.all_gather(own_numbers)), strict=True)
        self.node_processes = f"{sum(processes) % 2**32:08x}"
        self._snapshots = max(snapshots)

    @property
    def _restoring_workers(self) -> int:
        return self.shards

    def _restore(self) -> int:
        """Restore all shards of this node from one checkpoint, which its first worker chooses; return the steps."""
        state, choice = self._required_state(), ""
        if self.local_rank == 0:
            step = super()._restore()
            choice = f"{step} {state.restored_generation()}"
        step, generation = map(int, self.agree_in_node("restored", choice).split())
        if self.local_rank:
            with state.watch_reading(self.give_up):
                state.restore_shard(step, generation)
        return step

    def wait_for_all(self) -> None:
        """Wait until all workers have completed the run: the exit of one ends the group of the others."""
        # A lost peer has received this sum already, and has ended.
        with contextlib.suppress(PeerLostError):
            self._groups().sum(torch.zeros(1, device=self._device))

    def report_stall(self) -> None:
        """Report that a collective takes unusually long."""
        self._report_stall()

    def note_stall(self, stall: Stall) -> None:
        """Record a long wait for other workers, or its end."""
        self._note_stall(stall)

    def _groups(self) -> GroupWithSubgroups:
        process_group = self._process_group
        if not isinstance(process_group, GroupWithSubgroups):
            raise PeerLostError("this worker is in no group")
        return process_group

    def _leave_group(self) -> None:
        self._agreements.leave()
        super()._leave_group()

    def _new_process_group(self, address: GroupAddress) -> AbortableGroup:
        return GroupWithSubgroups(address, self.shards, self._device, self)

    def _next_assignment(self) -> Assigned:
        assignment = super()._next_assignment()
        node, nodes = assignment.rank // self.shards, assignment.world_size // self.shards
        return replace(assignment, rank=node, world_size=nodes)

    def _carry_out(self, action: Action) -> Event | None:
        match action:
            case Compare(report):
                self.accounting.begin(Activity.COPY)
                # Before the reports of all are complete, no worker can agree on anything.
                self._agreements.begin(self.generation)
                tensors = self._required_state().shared_tensors()
                process_group = self._groups()
                reports = copying.compare(process_group, report, tensors)
                self._agree_on_snapshot_names(process_group.node)
                return Compared(reports_of_shard(reports, self.shards, process_group.node.rank))
            case Copy(plan):
                self._copy(self._groups().shard, plan)
                # A peer may be lost while another shard is sent: the progress of this node's shards would differ.
                numbers = torch.zeros(RESULT_NUMBERS, dtype=torch.float64, device=self._device)
                self._sum_with_node(self._groups().node, numbers)
                self._required_state().adopt(plan.progress.step, (), keeps_units=False)
                return Copied()
        return super()._carry_out(action)


def reports_of_shard(
    reports: tuple[StateReport, ...], shards: int, shard: int
) -> tuple[StateReport, ...]:
    """Return the reports about one shard, by node, with the progress of the whole node.

    A node whose shards are of different steps counts as having no state: it cannot roll back, and the sums that some
    of its workers lack are gone.

    Args:
        reports: reports of all workers, by rank.
        shards: number of workers of each node.
        shard: local rank.
    """
    nodes = [reports[first : first + shards] for first in range(0, len(reports), shards)]
    return tuple(
        node[shard]
        if len({report.progress for report in node}) == 1
        else replace(node[shard], progress=StepProgress())
        for node in nodes
    )


def attach_sharded(device: torch.device, accounting: TimeAccount, shards: int) -> ShardedGroup:
    """Connect to the agent that started this process, as a worker with one shard.

    Raises:
        EverstepError: no agent started this process.
    """
    stream = connect_to_agent()
    if stream is None:
        raise EverstepError(
            "no agent started this worker", "Start it with `everstep launch --nproc-per-node N`."
        )
    path = channel.agreements_path(Path(os.environ[AGENT_VARIABLE]))
    agreements = NodeAgreements(path, shards, get_node_local_rank(0))
    return ShardedGroup(stream, device, shards, agreements, accounting)
