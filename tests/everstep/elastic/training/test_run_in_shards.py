"""Checkpoints of `Run` in the workers of a node with one shard each, which run one after the other."""

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from everstep import elastic
from everstep.catalog import metrics
from everstep.elastic.accounting import journal
from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.checkpoint import sharded_store
from everstep.elastic.recovery.sharded_worker import ShardedGroup
from everstep.elastic.recovery.state_machine import Recovery, StepProgress
from everstep.elastic.recovery.worker import SingleProcessGroup, TrainingState, Votes
from everstep.elastic.training.session import COMPLETE, TAKEN_OVER
from everstep.elastic.transport.group import PeerLostError, RankAssignment
from everstep.errors import EverstepError
from tests.everstep.elastic.training.test_run_in_groups import compute, start_run

SHARDS = 2


class ShardGroup(SingleProcessGroup, ShardedGroup):
    """The group of a worker with one shard, whose node is the only one, without an agent.

    Args:
        shard: number of the shard.
        result: result of the node's first worker, for the others.
        nodes: number of nodes in its group.

    Attributes:
        votes: function that changes the votes of this worker to those that all have agreed on.
    """

    generation = 1

    def __init__(self, shard: int, result: str = COMPLETE, nodes: int = 1) -> None:
        self._nodes = nodes
        self.shards, self.local_rank, self.node_processes = SHARDS, shard, "0000000a"
        self._core, self._snapshots, self._result = Recovery(), 0, result
        self._core.progress = StepProgress(1, 0)
        self.votes: Callable[[Votes], Votes] = lambda votes: votes
        self.restored = (0, 0)
        self.joins, self.commits = 0, list[int]()
        self.agreed_keys: list[str] = []

    def join(self, state: TrainingState) -> RankAssignment:
        self.joins += 1
        if self.joins == 1 and self.local_rank:
            state.restore_shard(*self.restored)
        elif self.joins == 1:
            step = state.restore(StepProgress())
            self.restored = (step, state.restored_generation())
        self._state = state
        return RankAssignment(
            0, self._nodes, None, 1, lambda _: None, shard=self.local_rank, shards=SHARDS
        )

    def agree(self, votes: Votes) -> Votes:
        return self.votes(votes)

    def agree_in_node(self, key: str, text: str) -> str:
        self.agreed_keys.append(key)
        if self.local_rank and self._result == TAKEN_OVER and len(self.agreed_keys) > 1:
            return COMPLETE
        return self._result if self.local_rank else text

    def next_snapshot(self) -> str:
        return ShardedGroup.next_snapshot(self)

    def commit(self, snapshot_generation: int, step: int, run: str = "") -> bool:
        self.commits.append(step)
        return True

    def wait_for_all(self) -> None:
        """Do nothing: the workers run one after the other."""


@pytest.fixture(autouse=True)
def _closes_journals() -> Iterator[None]:
    """Close the journals: otherwise they free descriptors later, during a test that has used up all descriptors."""
    yield
    for open_journal in list(journal._open_journals):
        open_journal.close()


def train(group: ShardGroup, folder: Path, **options: Any) -> tuple[Any, nn.Module]:
    """Train one worker; its saves are not concurrent with its steps."""
    arguments = {"checkpoint": folder, "checkpoint_steps": 2, "epochs": 5, **options}
    run, model, _ = start_run(group, **arguments)
    for batch in run:
        compute(batch, model)
        run._session.save_if_due()
        run._session.state.flush()
    return run, model


def train_node(folder: Path, **options: Any) -> list[nn.Module]:
    """Train both workers of a node; the first one last, so that it does not wait."""
    return [train(ShardGroup(shard), folder, **options)[1] for shard in (1, 0)][::-1]


def entries_in(folder: Path) -> list[dict[str, Any]]:
    for open_journal in list(journal._open_journals):
        open_journal.flush()
    [path] = folder.glob("journal/*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_in_shards_continues_from_its_checkpoint(tmp_path: Path) -> None:
    expected_models = train_node(tmp_path / "undisturbed")
    train_node(tmp_path / "run", max_steps=3)

    first_group = ShardGroup(0)
    runs = [start_run(first_group, checkpoint=tmp_path / "run", epochs=5)]
    session = runs[0][0]._session
    session.join()
    assert first_group.restored == (3, 1)
    other_group = ShardGroup(1)
    other_group.restored = first_group.restored
    runs.append(start_run(other_group, checkpoint=tmp_path / "run", epochs=5))
    for run, model, _ in reversed(runs):
        steps = []
        for batch in run:
            steps.append(batch.number)
            compute(batch, model)
        assert steps == [4, 5]
    for (_, model, _), expected in zip(runs, expected_models, strict=True):
        for parameter, expected_parameter in zip(
            model.parameters(), expected.parameters(), strict=True
        ):
            assert torch.equal(parameter, expected_parameter)


def test_checkpoints_have_both_shards_and_only_the_first_worker_commits(tmp_path: Path) -> None:
    other_group, first_group = ShardGroup(1), ShardGroup(0)
    train(other_group, tmp_path)
    assert not list(tmp_path.glob("checkpoints/step-*")), "the first worker has not written yet"
    assert not (tmp_path / "run.json").exists()
    assert not (tmp_path / "ledger.jsonl").exists()

    train(first_group, tmp_path)

    assert other_group.commits == []
    assert set(first_group.commits) == {2, 4, 5}
    for folder in tmp_path.glob("checkpoints/step-*"):
        assert {path.name for path in folder.glob("*.safetensors")} == {
            "state-0-of-2.safetensors",
            "state-1-of-2.safetensors",
        }
    manifest = json.loads((tmp_path / "checkpoints/step-00000005/manifest.json").read_text())
    assert manifest["fingerprint"]["shards"] == SHARDS


def test_one_worker_of_a_node_records_its_steps_and_checkpoints(tmp_path: Path) -> None:
    run, _ = train(ShardGroup(1), tmp_path)
    kinds = {entry["kind"] for entry in entries_in(tmp_path)}
    assert kinds.isdisjoint({"step", "checkpoint"}), "the first worker records them"
    values = run._session.state.checkpoints.metric_values(saves=True)
    assert values[metrics.CHECKPOINT_TIME] is None, "an old time would cause an alert"

    train(ShardGroup(0), tmp_path)
    kinds = {entry["kind"] for entry in entries_in(tmp_path)}
    assert kinds >= {"step", "checkpoint"}


@pytest.mark.parametrize("agreed_steps", [{1}, {1, 2, 4}])
def test_a_worker_takes_a_snapshot_exactly_when_its_node_has_agreed_on_it(
    tmp_path: Path, agreed_steps: set[int]
) -> None:
    group, steps = ShardGroup(1), iter(range(1, 100))
    group.votes = lambda votes: replace(votes, due=float(next(steps) in agreed_steps))
    train(group, tmp_path)

    saved_steps = {int(path.name[6:14]) for path in tmp_path.glob("checkpoints/.step-*")}
    assert saved_steps == agreed_steps | {5}, (
        "a worker must not use its own clock, and always saves the last state"
    )


def test_a_worker_saves_when_a_worker_with_another_shard_has_learned_that_a_node_leaves(
    tmp_path: Path,
) -> None:
    group = ShardGroup(1)
    seen_votes = list[Votes]()

    def agree(votes: Votes) -> Votes:
        seen_votes.append(votes)
        return replace(votes, regroup=len(seen_votes) == 3, leavers=len(seen_votes) == 3)

    group.votes = agree
    train(group, tmp_path, checkpoint_steps=100)

    assert not any(votes.leavers for votes in seen_votes), "this worker's sums had no leaver"
    saved_steps = {int(path.name[6:14]) for path in tmp_path.glob("checkpoints/.step-*")}
    assert saved_steps == {3, 5}


@pytest.mark.parametrize("own_factor", [1.0, math.nan])
def test_a_step_is_skipped_by_the_workers_of_all_shards_if_one_shard_is_not_finite(
    own_factor: float, tmp_path: Path
) -> None:
    """Otherwise the shards would be of models after different numbers of updates."""
    group, own_votes, weights = ShardGroup(1), list[float](), list[torch.Tensor]()
    run, model, _ = start_run(group, checkpoint=tmp_path, epochs=3, nonfinite_loss="skip")

    def agree(votes: Votes) -> Votes:
        own_votes.append(votes.non_finite)
        return replace(votes, non_finite=1 + votes.non_finite if len(own_votes) == 2 else 0)

    group.votes = agree
    for batch in run:
        for ids in batch.microbatches():
            loss = model(torch.stack([ids, ids + 1], 1) / 24).square().mean()
            batch.backward(loss * own_factor if batch.number == 2 else loss)
        batch.step()
        weights.append(next(model.parameters()).detach().clone())

    assert own_votes == [0, float(math.isnan(own_factor)), 0]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    assert [
        entry["step"] for entry in entries_in(tmp_path) if entry["kind"] == "nonfinite_step"
    ] == [2]


def test_a_run_ends_if_another_shard_is_not_finite(tmp_path: Path) -> None:
    group = ShardGroup(1)
    group.votes = lambda votes: replace(votes, non_finite=1)

    with pytest.raises(EverstepError, match="the gradients of step 1 are not finite"):
        train(group, tmp_path)


def test_the_workers_of_all_shards_leave_an_evaluation_together(tmp_path: Path) -> None:
    """One shard's workers alone may not know yet that a node leaves, and would complete the epoch."""
    group, evaluations, agreements = ShardGroup(1), list[int](), list[float]()
    run, model, _ = start_run(group, checkpoint=tmp_path, epochs=1)

    @run.each_epoch
    def evaluate(epoch: int) -> None:
        evaluations.append(epoch)
        group.votes = leave_once
        assert run.sum(2.0) == [2.0]

    def leave_once(votes: Votes) -> Votes:
        assert not votes.regroup, "this worker's sum has no vote"
        group.votes = lambda votes: votes
        return replace(votes, regroup=1, leavers=SHARDS) if len(evaluations) == 1 else votes

    group.handle_agreement = agreements.append  # type: ignore[method-assign, assignment]
    for batch in run:
        compute(batch, model)

    assert evaluations == [1, 1]
    assert agreements == [SHARDS]


def test_a_run_ends_if_a_program_with_another_shard_ends_it_after_an_epoch(tmp_path: Path) -> None:
    group, steps = ShardGroup(1), list[int]()
    run, model, _ = start_run(group, checkpoint=tmp_path, epochs=5)

    @run.each_epoch
    def end(epoch: int) -> None:
        del epoch
        group.votes = lambda votes: replace(votes, stops=1)

    for batch in run:
        steps.append(batch.number)
        compute(batch, model)

    assert steps == [1]


def test_the_result_of_the_first_worker_counts_for_its_node(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match="cannot be written by any worker: No space left"):
        train(ShardGroup(1, "No space left"), tmp_path / "full")

    group = ShardGroup(1, TAKEN_OVER)
    train(group, tmp_path / "taken")
    assert group.joins == 2, "it leaves the group, as the first worker does"


def test_a_shard_that_cannot_be_written_fails_the_last_checkpoint_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded_store, "POLL_SECONDS", 0.01)

    with pytest.raises(EverstepError, match=r"of step 1, .*shard 1 of 2 is not written"):
        train(ShardGroup(0), tmp_path, max_steps=1, storage_timeout_seconds=1)


def test_the_next_node_writes_when_the_storage_of_any_worker_hangs(tmp_path: Path) -> None:
    """The worker really waits in a system call, on a pipe without a reader."""
    staging = tmp_path / "checkpoints" / ".step-00000001-0000000a-000001-g00000001"
    staging.mkdir(parents=True)
    os.mkfifo(staging / "state-1-of-2.safetensors")
    group = ShardGroup(1, nodes=2)
    options = {"checkpoint_steps": 1, "storage_timeout_seconds": 1, "epochs": 1_000_000}
    run, model, _ = start_run(group, checkpoint=tmp_path, **options)
    group.votes = lambda votes: replace(votes, due=float(not group._snapshots))

    for batch in run:
        compute(batch, model)
        if run._session.worker.saver == 1:
            break

    assert run._session.attached, "the worker with the hung storage continues to train"
    assert not run._session.worker.saves
    reader = os.open(staging / "state-1-of-2.safetensors", os.O_RDONLY | os.O_NONBLOCK)
    run._session.state.flush()
    os.close(reader)


def test_a_bucket_is_refused_for_a_model_in_shards() -> None:
    with pytest.raises(EverstepError, match="model in shards cannot be in a bucket") as error:
        start_run(ShardGroup(0), checkpoint="s3://models/run")
    assert "folder" in error.value.fix


def test_the_micro_batch_limit_of_one_worker_is_not_read_by_the_others(tmp_path: Path) -> None:
    run, _, _ = start_run(ShardGroup(0), checkpoint=tmp_path)

    assert run._session.limit._file is None


class Counting(nn.Module):
    """A model that counts its forward passes."""

    passes: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.register_buffer("passes", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        result: torch.Tensor = self.layer(x)
        return result


def test_a_step_whose_agreement_fails_counts_once_in_the_buffers() -> None:
    group, model, calls = ShardGroup(0), Counting(), itertools.count()

    def lose_a_peer_once(votes: Votes) -> Votes:
        if next(calls) == 2:
            raise PeerLostError("gone")
        return votes

    group.votes = lose_a_peer_once
    run = elastic.Run(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        dataset_size=8,
        global_batch=2,
        epochs=1,
        group=(group, TimeAccount()),
    )
    for batch in run:
        for ids in batch.microbatches():
            batch.backward(model(ids[:, None].float()).square().mean())
        batch.step()

    assert group.joins == 2
    assert int(model.passes) == run.step == 4
