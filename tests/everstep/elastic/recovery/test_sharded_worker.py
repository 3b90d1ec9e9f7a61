"""Nodes with a complete state when each worker has one shard of it, and the agreements of a node's workers."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from everstep.elastic.recovery.node_agreements import NodeAgreements
from everstep.elastic.recovery.sharded_worker import ShardedGroup, reports_of_shard
from everstep.elastic.recovery.state_machine import (
    Copied,
    Copy,
    CopyPlan,
    Recovery,
    Restore,
    Restored,
    StateReport,
    StepProgress,
    plan_copy,
)
from everstep.elastic.recovery.worker import Votes
from everstep.elastic.transport.group import PeerLostError


def report(step: int, shard: int) -> StateReport:
    return StateReport(StepProgress(1, step), checksums=(10 * step + shard,))


def test_the_reports_of_a_shard_are_one_of_each_node() -> None:
    reports = (report(5, 0), report(5, 1), report(4, 0), report(4, 1))

    assert reports_of_shard(reports, 2, 0) == (report(5, 0), report(4, 0))
    assert reports_of_shard(reports, 2, 1) == (report(5, 1), report(4, 1))


def test_a_node_whose_shards_are_of_different_steps_has_no_state() -> None:
    """Its worker that is ahead must not be the source of one shard while the other one is a step behind."""
    reports = (report(6, 0), report(5, 1), report(5, 0), report(5, 1))

    for shard in range(2):
        plan = plan_copy(reports_of_shard(reports, 2, shard))
        assert plan is not None
        assert plan.progress == StepProgress(1, 5)
        assert plan.sources == (1,)
        assert plan.missing_tensors == {0: (0,) if shard == 0 else ()}


def test_if_the_shards_of_each_node_are_of_different_steps_there_is_no_state() -> None:
    reports = (report(6, 0), report(5, 1))

    assert all(plan_copy(reports_of_shard(reports, 2, shard)) is None for shard in range(2))


# --- what the workers of a node agree on ---


class MemoryStore:
    """A store of a group, in memory."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self._values[key] = value

    def get(self, key: str) -> bytes:
        return self._values[key].encode()

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._values for key in keys)


class NodeInThreads:
    """The groups of a node's workers, which are threads of this process."""

    def __init__(self, size: int) -> None:
        self._numbers: list[torch.Tensor] = [torch.empty(0)] * size
        self._barrier = threading.Barrier(size, timeout=60)
        self.store = MemoryStore()

    def all_gather(self, rank: int, numbers: torch.Tensor) -> list[torch.Tensor]:
        self._numbers[rank] = numbers.clone()
        self._barrier.wait()
        result = list(self._numbers)
        self._barrier.wait()
        return result


class NodeLink:
    """One worker's group in `NodeInThreads`; `sum` adds the votes of all other workers.

    Args:
        node: groups of the node's workers.
        rank: local rank.
        other_votes: sum of the votes of the other workers.
    """

    def __init__(self, node: NodeInThreads, rank: int, other_votes: list[float]) -> None:
        self.node, self.rank, self.store = self, rank, node.store
        self.shard = SimpleNamespace(rank=0)
        self._node, self._other_votes = node, other_votes

    def all_gather(self, numbers: torch.Tensor) -> list[torch.Tensor]:
        return self._node.all_gather(self.rank, numbers)

    def sum(self, tensor: torch.Tensor) -> None:
        tensor += torch.tensor(self._other_votes, dtype=tensor.dtype)


class GroupInThread(ShardedGroup):
    """The group of a worker without an agent.

    Args:
        process_group: the group of its present generation.
        process: number of its process.
        state: the state of its training loop.
        file: file of the node's agreements, for tests in which the workers agree.
    """

    def __init__(
        self,
        process_group: NodeLink,
        process: int,
        state: Any = None,
        file: Path | None = None,
    ) -> None:
        self.shards, self.local_rank, self.node_processes = 2, process_group.rank, ""
        self._own_process, self._snapshots = process, 0
        self._core, self._state, self._node_group = Recovery(), state, None
        if file:
            self._agreements = NodeAgreements(file, self.shards, self.local_rank)
        self._device, self._test_process_group = torch.device("cpu"), process_group
        self._lock, self._process_group = threading.Lock(), None

    def _groups(self) -> Any:
        return self._test_process_group

    def _required_process_group(self) -> Any:
        return self._test_process_group

    def agree_on_snapshot_names(self) -> None:
        self._agree_on_snapshot_names(self._test_process_group)  # type: ignore[arg-type]


def node_of(*processes: int, states: Sequence[Any] = (None, None)) -> list[GroupInThread]:
    """Return the groups of a node's workers."""
    node = NodeInThreads(len(processes))
    return [
        GroupInThread(NodeLink(node, rank, [0.0] * 7), process, states[rank])
        for rank, process in enumerate(processes)
    ]


def in_threads(groups: Sequence[GroupInThread], run: Callable[[GroupInThread], Any]) -> list[Any]:
    """Return the results of all workers of a node, which run at the same time."""
    with ThreadPoolExecutor(len(groups)) as executor:
        return list(executor.map(run, groups))


def test_workers_of_a_node_give_a_snapshot_the_same_name() -> None:
    groups = node_of(5, 6)
    groups[
        1
    ]._snapshots = 7  # it had saved in the last group, and the first worker is a new process
    for group in groups:
        group._core.progress = StepProgress(3, 40)

    in_threads(groups, GroupInThread.agree_on_snapshot_names)

    names = [[group.next_snapshot() for _ in range(2)] for group in groups]
    assert names[0] == names[1] == ["0000000b-000008-g00000003", "0000000b-000009-g00000003"]


def test_snapshots_of_different_histories_have_different_names() -> None:
    groups = node_of(5, 6)
    in_threads(groups, GroupInThread.agree_on_snapshot_names)
    for group, generation in zip(groups, (3, 4), strict=True):
        group._core.progress = StepProgress(generation, 40)

    assert groups[0].next_snapshot() != groups[1].next_snapshot()


def test_a_node_has_another_name_once_one_of_its_processes_is_replaced() -> None:
    first, second = node_of(5, 6), node_of(5, 9)
    in_threads(first, GroupInThread.agree_on_snapshot_names)
    in_threads(second, GroupInThread.agree_on_snapshot_names)

    assert first[0].node_processes != second[0].node_processes


def worker_among(folder: Path, other_votes: list[float], *, node: int = 0) -> GroupInThread:
    """Return the first worker of a node, whose other workers have these votes altogether."""
    process_group = NodeLink(NodeInThreads(1), 0, other_votes)
    process_group.shard.rank = node
    return GroupInThread(process_group, 5, file=folder / "agreements")


@pytest.mark.parametrize(("others_due", "is_due"), [(0, False), (1, True)])
def test_a_checkpoint_is_due_only_if_it_is_for_all_workers_of_the_node(
    others_due: int, tmp_path: Path, *, is_due: bool
) -> None:
    """A worker that still writes the last one is not ready; then no other worker may take a snapshot."""
    group = worker_among(tmp_path, [0, 0, 0, 0, others_due, 0, 0])

    assert group.agree(Votes(due=1)) == Votes(due=float(is_due))


@pytest.mark.parametrize("node", [0, 1])
def test_votes_of_workers_with_other_shards_are_included(node: int, tmp_path: Path) -> None:
    group = worker_among(tmp_path, [1, 1, 1, 1, 0, 0, 1], node=node)

    assert group.agree(Votes()) == Votes(regroup=1, leavers=1, hung=1, stops=1, non_finite=1)


@pytest.mark.parametrize(("node", "counted"), [(0, 1), (1, 0)])
def test_only_the_first_node_contributes_what_is_equal_on_all_nodes(
    node: int, counted: int, tmp_path: Path
) -> None:
    """The sum of a shard has the votes of all nodes; its gradients, and so their squares, are equal on all of them."""
    group = worker_among(tmp_path, [0, 0, 0, 0, 0, 9, 0], node=node)
    votes = Votes(regroup=2, leavers=1, hung=1, stops=1, squares=4, non_finite=1)

    assert group.agree(votes) == Votes(
        *(2 * counted, counted, counted, counted, 0),
        squares=9 + 4 * counted,
        non_finite=counted,
    )


class BrokenLink(NodeLink):
    """A group whose sum loses a peer."""

    is_aborted = False

    def sum(self, tensor: torch.Tensor) -> None:
        raise PeerLostError("connection reset")

    def abort(self) -> None:
        self.is_aborted = True


def cut_off_worker(folder: Path) -> tuple[GroupInThread, GroupInThread, BrokenLink]:
    """Return two workers of a node in one generation, of which the second loses its peers in the next agreement."""
    node = NodeInThreads(2)
    link = BrokenLink(node, 1, [])
    receiver = GroupInThread(
        NodeLink(node, 0, [1, 0, 0, 1, 1, 8, 0]), 5, file=folder / "agreements"
    )
    cut_off = GroupInThread(link, 6, file=folder / "agreements")
    for group in (receiver, cut_off):
        group._agreements.begin(3)
    return receiver, cut_off, link


def test_a_worker_uses_the_result_that_only_another_worker_of_its_node_received(
    tmp_path: Path,
) -> None:
    """Otherwise the node's shards would be of different steps, and it would have no state."""
    receiver, cut_off, link = cut_off_worker(tmp_path)
    votes = receiver.agree(Votes(due=1, squares=1))

    assert cut_off.agree(Votes(due=1)) == votes == Votes(1, 0, 0, 1, due=1, squares=9)
    assert link.is_aborted, "the group is broken: its next collective must fail immediately"


def test_a_worker_applies_no_step_whose_result_no_worker_of_its_node_received(
    tmp_path: Path,
) -> None:
    receiver, cut_off, _ = cut_off_worker(tmp_path)
    for group in (receiver, cut_off):
        group._agreements.record([0.0] * 7)  # of the last step
    receiver._leave_group()

    with pytest.raises(PeerLostError, match="connection reset"):
        cut_off.agree(Votes())


class AdoptingState:
    """The state of a worker that records which step it adopts."""

    adopted_step: int | None = None

    def adopt(self, step: int, *_: object, keeps_units: bool) -> None:
        assert not keeps_units
        self.adopted_step = step


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_state_copy_is_complete_for_all_workers_of_a_node_or_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_complete: bool
) -> None:
    """If a joiner is lost while the last shard is sent, the shards of the sender still have equal progress."""
    receiver, cut_off, _ = cut_off_worker(tmp_path)
    monkeypatch.setattr(ShardedGroup, "_copy", lambda *_: None)
    states = [AdoptingState(), AdoptingState()]
    for group, state in zip((receiver, cut_off), states, strict=True):
        group._state = state  # type: ignore[assignment]
    plan = Copy(CopyPlan(StepProgress(2, 40), sources=(0,), missing_tensors={}))

    if is_complete:
        assert receiver._carry_out(plan) == cut_off._carry_out(plan) == Copied()
    else:
        receiver._leave_group()
        with pytest.raises(PeerLostError):
            cut_off._carry_out(plan)

    assert [state.adopted_step for state in states] == [40 if is_complete else None] * 2


def test_a_worker_reports_to_the_others_of_its_node_that_it_leaves_a_group(tmp_path: Path) -> None:
    """A worker that is cut off waits for this before it rolls its step back, but lets no other worker wait for it."""
    receiver, cut_off, link = cut_off_worker(tmp_path)
    with ThreadPoolExecutor(1) as executor:
        agreement = executor.submit(cut_off.agree, Votes())
        with pytest.raises(TimeoutError):
            agreement.result(timeout=0.2)
        assert link.is_aborted
        receiver._leave_group()

        with pytest.raises(PeerLostError):
            agreement.result(timeout=60)


def test_all_workers_of_a_node_get_the_text_of_the_first_worker() -> None:
    groups = node_of(5, 6)

    assert groups[0].agree_in_node("completed-0", "full disk") == "full disk"
    assert groups[1].agree_in_node("completed-0", "") == "full disk"


class RestoringState:
    """The state of a worker that records what it restores.

    Args:
        chosen: step and generation of the checkpoint that it would choose.
    """

    def __init__(self, chosen: tuple[int, int]) -> None:
        self._chosen, self.events = chosen, list[tuple[str, int, int]]()

    def restore(self, committed: StepProgress) -> int:
        self.events.append(("chosen", committed.agreed_generation, committed.step))
        return self._chosen[0]

    def restored_generation(self) -> int:
        return self._chosen[1]

    def restore_shard(self, step: int, generation: int) -> None:
        self.events.append(("followed", step, generation))

    def watch_reading(self, _: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def test_the_first_worker_of_a_node_chooses_the_checkpoint_for_all() -> None:
    """The others must not choose: a checkpoint may become visible, or be hidden, between two reads."""
    states = [RestoringState((16, 3)), RestoringState((8, 2))]
    groups = node_of(5, 6, states=states)
    for group in groups:
        group._core.committed = StepProgress(3, 16)

    assert in_threads(groups, lambda group: group._carry_out(Restore())) == [Restored(16)] * 2
    assert states[0].events == [("chosen", 3, 16)]
    assert states[1].events == [("followed", 16, 3)]
